"""The block tables of all requests as changes: a few blocks are added a second, and hundreds of thousands stay.

{"new": {"9": "AAEC…"}, "grown": {"7": "DAAA"}, "gone": [3]}      by request number; blocks int32 in base64

A table that grew is written as what was added; any other that changed, whole.
"""

from collections.abc import Mapping

from msgspec import DecodeError, Struct

from inferdbg.facts.sections.requests import Requests

Tables = Mapping[int, bytes]


class TableChanges(Struct, omit_defaults=True, gc=False):
    new: dict[int, bytes] = {}
    grown: dict[int, bytes] = {}
    gone: list[int] = []


def tables_of(requests: Requests | None) -> dict[int, bytes] | None:
    """Block tables by request number, those without blocks left out; None where numbers are not unique (a broken
    engine): then they are written with the requests."""
    if requests is None:
        return {}
    if len({request.number for request in requests.items}) != len(requests.items):
        return None
    return {request.number: request.blocks for request in requests.items if request.blocks}


def table_changes(old: Tables, new: Tables) -> TableChanges | None:
    """None when there are none."""
    if new is old:
        return None
    changes = TableChanges()
    for number, blocks in new.items():
        before = old.get(number)
        if before is None:
            changes.new[number] = blocks
        elif blocks != before:
            if blocks.startswith(before):
                changes.grown[number] = blocks[len(before) :]
            else:
                changes.new[number] = blocks
    if len(new) - len(changes.new) != len(old) or changes.new:
        changes.gone = [number for number in old if number not in new]
    return changes if changes.new or changes.grown or changes.gone else None


def apply(tables: dict[int, bytes], changes: TableChanges) -> None:
    """msgspec.DecodeError when they are changes of other tables."""
    try:
        for number in changes.gone:
            del tables[number]
        tables.update(changes.new)
        for number, blocks in changes.grown.items():
            tables[number] += blocks
    except KeyError as error:
        raise DecodeError(f"request {error} has no block table that could change") from None
