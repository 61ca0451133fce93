"""Rows of requests from a reading that was torn."""

from types import SimpleNamespace

import numpy as np
import pytest

from inferdbg.probes.memory import look
from inferdbg.probes.memory.look import Looker


def test_a_request_that_stands_twice_in_a_torn_dict_is_no_row_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    looker = Looker.__new__(Looker)
    looker._columns, looker._again = {"id": "request_id"}, False
    monkeypatch.setattr(Looker, "_tables", lambda self, wanted: {})
    changing, foreign = np.zeros(3, bool), np.array([False, False, True])
    seen = SimpleNamespace(values={"request_id": ["a", "a", 7]}, changing=changing, foreign=foreign)
    looker.reader = None  # type: ignore[assignment]
    monkeypatch.setattr(look, "table", lambda *arguments, **options: seen)
    rows, left_out = looker._rows([(0x10, 0x100), (0x20, 0x100), (0x30, 0x300)], {0x100})
    assert ([row.id for row in rows.values()], list(rows), left_out) == (["a"], [0x100], 2)
