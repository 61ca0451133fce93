"""Block tables are written as what was added, and come back whole."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.record.block_tables import TableChanges, apply, table_changes, tables_of

TABLES = st.dictionaries(st.integers(0, 4), st.integers(1, 3).flatmap(lambda n: st.binary(min_size=n, max_size=n)))


@given(st.lists(TABLES, max_size=5))
def test_changes_applied_one_after_the_other_give_the_tables(stretch: list[dict[int, bytes]]) -> None:
    held: dict[int, bytes] = {}
    before: dict[int, bytes] = {}
    for tables in stretch:
        changes = table_changes(before, tables)
        assert (changes is None) == (tables == before)
        if changes is not None:
            apply(held, changes)
        assert held == tables
        before = tables


def test_a_table_that_grew_is_written_as_what_was_added() -> None:
    old = {3: b"gone", 7: b"held", 8: b"same", 9: b"turn"}
    new = {5: b"born", 7: b"held more", 8: b"same", 9: b"back"}
    assert table_changes(old, new) == TableChanges({5: b"born", 9: b"back"}, {7: b" more"}, [3])


def test_tables_of_requests_that_share_a_number_are_not_told_apart_by_it() -> None:
    twice = tuple(Request(7, name, "decode", blocks=name.encode()) for name in ("a", "b"))
    assert tables_of(Requests(Origin("x", 1), twice)) is None
    assert tables_of(Requests(Origin("x", 1), twice[:1])) == {7: b"a"}


@pytest.mark.parametrize("changes", [TableChanges(grown={1: b"x"}), TableChanges(gone=[1])])
def test_changes_of_other_tables_are_damage(changes: TableChanges) -> None:
    with pytest.raises(msgspec.DecodeError, match="request 1"):
        apply({}, changes)
