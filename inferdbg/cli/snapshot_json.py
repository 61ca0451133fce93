"""The stable JSON of one look: ``{"schema": "inferdbg.snapshot.v1", "snapshot": {...}, "findings": [...]}``.

A recording that is damaged there or cut off says so beside these, as ``problem`` and ``hint``.

Fields are those of the sections in inferdbg/facts; what is unknown is left out. Fields are added within a version and
never change their meaning. Columns and block tables are left out unless asked for, and are lists of numbers then.
"""

from collections.abc import Sequence

import msgspec

from inferdbg.diagnosis.finding import Finding
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.kvcache import COLUMN_TYPES
from inferdbg.facts.sections.steps import Shares
from inferdbg.facts.snapshot import Snapshot

SCHEMA = "inferdbg.snapshot.v1"


def as_json(
    snapshot: Snapshot, findings: Sequence[Finding], problem: InferdbgError | None = None, *, blocks: bool
) -> dict[str, object]:
    """Plain values. ``problem``: what ails the source, told beside the others as ``problem`` and ``hint``. ``blocks``:
    with ``kvcache.state`` and the other columns, and ``requests.items[].blocks``; each request has ``block_count`` in
    any case."""
    found = _object(snapshot)
    kvcache, requests = snapshot.kvcache, snapshot.requests
    if kvcache is not None:
        columns = {name: getattr(kvcache, name) for name in COLUMN_TYPES}
        numbers = {name: _numbers(column, COLUMN_TYPES[name]) for name, column in columns.items() if column is not None}
        found["kvcache"] = _object(kvcache) | (numbers if blocks else {})
    if requests is not None:
        items = [
            _object(request)
            | {"block_count": request.block_count}
            | ({"blocks": request.block_table().tolist()} if blocks else {})
            for request in requests.items
        ]
        found["requests"] = _object(requests) | {"items": items}
    ails = {"problem": problem.message, "hint": problem.hint} if problem is not None else {}
    return {"schema": SCHEMA, "snapshot": found, "findings": [_object(finding) for finding in findings], **ails}


def _object(value: msgspec.Struct) -> dict[str, object]:
    """Its fields, those that are None or bytes left out; also those that have their default. The shares of a step are
    its ``work``, a row each."""
    fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return {
        "work" if isinstance(found, Shares) else name: _plain(found.rows() if isinstance(found, Shares) else found)
        for name, found in fields
        if found is not None and not isinstance(found, bytes)
    }


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _object(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _numbers(column: bytes, typecode: str) -> list[int]:
    return memoryview(column).cast(typecode).tolist()  # type: ignore[call-overload, no-any-return]
