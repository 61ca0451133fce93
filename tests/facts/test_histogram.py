"""Percentiles come from bucket differences."""

from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.histogram import Histogram

BOUNDS = (10, 20, 40)


def test_nothing_observed_has_no_percentile() -> None:
    assert Histogram(BOUNDS, (0, 0, 0, 0), 0).percentile(0.5) is None


def test_a_percentile_is_linear_inside_its_bucket() -> None:
    histogram = Histogram(BOUNDS, (0, 10, 0, 0), 150)
    assert histogram.percentile(0.5) == 15.0
    assert histogram.percentile(1.0) == 20.0


def test_what_lies_above_the_last_bound_is_told_as_that_bound() -> None:
    assert Histogram(BOUNDS, (1, 0, 0, 9), 900).percentile(0.95) == 40.0


def test_a_restart_makes_the_later_one_the_difference() -> None:
    before, after = Histogram(BOUNDS, (5, 5, 5, 5), 99), Histogram(BOUNDS, (1, 0, 0, 0), 5)
    assert after.since(before) == after


def test_the_difference_is_what_was_added() -> None:
    before, after = Histogram(BOUNDS, (1, 2, 0, 0), 40), Histogram(BOUNDS, (1, 5, 1, 0), 120)
    assert after.since(before) == Histogram(BOUNDS, (0, 3, 1, 0), 80)


@given(st.lists(st.integers(1, 39), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(values: list[int], q: float) -> None:
    counts = [0, 0, 0, 0]
    for value in values:
        counts[next((i for i, bound in enumerate(BOUNDS) if value <= bound), 3)] += 1
    found = Histogram(BOUNDS, tuple(counts), sum(values)).percentile(q)
    rank = max(0, min(len(values) - 1, -(-q * len(values) // 1) - 1))
    true = sorted(values)[int(rank)]
    upper = next(bound for bound in BOUNDS if true <= bound)
    lower = ([0, *BOUNDS])[BOUNDS.index(upper)]
    assert found is not None
    assert lower <= found <= upper
