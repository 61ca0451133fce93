"""Lines of inked text: what every drawing returns, whether a terminal, a picture or plain text shows it in the end."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from textwrap import wrap as wrap_words
from typing import NamedTuple, TypeAlias

_NARROW = re.compile(r"[\x20-\u02ff\u0391-\u03c9\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u2758-\u275a]*")
"""One column each, as rich would say too, which costs an import and more time."""


class Span(NamedTuple):
    """A piece of text in one ink, a name of theme.LOOKS; the empty name is plain text.

    ``text`` has no control characters: foreign text went through text.safe."""

    text: str
    ink: str = ""


Line: TypeAlias = tuple[Span, ...]
Piece: TypeAlias = "str | Span | Line"
NOTHING: Line = ()


def dim(text: str) -> Span:
    return Span(text, "dim")


def value(text: str) -> Span:
    return Span(text, "value")


def line(*pieces: Piece) -> Line:
    """One Line of strings (plain), Spans and Lines after each other."""
    spans: list[Span] = []
    for piece in pieces:
        if isinstance(piece, Span):
            spans.append(piece)
        elif isinstance(piece, str):
            spans.append(Span(piece))
        else:
            spans.extend(piece)
    return tuple(spans)


def cells(text: str) -> int:
    """Columns that the text takes in a terminal."""
    return len(text) if text.isascii() else _cells_beyond_ascii(text)


@lru_cache(maxsize=8192)
def _cells_beyond_ascii(text: str) -> int:
    if _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def width_of(inked: Line) -> int:
    return sum(cells(span.text) for span in inked)


def plain(inked: Line) -> str:
    """The text alone, without spaces at its end."""
    return "".join(span.text for span in inked).rstrip()


def crop(inked: Line, width: int) -> Line:
    """The Line, cut to ``width`` columns with an ellipsis where something was lost."""
    if width_of(inked) <= width:
        return inked
    kept: list[Span] = []
    left = width - 1
    for span in inked:
        taken = cells(span.text)
        if taken > left:
            kept.append(Span(crop_text(span.text, left + 1), span.ink))
            return tuple(kept)
        kept.append(span)
        left -= taken
    return tuple(kept)


def crop_text(text: str, width: int) -> str:
    """The text, cut to ``width`` columns with an ellipsis where something was lost."""
    if width <= 0:
        return ""
    if cells(text) <= width:
        return text
    kept = text[: width - 1]
    while cells(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…"


def fit(inked: Line, width: int) -> Line:
    """Exactly ``width`` columns: cut, or filled with spaces."""
    cut = crop(inked, width)
    missing = width - width_of(cut)
    return (*cut, Span(" " * missing)) if missing > 0 else cut


def fit_text(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly ``width`` columns, at the right edge of them if asked."""
    cut = crop_text(text, width)
    space = " " * (width - cells(cut))
    return space + cut if right else cut + space


def between(left: Line, right: Line, width: int) -> Line:
    """``left`` and ``right`` at the two edges; ``left`` is cut when both do not fit."""
    room = width - width_of(right)
    return (*fit(left, room), *right) if room > 0 else fit(right, width)


def flow(parts: Iterable[Piece], width: int, separator: str = "  ") -> list[Line]:
    """The parts after each other, going to the next line rather than being split."""
    lines: list[Line] = []
    current: list[Span] = []
    used = 0
    for part in parts:
        spans = line(part)
        taken = width_of(spans)
        if current and used + len(separator) + taken > width:
            lines.append(tuple(current))
            current, used = [], 0
        if current:
            current.append(Span(separator))
            used += len(separator)
        current.extend(crop(spans, width))
        used += taken
    if current:
        lines.append(tuple(current))
    return lines


def paragraph(text: str, width: int, ink: str = "") -> list[Line]:
    """Running text wrapped at words; a word longer than a line is broken."""
    return [(Span(crop_text(part, width), ink),) for part in wrap_words(text, max(width, 8))]


def labelled(label: str, lines: Sequence[Line], label_width: int, ink: str = "label") -> list[Line]:
    """The label before the first line, the others below it at the same edge."""
    return [
        (Span(fit_text(label if index == 0 else "", label_width), ink), *content) for index, content in enumerate(lines)
    ]


def boxed(title: Piece, lines: Sequence[Line], width: int, ink: str = "border") -> list[Line]:
    """A frame of ``width`` columns around the lines, its title in the upper edge."""
    head = crop(line(title), max(0, width - 6))
    rule = "─" * max(0, width - 5 - width_of(head))
    top = line(Span("╭─ ", ink), head, Span(f" {rule}╮", ink))
    body = [line(Span("│ ", ink), fit(content, width - 4), Span(" │", ink)) for content in lines]
    return [top, *body, (Span(f"╰{'─' * (width - 2)}╯", ink),)]


def beside(left: Sequence[Line], right: Sequence[Line], left_width: int, gap: str = " ") -> list[Line]:
    """Two columns of lines side by side, the shorter one continued with nothing."""
    rows = max(len(left), len(right))
    return [
        line(
            fit(left[row] if row < len(left) else NOTHING, left_width),
            gap,
            right[row] if row < len(right) else NOTHING,
        )
        for row in range(rows)
    ]


def stacked_bar(parts: Sequence[tuple[float, str, str]], total: float, width: int) -> Line:
    """A bar of ``width`` columns for ``total``: each part is (amount, glyph, ink), in order.

    Any part above zero gets a column as long as there is room, so that nothing small is invisible.
    """
    if total <= 0 or width <= 0:
        return (Span(" " * max(0, width)),)
    spans: list[Span] = []
    reached = 0.0
    filled = 0
    to_come = sum(amount > 0 for amount, _, _ in parts)
    kept_free = to_come <= width
    for amount, glyph, ink in parts:
        reached += amount
        to_come -= amount > 0
        edge = min(width - to_come if kept_free else width, round(reached / total * width))
        columns = max(edge - filled, 1 if amount > 0 and filled < width else 0)
        if columns > 0:
            spans.append(Span(glyph * columns, ink))
            filled += columns
    if filled < width:
        spans.append(Span(" " * (width - filled), "dim"))
    return tuple(spans)


def chart(values: Sequence[float | None], rows: int, ink: str = "") -> list[Line]:
    """A bar chart over several rows, one column a value, from 0 to the largest; a space where nothing is known."""
    bars = " ▁▂▃▄▅▆▇█"
    top = max((known for known in values if known is not None), default=0.0)
    drawn: list[Line] = []
    for row in range(rows - 1, -1, -1):
        text = ""
        for known in values:
            eighths = 0 if known is None or top <= 0 else round(known / top * rows * 8)
            if row == 0 and known is not None:
                eighths = max(eighths, 1)
            text += bars[min(8, max(0, eighths - row * 8))]
        drawn.append((Span(text, ink),))
    return drawn
