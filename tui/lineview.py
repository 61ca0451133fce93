"""A widget that shows inked lines and draws only those again that changed."""

from collections.abc import Sequence

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from .ink import NOTHING, Line, cells
from .inkstrip import RESET, InkStrip, sequence
from .theme import style_of

_MOST_DRAWN = 500
"""Lines of some pictures."""


class LineView(Widget):
    """Inks get their colours from the theme. Component classes would do the same, but seventy of them in each widget
    take Textual longer to apply than all the rest of the start.

    It has no border, padding or opacity: what Textual would look up of these for every line of every picture is left
    out, and a line that did not change is kept as it is.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._strips: dict[int, Strip] = {}
        self._drawn: dict[Line, Strip] = {}
        self._drawn_width = 0
        self._styles_by_ink: dict[str, Style] = {}
        self._sequences: dict[tuple[str | None, str], str] = {}

    def put(self, lines: Sequence[Line]) -> None:
        """Shows these lines instead of those before."""
        old, self.lines = self.lines, tuple(lines)
        changed = [y for y in range(max(len(old), len(lines))) if _line_at(old, y) != _line_at(lines, y)]
        for y in changed:
            self._strips.pop(y, None)
        if len(self._drawn) > _MOST_DRAWN:
            self._drawn.clear()
        if changed:
            self.refresh(*_bands(changed, self.size.width))

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        if width != self._drawn_width:
            self._forget()
            self._drawn_width = width
        strips = [self._strips.get(y) or self.render_line(y) for y in range(crop.y, crop.bottom)]
        return strips if crop.column_span == (0, width) else [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Of lines that moved up or down, too, the strip is there already."""
        inked = _line_at(self.lines, y)
        strip = self._drawn.get(inked)
        if strip is None:
            strip = self._drawn[inked] = self._draw(inked)
        self._strips[y] = strip
        return strip

    def _draw(self, inked: Line) -> Strip:
        segments: list[Segment] = []
        written: list[str] = []
        length, words, ink, before = 0, "", "", None
        for more, next_ink in (*inked, ("", None)):
            if next_ink == ink or (not more and next_ink is not None):
                words += more
                continue
            if words:  # neighbours in one ink are one: every change of ink costs time and bytes
                segments.append(Segment(words, self._style(ink)))
                written += (self._sequence(before, ink), words)
                length += cells(words)
                before = ink
            words, ink = more, next_ink or ""
        missing = self.size.width - length
        if missing > 0:
            segments.append(Segment(" " * missing, self._style("")))
            written += (self._sequence(before, ""), " " * missing)
        written.append(RESET)
        strip: Strip = InkStrip(segments, length + max(0, missing), "".join(written))
        for line_filter in self.get_line_filters():  # NO_COLOR is one; our colours are true ones already
            if not isinstance(line_filter, ANSIToTruecolor):
                strip = strip.apply_filter(line_filter, self.background_colors[1])
        return strip.crop(0, self.size.width) if missing < 0 else strip

    def _forget(self) -> None:
        self._strips.clear()
        self._drawn.clear()

    def notify_style_update(self) -> None:
        self._forget()
        self._styles_by_ink.clear()
        self._sequences.clear()
        super().notify_style_update()

    def _style(self, ink: str) -> Style:
        style = self._styles_by_ink.get(ink)
        if style is None:
            style = style_of(ink, self.app.theme_variables, self.background_colors[1])
            self._styles_by_ink[ink] = style
        return style

    def _sequence(self, before: str | None, ink: str) -> str:
        found = self._sequences.get((before, ink))
        if found is None:
            system = self.app.console._color_system or ColorSystem.TRUECOLOR
            found = sequence(None if before is None else self._style(before), self._style(ink), system)
            self._sequences[before, ink] = found
        return found


def _line_at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if 0 <= y < len(lines) else NOTHING


def _bands(rows: Sequence[int], width: int) -> list[Region]:
    """Neighbouring rows as one region each."""
    bands: list[Region] = []
    for row in rows:
        if bands and bands[-1].bottom == row:
            bands[-1] = Region(0, bands[-1].y, width, bands[-1].height + 1)
        else:
            bands.append(Region(0, row, width, 1))
    return bands
