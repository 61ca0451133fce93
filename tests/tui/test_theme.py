"""Colours that stay apart where a terminal has few."""

from rich.color import Color, ColorSystem

from inferdbg.tui.theme import LOOKS, THEME


def ansi(colour: str | None) -> int | None:
    assert colour is not None
    return Color.parse(colour).downgrade(ColorSystem.STANDARD).number


def test_owners_stay_apart_with_sixteen_colours() -> None:
    owners = [colour for name, colour in THEME.variables.items() if name.startswith("owner-")]
    assert len({ansi(colour) for colour in owners}) == len(owners) == 12


def test_good_slow_and_stuck_stay_apart_with_sixteen_colours() -> None:
    assert len({ansi(THEME.success), ansi(THEME.warning), ansi(THEME.error), ansi(THEME.foreground)}) == 4


def test_every_look_names_colours_of_the_theme() -> None:
    known = {
        "foreground",
        "background",
        "primary",
        "secondary",
        "accent",
        "success",
        "warning",
        "error",
        *THEME.variables,
    }
    assert {look.colour for look in LOOKS.values()} | {look.on for look in LOOKS.values() if look.on} <= known
