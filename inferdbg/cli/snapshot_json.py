"""The stable JSON of one look: ``{"schema": "inferdbg.snapshot.v1", "snapshot": {...}, "findings": [...]}``.

Fields are those of the sections in inferdbg/facts; what is unknown is left out. Fields are added within a version and
never change their meaning. Columns and block tables are left out unless asked for, and are lists of numbers then.
"""

from collections.abc import Sequence

import msgspec

from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.sections.kvcache import COLUMN_TYPES
from inferdbg.facts.snapshot import Snapshot

SCHEMA = "inferdbg.snapshot.v1"


def as_json(snapshot: Snapshot, findings: Sequence[Finding], *, blocks: bool) -> dict[str, object]:
    """Plain values. ``blocks``: with ``kvcache.state`` and the other columns, and ``requests.items[].blocks``; each
    request has ``block_count`` in any case."""
    plain: dict[str, object] = msgspec.to_builtins(snapshot, builtin_types=(bytes,))
    kvcache, requests = plain.get("kvcache"), plain.get("requests")
    if isinstance(kvcache, dict):
        for name, typecode in COLUMN_TYPES.items():
            column = kvcache.pop(name, None)
            if blocks and column is not None:
                kvcache[name] = memoryview(column).cast(typecode).tolist()  # type: ignore[call-overload]
    if isinstance(requests, dict) and snapshot.requests is not None:
        for shown, request in zip(requests.get("items", ()), snapshot.requests.items, strict=False):
            shown.pop("blocks", None)
            shown["block_count"] = request.block_count
            if blocks:
                shown["blocks"] = request.block_table().tolist()
    return {"schema": SCHEMA, "snapshot": plain, "findings": msgspec.to_builtins(list(findings))}
