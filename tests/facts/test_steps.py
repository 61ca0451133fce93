"""The work of a step is kept as columns and read as rows."""

from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.sections.steps import NO_SHARES, Shares, Work
from tests.support.arbitrary import any_of

WORK = any_of(Shares).map(lambda shares: list(shares.rows()))


@given(st.lists(WORK, max_size=3).map(lambda parts: [share for part in parts for share in part]))
def test_rows_are_what_the_columns_were_made_of(work: list[Work]) -> None:
    shares = Shares.of(work)
    assert shares.rows() == tuple(work)
    assert len(shares) == len(work)
    assert shares.prefills() == tuple(share for share in work if share.kind == "prefill")
    assert shares.decodes == sum(share.kind == "decode" for share in work)


def test_a_step_without_work_has_no_rows() -> None:
    assert NO_SHARES.rows() == NO_SHARES.prefills() == ()
    assert not NO_SHARES
    assert NO_SHARES.decodes == 0


def test_a_share_takes_thirteen_bytes() -> None:
    shares = Shares.of([Work(1, "decode", 1, 2)] * 100)
    assert sum(map(len, (shares.requests, shares.kinds, shares.tokens, shares.contexts))) == 1300
