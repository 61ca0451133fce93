"""Values look the same everywhere."""

import pytest

from inferdbg import text


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (33e6, "33 ms"),
        (999.7e6, "1.0 s"),
        (59.4e9, "59 s"),
        (60e9, "1 min"),
        (3.3 * 60e9, "198 s"),
        (599.7e9, "10 min"),
        (12 * 60e9, "12 min"),
        (3.1 * 3600e9, "3.1 h"),
        (72 * 3600e9, "3 d"),
    ],
)
def test_a_duration_has_a_unit_and_at_most_three_digits(ns: float | None, expected: str) -> None:
    assert text.duration(ns) == expected


def test_a_duration_fits_six_characters_and_so_is_cut_in_no_column() -> None:
    for exponent in range(13, 165):
        assert len(text.duration(1.27**exponent)) <= 6


def test_a_number_too_wide_for_its_column_is_rounded_and_never_cut() -> None:
    assert [text.count_within(value, 6) for value in (99_812, 100_000, 1_234_567, None)] == [
        "99,812",
        "100k",
        "1.2M",
        "-",
    ]


def test_a_part_keeps_its_digits_longer_than_the_total_and_an_unknown_total_is_left_out() -> None:
    said = [text.out_of(*pair, 11) for pair in ((1_266, 4_477), (12_266, 16_384), (131_072, 131_072), (20_160, None))]
    assert said == ["1,266/4,477", "12,266/16k", "131k/131k", "20,160"]
    assert text.out_of(None, 512, 11) == "-/512"


def test_sizes_are_in_powers_of_1024() -> None:
    assert [text.size(value) for value in (512, 1024, 3.1 * 2**20, 2**40)] == ["512 B", "1 KiB", "3.1 MiB", "1 TiB"]


def test_a_small_share_is_not_rounded_to_nothing_nor_a_large_one_to_all() -> None:
    assert [text.percent(value) for value in (0, 0.004, 0.5, 0.996, 1, None)] == [
        "0 %",
        "<1 %",
        "50 %",
        ">99 %",
        "100 %",
        "-",
    ]


def test_short_numbers_fit_four_characters() -> None:
    for value in (0, 7, 283, 999, 1_234, 56_789, 999_600, 3_100_000):
        assert len(text.short(value)) <= 4


def test_foreign_text_cannot_move_the_cursor_or_colour_the_screen() -> None:
    hostile = "a\x1b[31mred\x1b]0;title\x07\x9b2J\r\nb\x1bPq;data\x1b\\c\u202ed"
    cleaned = text.safe(hostile)
    assert cleaned == "ared bcd"
    assert all(character.isprintable() for character in cleaned)


def test_foreign_text_is_cut_and_says_so() -> None:
    assert text.safe("x" * 50, limit=10) == "x" * 9 + "…"


def test_a_sparkline_leaves_a_gap_where_nothing_is_known() -> None:
    assert text.sparkline([0, None, 4, 8]) == "▁ ▅█"
    assert text.sparkline([0, 0]) == "▁▁"


def test_a_count_agrees_with_its_noun() -> None:
    assert [text.counted(value, "block") for value in (0, 1, 1200, None)] == [
        "0 blocks",
        "1 block",
        "1,200 blocks",
        "- blocks",
    ]
