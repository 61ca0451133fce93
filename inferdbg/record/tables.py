"""Many Structs of one kind as one list a field: shorter as JSON, quicker to write, and better to compress.

    (Event(7, 90, 3, "evicted", block=12), Event(8, 91, 3, "evicted", block=13))
    {"seq": [7, 8], "mono_ns": [90, 91], "step": [3, 3], "kind": ["evicted", "evicted"], "block": [12, 13]}

A field that has its default in every row is left out, and one that a table does not have gets it: so fields can be
added.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType, defstruct
from msgspec.structs import astuple

S = TypeVar("S", bound=Struct)


@cache
def table_type(row: type[Struct]) -> type[Struct]:
    """The Struct of lists that a table of ``row`` is decoded into."""
    return defstruct(
        f"{row.__name__}Table",
        [(name, list[wanted] | UnsetType, UNSET) for name, wanted, _ in _fields(row)],  # type: ignore[valid-type]
    )


def table_of(row: type[Struct], items: Iterable[Struct]) -> dict[str, Sequence[Any]]:
    """The lists; none where there are no rows."""
    columns = zip(*map(astuple, items), strict=True)
    return {
        name: column
        for (name, _, default), column in zip(_fields(row), columns, strict=False)
        if default is NODEFAULT or column.count(default) != len(column)
    }


def rows_of(row: type[S], table: Struct) -> tuple[S, ...]:
    """The inverse of ``table_of``; msgspec.DecodeError when the lists are not of one length."""
    held = [(getattr(table, name), default) for name, _, default in _fields(row)]
    length = max((len(column) for column, _ in held if column is not UNSET), default=0)
    filled = [[default] * length if column is UNSET else column for column, default in held]
    make: Callable[..., S] = row
    if any(len(column) != length for column in filled):
        raise msgspec.DecodeError(f"a table of {row.__name__} with columns of different lengths")
    return tuple(map(make, *filled))


@cache
def _fields(row: type[Struct]) -> tuple[tuple[str, Any, Any], ...]:
    """Name, type and default (NODEFAULT: none) of each field."""
    return tuple((field.name, field.type, field.default) for field in msgspec.structs.fields(row))
