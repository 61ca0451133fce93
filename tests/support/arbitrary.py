"""Hypothesis strategies: any Snapshot that the types allow, and stretches of them in which some things stay."""

import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from inferdbg.facts.sections.steps import Shares, Work
from inferdbg.facts.snapshot import SECTIONS, Snapshot

_INTEGERS = st.integers(0, 5) | st.integers(-(2**40), 2**62)
_U32 = st.integers(0, 3) | st.integers(0, 2**32 - 1)
_WORK = st.builds(Work, _U32, st.sampled_from(["prefill", "decode"]), _U32, _U32)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: _INTEGERS,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: st.sampled_from(["", "a", "b"]) | st.text(max_size=8),
    bytes: st.binary(max_size=12)
    | st.integers(0, 20).map(bytes)
    | st.lists(_INTEGERS, max_size=3).map(repr).map(str.encode),
    type(None): st.none(),
}


@cache
def any_of(wanted: object) -> st.SearchStrategy[Any]:
    """Values of a type as fields of facts are annotated: scalars, Literals, unions, tuples and Structs."""
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(any_of, arguments))
    if origin is tuple:
        return st.lists(any_of(arguments[0]), max_size=3).map(tuple)
    if wanted is Shares:
        return st.lists(_WORK, max_size=3).map(Shares.of)
    fields = {field.name: any_of(field.type) for field in msgspec.structs.fields(wanted)}
    return st.builds(wanted, **fields)


SNAPSHOTS: st.SearchStrategy[Snapshot] = any_of(Snapshot)


@st.composite
def stretches(draw: st.DrawFn, longest: int = 4) -> list[Snapshot]:
    """Successive Snapshots: each takes some sections, and some fields of others, from the one before."""
    found = [draw(SNAPSHOTS)]
    for _ in range(draw(st.integers(0, longest - 1))):
        before, fresh = found[-1], draw(SNAPSHOTS)
        for name in (*SECTIONS, "target", "probes"):
            kept, new = getattr(before, name), getattr(fresh, name)
            what = draw(st.sampled_from(["new", "same", "mixed"]))
            if what == "mixed" and isinstance(kept, msgspec.Struct) and isinstance(new, msgspec.Struct):
                fields = draw(st.sets(st.sampled_from(kept.__struct_fields__)))
                kept = msgspec.structs.replace(kept, **{field: getattr(new, field) for field in fields})
            if what != "new":
                fresh = msgspec.structs.replace(fresh, **{name: kept})
        found.append(fresh)
    return found
