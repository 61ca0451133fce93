"""A widget that shows inked lines and draws only those again that changed."""

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from .ink import NOTHING, Line, Span, cells
from .theme import style_of


class LineView(Widget):
    """Inks get their colours from the theme. Component classes would do the same, but seventy of them in each widget
    take Textual longer to apply than all the rest of the start."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self._styles_by_ink: dict[str, Style] = {}

    def put(self, lines: Sequence[Line]) -> None:
        """Shows these lines instead of those before."""
        old, self.lines = self.lines, tuple(lines)
        changed = [y for y in range(max(len(old), len(lines))) if _line_at(old, y) != _line_at(lines, y)]
        if changed:
            self.refresh(*_bands(changed, self.size.width))

    def render_line(self, y: int) -> Strip:
        segments: list[Segment] = []
        length = 0
        for words, ink in _merged(_line_at(self.lines, y)):
            segments.append(Segment(words, self._style(ink)))
            length += cells(words)
        return Strip(segments, length).adjust_cell_length(self.size.width, self._style(""))

    def notify_style_update(self) -> None:
        self._styles_by_ink.clear()
        super().notify_style_update()

    def _style(self, ink: str) -> Style:
        style = self._styles_by_ink.get(ink)
        if style is None:
            style = style_of(ink, self.app.theme_variables, self.background_colors[1])
            self._styles_by_ink[ink] = style
        return style


def _line_at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if 0 <= y < len(lines) else NOTHING


def _merged(inked: Line) -> Iterator[Span]:
    """Neighbours in one ink as one: every change of ink costs time and bytes."""
    words, ink = "", ""
    for span in inked:
        if span.ink == ink:
            words += span.text
        elif span.text:
            if words:
                yield Span(words, ink)
            words, ink = span
    if words:
        yield Span(words, ink)


def _bands(rows: Sequence[int], width: int) -> list[Region]:
    """Neighbouring rows as one region each."""
    bands: list[Region] = []
    for row in rows:
        if bands and bands[-1].bottom == row:
            bands[-1] = Region(0, bands[-1].y, width, bands[-1].height + 1)
        else:
            bands.append(Region(0, row, width, 1))
    return bands
