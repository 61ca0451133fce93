"""A line as the terminal gets it: told only what changes from one ink to the next."""

from collections.abc import Iterable

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

RESET = "\x1b[0m"


class InkStrip(Strip):
    """``written`` is what the Segments are in the terminal's sequences. Textual would say both colours of every Segment
    in full and look its Style up in a table: with a line of many inks twice the bytes, and most of a picture's time."""

    __slots__ = ("_written",)

    def __init__(self, segments: Iterable[Segment], cell_length: int, written: str) -> None:
        super().__init__(segments, cell_length)
        self._written = written

    def render(self, console: Console) -> str:
        return self._written


def sequence(before: Style | None, style: Style, system: ColorSystem) -> str:
    """What turns the terminal's pen from ``before`` (None: as after a reset) to ``style``; both have both colours."""
    if before is None:
        return f"\x1b[{Strip.render_ansi(style, system)}m"
    changed = [now for was, now in zip(_codes(before, system), _codes(style, system), strict=True) if was != now]
    return f"\x1b[{';'.join(changed)}m" if changed else ""


def _codes(style: Style, system: ColorSystem) -> list[str]:
    """Bold, reverse and the two colours, each as ECMA-48 (8.3.117, SGR) numbers it."""
    colours = [
        ";".join(colour.downgrade(system).get_ansi_codes(foreground=foreground))
        for colour, foreground in ((style.color, True), (style.bgcolor, False))
        if colour is not None
    ]
    return ["1" if style.bold else "22", "7" if style.reverse else "27", *colours]
