"""Durations, sizes and the environment are read generously and refused in plain words."""

import pytest

from inferdbg.config import Environment, Moment, duration_ns, size_bytes


@pytest.mark.parametrize(
    ("typed", "expected_ns"),
    [
        ("250ms", 250_000_000),
        ("1.5 s", 1_500_000_000),
        ("10min", 600 * 10**9),
        ("6H", 21_600 * 10**9),
        (".5s", 5 * 10**8),
    ],
)
def test_durations_have_units(typed: str, expected_ns: int) -> None:
    assert duration_ns(typed) == expected_ns


@pytest.mark.parametrize("typed", ["60", "", "s", "-1s", "1 fortnight", "1s 2s", "1e3s", "٣s"])
def test_what_is_no_duration_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number and a unit, like 250ms"):
        duration_ns(typed)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("512", 512),
        ("64k", 65536),
        ("100 MB", 100 << 20),
        ("2G", 2 << 30),
        ("1.5GiB", 3 << 29),
        ("1t", 1 << 40),
        ("7B", 7),
    ],
)
def test_sizes_are_in_powers_of_1024(typed: str, expected: int) -> None:
    assert size_bytes(typed) == expected


@pytest.mark.parametrize("typed", ["", "G", "-2G", "2X", "2i", "two", "٣"])
def test_what_is_no_size_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write bytes, or a number and a unit, like 64k"):
        size_bytes(typed)


@pytest.mark.parametrize("typed", ["1000000h", "9" * 400 + "s"])
def test_a_duration_beyond_all_use_is_refused_with_the_bound(typed: str) -> None:
    with pytest.raises(ValueError, match="is too long: at most 3650d"):
        duration_ns(typed)


@pytest.mark.parametrize("typed", ["2000000T", "9" * 400])
def test_a_size_beyond_all_use_is_refused_with_the_bound(typed: str) -> None:
    with pytest.raises(ValueError, match="is too much: at most 1048576T"):
        size_bytes(typed)


def test_moments_are_times_of_day_or_spans_from_either_end() -> None:
    assert Moment.parse("14:02:07") == Moment(clock_s=14 * 3600 + 2 * 60 + 7)
    assert Moment.parse("9:30") == Moment(clock_s=9 * 3600 + 30 * 60)
    assert Moment.parse("+90s") == Moment(from_start_ns=90 * 10**9)
    assert Moment.parse("-10s") == Moment(from_end_ns=10 * 10**9)


@pytest.mark.parametrize("typed", ["", "25:00", "14", "noon", "14:60"])
def test_what_is_no_moment_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a moment: write 14:02:07"):
        Moment.parse(typed)


def test_the_environment_is_read_once_and_refused_loudly() -> None:
    assert Environment.of({}) == Environment(debug=False, colour=True)
    assert Environment.of({"INFERDBG_DEBUG": "1", "NO_COLOR": "1"}) == Environment(debug=True, colour=False)
    assert Environment.of({"INFERDBG_DEBUG": "no", "NO_COLOR": ""}) == Environment(debug=False, colour=True)
    with pytest.raises(ValueError, match="INFERDBG_DEBUG is 'maybe'"):
        Environment.of({"INFERDBG_DEBUG": "maybe"})
