"""A widget that shows inked lines and draws only those again that changed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, ClassVar

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from .ink import NOTHING, Line, cells, crop
from .inkstrip import RESET, InkStrip, sequence
from .theme import style_of

_MOST_DRAWN = 128
"""Lines of a view that are kept as drawn: some pictures."""


class _Rows(CompositorUpdate):
    """Lines of several views as the terminal gets them, each with its place."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def render_segments(self, console: Console) -> str:
        return "".join(self.written)


class LineView(Widget):
    """Inks get their colours from the theme. Component classes would do the same, but seventy of them in each widget
    take Textual longer to apply than all the rest of the start.

    It has no border, padding or opacity: what Textual would look up of these for every line of every picture is left
    out, and a line that did not change is kept as it is.
    """

    rows: ClassVar[_Rows | None] = None
    """Where changed lines go while they are ``drawn_at_once``."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._strips: dict[Line, Strip] = {}
        self._written: dict[Line, str] = {}
        self._drawn_width = 0
        self._styles_by_ink: dict[str, Style] = {}
        self._sequences: dict[tuple[str | None, str], str] = {}

    def put(self, lines: Sequence[Line]) -> None:
        """Shows these lines instead of those before."""
        old, self.lines = self.lines, tuple(lines)
        pairs = zip_longest(old, self.lines, fillvalue=NOTHING)
        changed = [y for y, (was, now) in enumerate(pairs) if was is not now and was != now]
        if not changed:
            return
        region = self.region
        if LineView.rows is None:
            self.refresh(*_bands(changed, region.width))
            return
        self._fits(region.width)
        LineView.rows.written += [
            f"\x1b[{region.y + y + 1};{region.x + 1}H{self._as_written(_line_at(self.lines, y))}"
            for y in changed
            if y < region.height
        ]

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        self._fits(width)
        strips = [self.render_line(y) for y in range(crop.y, crop.bottom)]
        return strips if crop.column_span == (0, width) else [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Of lines that moved up or down, too, the strip is there already."""
        inked = _line_at(self.lines, y)
        strip = self._strips.get(inked)
        if strip is None:
            strip = self._strips[inked] = self._strip(inked)
        return strip

    def _strip(self, inked: Line) -> Strip:
        segments = [Segment(words, self._style(ink)) for words, ink in self._runs(inked)]
        strip: Strip = InkStrip(segments, sum(cells(segment.text) for segment in segments), self._as_written(inked))
        for line_filter in _filters(self.app):
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return strip

    def _as_written(self, inked: Line) -> str:
        """The line in the terminal's sequences."""
        row = self._written.get(inked)
        if row is None:
            before: str | None = None
            written = ""
            for words, ink in self._runs(inked):
                written += self._sequence(before, ink) + words
                before = ink
            row = self._written[inked] = written + RESET
        return row

    def _runs(self, inked: Line) -> list[tuple[str, str]]:
        """Neighbours in one ink as one, for every change of ink costs time and bytes; together as wide as the view."""
        runs: list[tuple[str, str]] = []
        length, words, ink = 0, "", ""
        for more, next_ink in inked:
            if next_ink == ink or not more:
                words += more
                continue
            if words:
                runs.append((words, ink))
                length += cells(words)
            words, ink = more, next_ink
        missing = self._drawn_width - length - cells(words)
        if missing < 0:
            return self._runs(crop(inked, self._drawn_width))
        if ink:
            runs.append((words, ink))
            words = ""
        if words or missing > 0:
            runs.append((words + " " * missing, ""))
        return runs

    def _fits(self, width: int) -> None:
        """What was drawn for another width is no more; of what no picture has any more not too much is kept."""
        if width != self._drawn_width or len(self._written) > _MOST_DRAWN or len(self._strips) > _MOST_DRAWN:
            self._strips.clear()
            self._written.clear()
            self._drawn_width = width

    def notify_style_update(self) -> None:
        self._drawn_width = 0
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


@contextmanager
def drawn_at_once(app: App[Any]) -> Iterator[None]:
    """Lines that views are given meanwhile go to the terminal together and at once. Textual would find out for every
    picture what lies over what, and wake up once more to draw it; where nothing can lie over a view, and everything
    has its place, there is nothing to find out."""
    if len(app.screen_stack) > 1 or app.screen._layout_required or app.is_headless or any(_filters(app)):
        yield
        return
    LineView.rows = rows = _Rows()
    try:
        yield
    finally:
        LineView.rows = None
    if rows.written:
        app._display(app.screen, rows)  # type: ignore[arg-type]  # as Screen calls it, too


def _filters(app: App[Any]) -> Iterator[LineFilter]:
    """That change colours: NO_COLOR is one. Ours are true ones already."""
    return (one for one in app.get_line_filters() if not isinstance(one, ANSIToTruecolor))


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
