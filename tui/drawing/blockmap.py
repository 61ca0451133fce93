"""The block pool as cells: what stands in each block, squeezed to as many cells as there is room for, row by row.

A cell is one byte, the kind of block in the high half and one of twelve owner colours in the low half. Kinds are
ordered, so that the largest byte of the blocks behind a cell is the one to show: shared before used before cached
before free, and what was used in the last second before all others.
"""

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from inferdbg.facts.sections.kvcache import CACHED, RESERVED, USED, KVCache
from inferdbg.facts.window import SECOND

from ..ink import Line, Span

Cells: TypeAlias = npt.NDArray[np.uint8]
Indices: TypeAlias = npt.NDArray[np.intp]
Places: TypeAlias = npt.NDArray[np.int32]
Order = Literal["physical", "owner", "age"]

ORDERS: tuple[Order, ...] = ("physical", "owner", "age")
COLOURS = 12
_BLANK, _RESERVED, _SHARED, _HOT = 0, 0x01, 0x10, 0x20  # the last two are added to the code of a used block

GLYPHS = {0x1: "░", 0x2: "▒", 0x3: "█", 0x4: "▓", 0x5: "◆", 0x6: "◈"}
_INKS = {0x1: "free", 0x2: "cached", 0x3: "owner-{}", 0x4: "shared-{}", 0x5: "hot-{}", 0x6: "hot-{}"}
_MARKED = (0x5, 0x6)
LIT_GLYPHS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Places in a block table where a cell is one column wide; from the 63rd on ``+``."""


def _appearance(code: int) -> Span:
    kind, colour = code >> 4, code & 0xF
    if code == _RESERVED:
        return Span("·", "empty")
    return Span(GLYPHS.get(kind, " "), _INKS.get(kind, "empty").format(min(colour, COLOURS - 1)))


_APPEARANCE = tuple(_appearance(code) for code in range(256))


def block_codes(cache: KVCache, now_ns: int, *, colours: bool) -> Cells:
    """One byte a block; columns that are not known leave their part out. ``cache.state`` is there."""
    state = np.frombuffer(cache.state or b"", np.uint8)
    codes: Cells = (np.minimum(state, USED) + np.uint8(1)) << np.uint8(4)  # FREE, CACHED, USED are 0, 1, 2
    codes[state == RESERVED] = _RESERVED
    used = state == USED
    if cache.refcount is not None:
        codes += ((np.frombuffer(cache.refcount, np.uint16) > 1) & used).view(np.uint8) * np.uint8(_SHARED)
    if cache.last_used is not None:
        recent = np.frombuffer(cache.last_used, np.uint64) > max(0, now_ns - SECOND)
        codes += (recent & used).view(np.uint8) * np.uint8(_HOT)
    if colours and cache.owner is not None:
        owner = np.frombuffer(cache.owner, np.uint32)
        codes += (owner * 5 % COLOURS).astype(np.uint8) * used.view(np.uint8)
    return codes


def ordering(cache: KVCache, order: Order, now_ns: int) -> Indices | None:
    """Block numbers in the order they are drawn; None: physical. ``owner``: used blocks together by request, then
    cached, then free ones. ``age``: last used first, never used last."""
    if order == "owner" and cache.owner is not None and cache.state is not None:
        owner = np.frombuffer(cache.owner, np.uint32)
        state = np.frombuffer(cache.state, np.uint8)
        used = owner[state == USED]
        base = np.uint32(used.min()) if used.size else np.uint32(0)
        spread = int(used.max() - base) if used.size else 0
        wide = np.uint16 if spread < 0xFFFE else np.uint32  # 16 bits are sorted by radix, five times as fast
        last = np.iinfo(wide).max
        keys = np.where(state == USED, owner - base, np.where(state == CACHED, last - 1, last)).astype(wide)
        return np.argsort(keys, kind="stable")
    if order == "age" and cache.last_used is not None:
        last_used = np.frombuffer(cache.last_used, np.uint64)
        centiseconds = (np.uint64(now_ns) - np.minimum(last_used, np.uint64(now_ns))) // np.uint64(SECOND // 100)
        return np.argsort(np.minimum(centiseconds, 0xFFFF).astype(np.uint16), kind="stable")
    return None


def squeezed(codes: Cells, zoom: int) -> Cells:
    """``zoom`` (a power of two) neighbouring blocks to one cell: the largest code of them."""
    while zoom > 1:
        if len(codes) % 2:
            codes = np.append(codes, np.uint8(_BLANK))
        codes = np.maximum(codes[0::2], codes[1::2])
        zoom //= 2
    return codes


def fitting_zoom(blocks: int, cells: int) -> int:
    """The smallest power of two that squeezes all blocks into that many cells."""
    zoom = 1
    while -(-blocks // zoom) > max(1, cells):
        zoom *= 2
    return zoom


def lit_cells(table: memoryview, order: Indices | None, zoom: int, cells: int) -> Places:
    """For every cell the lowest place in the block table that lies in it, else -1."""
    found = np.full(cells, -1, np.int32)
    blocks = np.frombuffer(table, np.int32)
    blocks = blocks[(blocks >= 0) & (blocks < (cells * zoom if order is None else len(order)))]
    if order is not None:
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        blocks = place[blocks].astype(np.int32)
    at = blocks // zoom
    found[at[::-1]] = np.arange(len(blocks), dtype=np.int32)[::-1]
    return found


def row_line(codes: Cells, lit: Places | None, cursor: int | None, cell_width: int = 1, gap: int = 0) -> Line:
    """Cells of one row as inked text, ``gap`` columns between them: runs of the same look are one Span. With a lit
    request the others are dimmed; ``cursor`` is the column of the selected cell."""
    if lit is None and cursor is None:
        return _runs(codes, cell_width, gap)
    looks = [_cell(code, cell_width) for code in codes.tolist()]
    if lit is not None:
        looks = [_lit(look, place, cell_width) for look, place in zip(looks, lit.tolist(), strict=True)]
    if cursor is not None and 0 <= cursor < len(looks):
        looks[cursor] = Span(looks[cursor].text, "cursor")
    joined: list[Span] = []
    for look in looks:
        if joined and not gap and joined[-1].ink == look.ink:
            joined[-1] = Span(joined[-1].text + look.text, look.ink)
        else:
            joined.append(look)
            if gap:
                joined.append(Span(" " * gap))
    return tuple(joined)


def _cell(code: int, width: int) -> Span:
    """A cell filled with its glyph; one mark is enough where its ground has the colour."""
    glyph, ink = _APPEARANCE[code]
    return Span(glyph.center(width) if code >> 4 in _MARKED and width > 2 else glyph * width, ink)


def _lit(look: Span, place: int, cell_width: int) -> Span:
    if place < 0:
        return Span(look.text, "empty" if look.text.isspace() else "unlit")
    if cell_width > 1:
        return Span(f"{place % 100:02d}".center(cell_width), "lit-first" if place == 0 else "lit")
    glyph = LIT_GLYPHS[place] if place < len(LIT_GLYPHS) else "+"
    return Span(glyph, "lit-first" if place == 0 else "lit")


def _runs(codes: Cells, cell_width: int, gap: int) -> Line:
    edges = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    between = Span(" " * gap)
    spans: list[Span] = []
    for start, end, code in zip(edges, edges[1:], codes[edges[:-1]].tolist(), strict=False):
        glyphs, ink = _cell(code, cell_width)
        if gap:
            spans += [Span(glyphs, ink), between] * (end - start)
        else:
            spans.append(Span(glyphs * (end - start), ink))
    return tuple(spans)


def holders(tables: list[bytes], block: int) -> list[tuple[int, int]]:
    """Which tables contain the block: (index of the table, place in it)."""
    lengths = np.array([len(table) // 4 for table in tables], np.intp)
    ends = np.cumsum(lengths)
    hits = np.flatnonzero(np.frombuffer(b"".join(tables), np.int32) == block)
    which = np.searchsorted(ends, hits, side="right")
    return [(int(table), int(hit - (ends[table] - lengths[table]))) for table, hit in zip(which, hits, strict=True)]
