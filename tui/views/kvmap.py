"""Who holds what: one cell a block of the KV cache, or as many blocks to a cell as it takes to show all of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType

from inferdbg import text
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.snapshot import Snapshot

from ..drawing.blocks import block_lines, cell_lines
from ..drawing.cache import block_bar
from ..drawing.holdings import holder_lines, pool_lines
from ..drawing.marks import mark, missing
from ..drawing.names import names_of
from ..drawing.prefixes import prefix_lines
from ..drawing.request import request_lines
from ..frame import Frame
from ..ink import NOTHING, Line, Span, beside, boxed, dim, flow, line, stacked_bar, value
from ..view import View, bound

if TYPE_CHECKING:
    from ..drawing.blockmap import Order
    from ..drawing.mapgrid import MapGrid

PANEL, TALLEST_PANEL = 7, 12
BOTH_PANELS = 100


class KVMap(View):
    title = "KV map"
    about = "who holds which block of the KV cache"
    finds = "a block number or a request"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("kvmap.left", "left", "move(-1, 0)", "block", "Select the block to the left", shown="←↑↓→"),
        bound("kvmap.right", "right", "move(1, 0)", "block to the right"),
        bound("kvmap.up", "up", "move(0, -1)", "block above"),
        bound("kvmap.down", "down", "move(0, 1)", "block below"),
        bound("kvmap.page-up", "pageup", "page(-1)", "a page up", "Scroll the map up"),
        bound("kvmap.page-down", "pagedown", "page(1)", "a page down", "Scroll the map down"),
        bound("kvmap.next", "n", "request(1)", "request", "Light the blocks of the next request", shown="n p"),
        bound("kvmap.previous", "p", "request(-1)", "request before", "Light the blocks of the previous request"),
        bound("kvmap.owner", "enter", "owner", "owner's blocks", "Light the blocks of the selected block's owner"),
        bound("kvmap.in", "plus,equals_sign", "zoom(-1)", "zoom", "Fewer blocks to a cell", shown="+ -"),
        bound("kvmap.out", "minus", "zoom(1)", "zoom out", "More blocks to a cell"),
        bound("kvmap.order", "o", "order", "order", "Cells by block number, by owner, by age", shown="o"),
        bound("kvmap.clear", "escape", "clear", "nothing selected", "Deselect block and request"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selected_block: int | None = None
        self.lit_request: int | None = None
        self.zoom: int | None = None
        self.top = 0
        self.order: Order = "physical"
        self._last_panel = "block"
        self._panel, self._grid_top = PANEL, 0
        self._grid: MapGrid | None = None

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        snapshot = frame.window.now
        cache = snapshot.kvcache
        if cache is None:
            told = prefix_lines(frame.window, width)
            return [NOTHING, *(told or missing(snapshot, "kvcache", width - 1, "the KV cache"))][:height]
        head = self._head(snapshot, cache, width)
        if not cache.state or not cache.num_blocks:
            unseen = line(dim(" this source knows how many blocks there are, but not what is in each"))
            return [*head, NOTHING, unseen, NOTHING, *prefix_lines(frame.window, width)][:height]
        rows = max(1, height - len(head) - PANEL)
        grid = self._laid_out(snapshot, cache, width, rows)
        self._panel = min(TALLEST_PANEL, PANEL + max(0, rows - grid.height - 1))
        rows -= self._panel - PANEL
        lit = names_of(snapshot).request(self.lit_request) if self.lit_request is not None else None
        self._grid_top = len(head)
        cells = grid.lines(self.top, self.selected_block, lit)
        layout = [line(dim("one cell "), grid.cell_text()), line(dim("order "), self.order)]
        if cache.columns_ns is not None:
            layout.append(line(dim("read each second")))
        scrolled = grid.scroll_text(self.top)
        head[0] = flow([head[0], *layout, *([scrolled] if scrolled else [])], width)[0]
        return [*head, *cells, *[NOTHING] * (rows - len(cells)), *self._panels(snapshot, cache, width)][:height]

    def _laid_out(self, snapshot: Snapshot, cache: KVCache, width: int, rows: int) -> "MapGrid":
        from ..drawing.mapgrid import MapGrid  # numpy, which the first picture of the program does not need

        grid = self._grid = self._grid or MapGrid()
        grid.lay_out(snapshot, cache, width, rows, self.zoom, self.order)
        if self.selected_block is not None and self.selected_block >= grid.blocks:
            self.selected_block = None
        self.top = min(max(0, self.top), max(0, grid.total_rows - grid.rows))
        return grid

    def _head(self, snapshot: Snapshot, cache: KVCache, width: int) -> list[Line]:
        found = mark(cache.origin, snapshot.mono_ns)
        pool = line(" ", value(text.count(cache.num_blocks)), found, dim(f" blocks × {cache.block_size} tokens"))
        shared = cache.shared_blocks or 0
        only = None if cache.used_blocks is None else cache.used_blocks - shared
        legend = [
            line(Span("░", "free"), dim(" free "), text.count(cache.free_blocks)),
            line(Span("▒", "cached"), dim(" cached "), text.count(cache.cached_blocks)),
            line(Span("█", "used"), dim(" used "), text.count(only)),
            line(Span("▓", "shared"), dim(" shared "), text.count(cache.shared_blocks)),
            line(Span("◆", "hot"), dim(" last second, "), Span("◈", "hot"), dim(" shared")),
        ]
        return [pool, *[line(" ", found) for found in flow(legend, width - 1)], self._occupancy(cache, width)]

    def _occupancy(self, cache: KVCache, width: int) -> Line:
        """Blocks in use beside the tokens in them, both of the whole pool."""
        bar = max(8, (width - 34) // 2)
        share = cache.used_blocks / cache.num_blocks if cache.used_blocks is not None and cache.num_blocks else None
        room = cache.num_blocks * cache.block_size
        tokens = cache.tokens / room if cache.tokens is not None and room else None
        token_bar = stacked_bar([(tokens or 0, "█", "used"), (1 - (tokens or 0), "░", "free")], 1, bar)
        return line(
            dim(" blocks "), block_bar(cache, bar), f" {text.percent(share):>5}",
            dim("  tokens "), token_bar, f" {text.percent(tokens):>5}",
        )  # fmt: skip

    def _panels(self, snapshot: Snapshot, cache: KVCache, width: int) -> list[Line]:
        if width < BOTH_PANELS:
            if self._last_panel == "block" and self.selected_block is not None:
                return self._block_panel(self.selected_block, snapshot, cache, width)
            if self.lit_request is not None:
                return self._request_panel(self.lit_request, snapshot, cache, width)
            return self._holders_panel(snapshot, cache, width, "arrows select a block, n a request")
        half = width // 2
        if self.selected_block is not None:
            left = self._block_panel(self.selected_block, snapshot, cache, half)
        else:
            left = self._pool_panel(snapshot, cache, half)
        if self.lit_request is not None:
            right = self._request_panel(self.lit_request, snapshot, cache, width - half)
        else:
            right = self._holders_panel(snapshot, cache, width - half, "n and p light one's blocks")
        return beside(left, right, half, "")

    def _pool_panel(self, snapshot: Snapshot, cache: KVCache, width: int) -> list[Line]:
        title = line("pool", dim("  arrows or mouse select a block, / finds one"))
        return self._framed(title, pool_lines(snapshot, cache, width - 4), width)

    def _holders_panel(self, snapshot: Snapshot, cache: KVCache, width: int, hint: str) -> list[Line]:
        if snapshot.requests is None:
            return self._framed("request", missing(snapshot, "requests", width - 4, "requests"), width)
        title = line("who holds most", dim(f"  {hint}"))
        return self._framed(title, holder_lines(snapshot.requests, cache.num_blocks, width - 4, self._panel - 2), width)

    def _block_panel(self, block: int, snapshot: Snapshot, cache: KVCache, width: int) -> list[Line]:
        title = f"block {block}"
        lines = block_lines(snapshot, block, width - 4, self._panel - 2)
        behind = self._grid.blocks_of(self._grid.cell_of(block)) if self._grid is not None else []
        if len(behind) > 1:
            title += f" · the first of {len(behind)} in its cell"
            lines[4:] = cell_lines(cache, behind, width - 4)
        return self._framed(title, lines, width)

    def _request_panel(self, number: int, snapshot: Snapshot, cache: KVCache, width: int) -> list[Line]:
        names = names_of(snapshot)
        request = names.request(number)
        if request is None:
            return self._holders_panel(snapshot, cache, width, f"request #{number} is gone, n lights another")
        title = line(f"request {names(number, 32)} ", dim("in table order"))
        return self._framed(title, request_lines(snapshot, request, width - 4, self._panel - 2), width)

    def action_move(self, columns: int, rows: int) -> None:
        grid = self._grid
        if grid is None or grid.cells == 0:
            return
        if self.selected_block is None:
            self._select(grid.block_at(self.top * grid.columns))
            return
        cell = grid.cell_of(self.selected_block) + columns + rows * grid.columns
        if 0 <= cell < grid.cells:
            self._select(grid.block_at(cell))

    def action_page(self, pages: int) -> None:
        if self._grid is not None:
            self.top += pages * max(1, self._grid.rows - 1)
            self.redraw()

    def action_zoom(self, steps: int) -> None:
        if self._grid is None:
            return
        self.zoom = max(1, self._grid.zoom * 2 if steps > 0 else self._grid.zoom // 2)
        self.redraw()
        if self.selected_block is not None:
            self._select(self.selected_block)

    def action_order(self) -> None:
        from ..drawing.blockmap import ORDERS

        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self.redraw()

    def action_request(self, step: int) -> None:
        items = self._snapshot_requests()
        if not items:
            return
        numbers = [request.number for request in items if request.blocks] or [request.number for request in items]
        at = numbers.index(self.lit_request) + step if self.lit_request in numbers else (0 if step > 0 else -1)
        self.show_request(numbers[at % len(numbers)])

    def action_owner(self) -> None:
        from ..drawing.blocks import column

        cache = self.frame.window.now.kvcache if self.frame is not None else None
        if cache is not None and self.selected_block is not None:
            owner = column(cache, "owner", self.selected_block)
            if owner:
                self.show_request(owner)

    def action_clear(self) -> None:
        self.selected_block = self.lit_request = None
        self._last_panel = "block"
        self.redraw()

    def show_request(self, number: int) -> None:
        self.lit_request = number
        self._last_panel = "request"
        self.redraw()

    def find(self, wanted: str) -> str:
        if not wanted:
            return ""
        cache = self.frame.window.now.kvcache if self.frame is not None else None
        if self.frame is None or cache is None:
            return "there is no KV cache to look in"
        if wanted.isdecimal() and int(wanted) < cache.num_blocks:
            self._select(int(wanted))
            return ""
        names = names_of(self.frame.window.now)
        for request in self._snapshot_requests():
            if wanted in request.id or wanted in (f"#{request.number}", names(request.number)):
                self.show_request(request.number)
                return ""
        return f"no block and no request is called {text.safe(wanted, 40)}"

    def on_click(self, event: events.Click) -> None:
        grid = self._grid
        if grid is not None:
            cell = grid.cell_under(event.x, event.y - self._grid_top, self.top)
            if cell is not None:
                self._select(grid.block_at(cell))

    def _select(self, block: int) -> None:
        self.selected_block = block
        self._last_panel = "block"
        if self._grid is not None:
            row = self._grid.cell_of(block) // self._grid.columns
            self.top = min(max(self.top, row - self._grid.rows + 1), row)
        self.redraw()

    def _snapshot_requests(self) -> tuple[Request, ...]:
        requests = self.frame.window.now.requests if self.frame is not None else None
        return requests.items if requests is not None else ()

    def _framed(self, title: str | Line, lines: Sequence[Line], width: int) -> list[Line]:
        inner = self._panel - 2
        return boxed(title, [*lines[:inner], *[NOTHING] * (inner - len(lines))], width)
