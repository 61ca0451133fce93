"""What steps ran comes back as it was, and a step that goes on with the same requests takes next to nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.sections.steps import NO_SHARES, Shares, Work
from inferdbg.record.work import Ran, shares_of, told

FEW = st.builds(Work, st.integers(1, 3), st.sampled_from(["prefill", "decode"]), st.integers(0, 2), st.integers(0, 3))
SHARES = st.lists(FEW, max_size=3).map(Shares.of)


def written(*steps: Shares) -> list[object]:
    found: list[object] = msgspec.to_builtins(told((shares, False) for shares in steps))
    return found


def decodes(*contexts: int) -> Shares:
    return Shares.of(Work(7 + place, "decode", 1, context) for place, context in enumerate(contexts))


@given(st.lists(st.tuples(SHARES, st.booleans()), max_size=6))
def test_what_is_told_comes_back_equal(steps: list[tuple[Shares, bool]]) -> None:
    ran = told(steps)
    assert shares_of(ran) == [shares for shares, _ in steps]
    assert [one.lost for one in ran if one is not None] == [lost for shares, lost in steps if shares]


def test_a_step_that_goes_on_with_the_same_requests_is_an_empty_object() -> None:
    steps = [decodes(10, 20), decodes(11, 21), decodes(12, 22)]
    first, *later = written(*steps)
    assert first == {"requests": [7, 8], "contexts": [10, 20]}
    assert later == [{}, {}]
    assert shares_of([Ran([7, 8], contexts=[10, 20]), Ran(), Ran()]) == steps


def test_a_chunk_is_written_with_its_place_and_tokens() -> None:
    chunk = Shares.of([Work(7, "decode", 1, 12), Work(9, "prefill", 256, 0)])
    assert written(decodes(11), chunk)[1] == {
        "requests": [7, 9],
        "prefills": [1],
        "tokens": [1, 256],
        "contexts": [12, 0],
    }


def test_a_step_that_ran_nothing_is_null_and_forgets_the_one_before() -> None:
    first, nothing, third = written(decodes(10), NO_SHARES, decodes(11))
    assert (first, nothing) == ({"requests": [7], "contexts": [10]}, None)
    assert third == {"requests": [7], "contexts": [11]}


@pytest.mark.parametrize(
    "ran",
    [
        Ran(requests=[1, 2], contexts=[3]),
        Ran(requests=[1], contexts=[3], tokens=[1, 1]),
        Ran(requests=[1], contexts=[3], prefills=[4]),
        Ran(requests=[-1], contexts=[3]),
        Ran(requests=[1]),
    ],
)
def test_lists_that_do_not_fit_together_are_damage(ran: Ran) -> None:
    with pytest.raises(msgspec.DecodeError):
        shares_of([ran])
