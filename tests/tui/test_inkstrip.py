"""What a line tells the terminal is what its inks mean, in true colours and in sixteen."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from textual.color import Color
from textual.strip import Strip

from inferdbg.tui.inkstrip import sequence
from inferdbg.tui.theme import LOOKS, THEME, style_of

COLOURS = {**THEME.to_color_system().generate(), **THEME.variables}
STYLES = {ink: style_of(ink, COLOURS, Color.parse("#0f1318")) for ink in LOOKS}


def pen(written: str) -> dict[str, str]:
    """The state of a terminal's pen after these sequences, as a terminal would read them."""
    state: dict[str, str] = {}
    for codes in re.findall(r"\x1b\[([\d;]*)m", written):
        numbers = codes.split(";")
        while numbers:
            code = numbers.pop(0)
            if code in ("38", "48"):
                count = 4 if numbers[0] == "2" else 2
                state["fore" if code == "38" else "back"] = ";".join(numbers[:count])
                del numbers[:count]
            elif code in ("1", "7"):
                state[code] = "on"
            elif code in ("22", "27"):
                state.pop(code[-1].replace("2", "1"), None)
            else:
                assert 30 <= int(code) <= 37 or 40 <= int(code) <= 47 or 90 <= int(code) <= 107
                state["fore" if code[0] == "3" or (code[0] == "9" and len(code) == 2) else "back"] = code
    return state


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD])
@given(st.lists(st.sampled_from(sorted(LOOKS)), min_size=1, max_size=8))
def test_the_pen_is_in_the_ink_it_was_turned_to_whatever_ink_was_before(system: ColorSystem, inks: list[str]) -> None:
    written, before = "", None
    for ink in inks:
        written += sequence(before, STYLES[ink], system)
        before = STYLES[ink]
        assert pen(written) == pen(f"\x1b[{Strip.render_ansi(before, system)}m")


def test_what_stays_is_not_said_again() -> None:
    assert sequence(STYLES["dim"], STYLES["dim"], ColorSystem.TRUECOLOR) == ""
    assert sequence(STYLES[""], STYLES["value"], ColorSystem.TRUECOLOR) == "\x1b[1m"
