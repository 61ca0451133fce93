"""The map's geometry: which blocks lie behind which cell of which row, and the rows as lines."""

from typing import NamedTuple

from inferdbg import text
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.snapshot import Snapshot

from ..ink import NOTHING, Line, Span, dim, line
from .blockmap import Cells, Indices, Order, Places, block_codes, fitting_zoom, lit_cells, ordering, row_line, squeezed

COLOURS_UP_TO = 4  # with more blocks to a cell, the colour of one of them says nothing
Key = tuple[bytes, bytes, int | None, int, int, int]


class CellSize(NamedTuple):
    """In columns: of the cell and to the next one; in rows: to the next one."""

    width: int
    gap: int
    height: int


SIZES = (
    *(CellSize(9, 1, 2), CellSize(5, 1, 2), CellSize(3, 1, 2), CellSize(2, 1, 2)),
    *(CellSize(3, 1, 1), CellSize(2, 1, 1), CellSize(2, 0, 1), CellSize(1, 0, 1)),
)
"""Largest first: a small pool takes the first of them in which every block has a cell of its own."""


class MapGrid:
    """Laid out anew when blocks were read anew; a row that looks as before is the very same Line as before."""

    def __init__(self) -> None:
        self.blocks = self.cells = self.total_rows = 0
        self.columns = self.rows = self.zoom = self.gutter = 1
        self.size = SIZES[-1]
        self._codes: Cells | None = None
        self._order: Indices | None = None
        self._place: dict[int, int] | None = None
        self._drawn: dict[int, tuple[Key, Line]] = {}
        self._laid_out: tuple[bytes | None, tuple[object, ...]] = (None, ())

    def lay_out(
        self, snapshot: Snapshot, cache: KVCache, width: int, height: int, zoom: int | None, order: Order
    ) -> None:
        """``zoom`` None: whatever shows all blocks in ``height`` lines."""
        seen_ns = snapshot.mono_ns if cache.columns_ns is None else cache.columns_ns
        asked = (seen_ns, width, height, zoom, order)
        if self._laid_out[0] is cache.state and self._laid_out[1] == asked:
            return
        self._laid_out = (cache.state, asked)
        self.blocks = cache.num_blocks
        self.gutter = len(str(cache.num_blocks - 1)) + 2
        room = width - self.gutter
        self.size = next((size for size in SIZES if zoom in (None, 1) and self._fits(size, room, height)), SIZES[-1])
        self.columns, self.rows = _columns(self.size, room), _rows(self.size, height)
        fitting = fitting_zoom(self.blocks, self.columns * self.rows)
        self.zoom = fitting if zoom is None else min(zoom, fitting)
        self._order = ordering(cache, order, seen_ns)
        codes = block_codes(cache, seen_ns, colours=self.zoom <= COLOURS_UP_TO)
        self._codes = squeezed(codes if self._order is None else codes[self._order], self.zoom)
        self._place = None
        self.cells = len(self._codes)
        self.total_rows = -(-self.cells // self.columns)

    def _fits(self, size: CellSize, room: int, height: int) -> bool:
        return self.blocks <= _columns(size, room) * _rows(size, height)

    @property
    def height(self) -> int:
        """Lines that all of it takes."""
        return self.total_rows * self.size.height - self.size.height + 1

    def lines(self, top: int, selected_block: int | None, lit: Request | None) -> list[Line]:
        """The rows from ``top`` on, as many as there is room for, and what is between them."""
        if self._codes is None:
            return []
        places = lit_cells(lit.block_table(), self._order, self.zoom, self.cells) if lit is not None else None
        cursor_row, cursor = (
            divmod(self.cell_of(selected_block), self.columns) if selected_block is not None else (-1, -1)
        )
        drawn: dict[int, tuple[Key, Line]] = {}
        for row in range(top, min(self.total_rows, top + self.rows)):
            start, end = row * self.columns, (row + 1) * self.columns
            codes, lit_here = self._codes[start:end], None if places is None else places[start:end]
            key: Key = (
                codes.tobytes(),
                b"" if lit_here is None else lit_here.tobytes(),
                cursor if row == cursor_row else None,
                self.zoom,
                *self.size[:2],
            )
            before = self._drawn.get(row)
            drawn[row] = (
                before if before is not None and before[0] == key else (key, self._row(row, codes, lit_here, key[2]))
            )
        self._drawn = drawn
        between = [NOTHING] * (self.size.height - 1)
        return [found for _, row in drawn.values() for found in (row, *between)]

    def _row(self, row: int, codes: Cells, lit: Places | None, cursor: int | None) -> Line:
        label = Span(f"{row * self.columns * self.zoom:>{self.gutter - 1}} ", "label")
        return (label, *row_line(codes, lit, cursor, *self.size[:2]))

    def cell_text(self) -> str:
        return "1 block" if self.zoom == 1 else f"{text.count(self.zoom)} blocks"

    def scroll_text(self, top: int) -> Line:
        """Which rows are seen, when not all of them are."""
        if self.total_rows <= self.rows:
            return ()
        return line(dim("rows "), f"{top + 1}–{min(self.total_rows, top + self.rows)}", dim(f" of {self.total_rows}"))

    def cell_of(self, block: int) -> int:
        """The cell in which the block lies."""
        if self._order is None:
            return block // self.zoom
        if self._place is None:
            self._place = {number: place for place, number in enumerate(self._order.tolist())}
        return self._place[block] // self.zoom

    def blocks_of(self, cell: int) -> list[int]:
        """The blocks behind a cell, in order."""
        places = range(cell * self.zoom, min(self.blocks, (cell + 1) * self.zoom))
        return list(places) if self._order is None else [int(self._order[place]) for place in places]

    def block_at(self, cell: int) -> int:
        """The first block behind a cell."""
        return self.blocks_of(cell)[0]

    def cell_under(self, x: int, y: int, top: int) -> int | None:
        """The cell in that place of the picture, whose first row is ``top``; None when there is none."""
        column = (x - self.gutter) // (self.size.width + self.size.gap)
        cell = (top + y // self.size.height) * self.columns + column
        return (
            cell
            if 0 <= column < self.columns and 0 <= y // self.size.height < self.rows and cell < self.cells
            else None
        )


def _columns(size: CellSize, room: int) -> int:
    """A multiple of eight, so that the numbers before the rows are easy to go on from."""
    return max(8, (room + size.gap) // (size.width + size.gap) // 8 * 8)


def _rows(size: CellSize, height: int) -> int:
    return max(1, (height + size.height - 1) // size.height)
