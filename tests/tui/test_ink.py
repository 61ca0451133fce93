"""Lines keep the width they are told, whatever stands in them."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from inferdbg.tui.ink import Line, Span, cells, chart, crop, fit, flow, line, plain, stacked_bar, width_of
from inferdbg.tui.theme import LOOKS

TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Mn", "Me")), max_size=30)
LINES = st.lists(st.builds(Span, TEXT, st.sampled_from(sorted(LOOKS))), max_size=6).map(tuple)


@given(TEXT)
def test_cells_are_those_of_rich(text: str) -> None:
    assert cells(text) == cell_len(text)


@given(LINES, st.integers(1, 60))
def test_fit_is_exactly_as_wide_as_told(inked: Line, width: int) -> None:
    assert width_of(fit(inked, width)) == width
    assert width_of(crop(inked, width)) <= width


@given(st.lists(LINES, max_size=8), st.integers(8, 60))
def test_flow_loses_no_part_and_is_never_too_wide(parts: list[Line], width: int) -> None:
    lines = flow(parts, width, " · ")
    assert all(width_of(found) <= width for found in lines)
    short = [part for part in parts if width_of(part) <= width]
    said = "\n".join("".join(span.text for span in found) for found in lines)
    assert all("".join(span.text for span in part) in said for part in short)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(1, 100))
def test_a_stacked_bar_is_as_wide_as_told_and_hides_nothing_while_there_is_room(amounts: list[int], width: int) -> None:
    bar = stacked_bar([(amount, "█", "used") for amount in amounts], sum(amounts), width)
    assert width_of(bar) == width
    if sum(amounts) and width >= len(amounts):
        assert sum(span.ink == "used" for span in bar) == sum(amount > 0 for amount in amounts)


def test_a_chart_shows_the_largest_value_full_and_the_unknown_as_nothing() -> None:
    rows = [plain(row) for row in chart([None, 1.0, 4.0], 2)]
    assert rows == ["  █", " ▄█"]


def test_line_joins_strings_spans_and_lines() -> None:
    assert line("a", Span("b", "dim"), (Span("c"),)) == (Span("a"), Span("b", "dim"), Span("c"))
