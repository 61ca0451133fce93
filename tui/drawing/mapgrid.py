"""The map's geometry: which blocks lie behind which cell of which row, and the rows as lines."""

from inferdbg import text
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Span, dim, line
from .blockmap import Cells, Indices, Order, Places, block_codes, fitting_zoom, lit_cells, ordering, row_line, squeezed

COLOURS_UP_TO = 4  # with more blocks to a cell, the colour of one of them says nothing
Key = tuple[bytes, bytes, int | None, int, int]


class MapGrid:
    """Laid out anew for every picture; a row that looks as before is the very same Line as before."""

    def __init__(self) -> None:
        self.blocks = self.cells = self.total_rows = 0
        self.columns = self.rows = self.zoom = self.gutter = self.cell_width = 1
        self._codes: Cells | None = None
        self._order: Indices | None = None
        self._place: dict[int, int] | None = None
        self._drawn: dict[int, tuple[Key, Line]] = {}

    def lay_out(
        self, snapshot: Snapshot, cache: KVCache, width: int, rows: int, zoom: int | None, order: Order
    ) -> None:
        """``zoom`` None: whatever shows all blocks in ``rows`` rows."""
        self.blocks, self.rows = cache.num_blocks, rows
        self.gutter = len(str(cache.num_blocks - 1)) + 2
        self.columns = max(8, (width - self.gutter) // 8 * 8)
        self.cell_width = 1
        if (
            self.blocks <= self.columns // 16 * 8 * rows and zoom is None
        ):  # a small pool: cells as wide as they are high
            self.columns, self.cell_width = self.columns // 16 * 8, 2
        fitting = fitting_zoom(self.blocks, self.columns * rows)
        self.zoom = fitting if zoom is None else min(zoom, fitting)
        self._order = ordering(cache, order, snapshot.mono_ns)
        codes = block_codes(cache, snapshot.mono_ns, colours=self.zoom <= COLOURS_UP_TO)
        self._codes = squeezed(codes if self._order is None else codes[self._order], self.zoom)
        self._place = None
        self.cells = len(self._codes)
        self.total_rows = -(-self.cells // self.columns)

    def lines(self, top: int, selected_block: int | None, lit: Request | None) -> list[Line]:
        """The rows from ``top`` on, as many as there is room for."""
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
                self.cell_width,
            )
            before = self._drawn.get(row)
            drawn[row] = (
                before if before is not None and before[0] == key else (key, self._row(row, codes, lit_here, key[2]))
            )
        self._drawn = drawn
        return [found for _, found in drawn.values()]

    def _row(self, row: int, codes: Cells, lit: Places | None, cursor: int | None) -> Line:
        label = Span(f"{row * self.columns * self.zoom:>{self.gutter - 1}} ", "label")
        return (label, *row_line(codes, lit, cursor, self.cell_width))

    def cell_text(self) -> str:
        return "1 block" if self.zoom == 1 else f"{text.count(self.zoom)} blocks"

    def scroll_text(self, top: int) -> Line:
        """Which rows are seen, when not all of them are."""
        if self.total_rows <= self.rows:
            return ()
        return line(dim("  rows "), f"{top + 1}–{min(self.total_rows, top + self.rows)}", dim(f" of {self.total_rows}"))

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

    def cell_under(self, x: int, row: int) -> int | None:
        """The cell in column ``x`` of the widget and ``row`` of the whole map; None when there is none."""
        column = (x - self.gutter) // self.cell_width
        cell = row * self.columns + column
        return cell if 0 <= column < self.columns and row >= 0 and cell < self.cells else None
