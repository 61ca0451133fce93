"""Many Structs of one kind as one list a field: shorter as JSON, quicker to write, and better to compress.

    (Event(7, 90, 3, "evicted", block=12), Event(8, 91, 3, "evicted", block=13))
    {"seq": [7, 8], "mono_ns": [90, 91], "step": [3, 3], "kind": ["evicted", "evicted"], "block": [12, 13]}

A field that has its default in every row is left out, and one that a table does not have gets it: so fields can be
added.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType, defstruct

S = TypeVar("S", bound=Struct)


@cache
def table_type(row: type[Struct]) -> type[Struct]:
    """The Struct of lists that a table of ``row`` is decoded into."""
    return defstruct(
        f"{row.__name__}Table",
        [(name, list[wanted] | UnsetType, UNSET) for name, wanted, _ in _fields(row)],  # type: ignore[valid-type]
    )


def table_of(row: type[Struct], items: Iterable[Struct]) -> dict[str, list[Any]]:
    """The lists; none where there are no rows."""
    held = list(items)
    found = {}
    for name, _, default in _fields(row):
        column = list(map(attrgetter(name), held))
        if default is NODEFAULT or column.count(default) != len(column):
            found[name] = column
    return found


def rows_of(row: type[S], table: Struct) -> tuple[S, ...]:
    """The inverse of ``table_of``; ValueError when the lists are not of one length."""
    columns: list[Sequence[Any] | None] = []
    length = 0
    for name, _, _ in _fields(row):
        column = getattr(table, name)
        columns.append(None if column is UNSET else column)
        length = max(length, 0 if column is UNSET else len(column))
    make: Callable[..., S] = row
    filled = [
        [default] * length if column is None else column
        for column, (_, _, default) in zip(columns, _fields(row), strict=True)
    ]
    return tuple(make(*values) for values in zip(*filled, strict=True))


@cache
def _fields(row: type[Struct]) -> tuple[tuple[str, Any, Any], ...]:
    """Name, type and default (NODEFAULT: none) of each field."""
    return tuple((field.name, field.type, field.default) for field in msgspec.structs.fields(row))
