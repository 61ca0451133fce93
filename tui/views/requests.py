"""Every request, sorted by any column: how far it is, what it holds, and what it waits for."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from inferdbg import text
from inferdbg.facts.sections import requests
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.snapshot import Snapshot

from ..drawing.marks import mark, missing
from ..drawing.names import names_of
from ..drawing.request import read_ns, request_lines
from ..drawing.request_table import COLUMNS, Column, fitting, heading, matches, row
from ..drawing.talkers import offered, talker_lines
from ..frame import Frame
from ..ink import NOTHING, Line, Span, boxed, dim, line
from ..view import View, bound

PANEL = 6


class Requests(View):
    title = "requests"
    about = "every request, how far it is and what it waits for"
    finds = "part of a name, a stage or a reason"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("requests.up", "up", "move(-1)", "select", "Select the request above", shown="↑↓"),
        bound("requests.down", "down", "move(1)", "request below"),
        bound("requests.page-up", "pageup", "page(-1)", "a page up"),
        bound("requests.page-down", "pagedown", "page(1)", "a page down"),
        bound("requests.jump", "enter", "jump", "its blocks", "Show its blocks in the KV map", shown="enter"),
        bound("requests.sort", "s", "sort(1)", "sort", "Sort by the next column; so does a click on it", shown="s"),
        bound("requests.sort-back", "S", "sort(-1)", "sort by the column before"),
        bound("requests.reverse", "r", "reverse", "reverse", "Turn the order around", shown="r"),
        bound("requests.group", "g", "group", "talkers", "Add them up by prefix, adapter, client, length", shown="g"),
        bound("requests.clear", "escape", "clear", "all requests", "Drop the filter and the selection"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selected: int | None = None
        self.top = 0
        self.sort: Column = COLUMNS[0]
        self.reverse = False
        self.wanted = ""
        self.by = ""
        """What the requests are added up by; empty when each has its own line."""
        self._last_row: tuple[Snapshot, Request] | None = None  # of the selected one
        self._shown: list[Request] = []
        self._columns: list[tuple[Column, int]] = []
        self._rows = 1
        self._lines: list[Line] = []
        self._drawn_of: requests.Requests | None = None
        self._drawn_as: tuple[object, ...] = ()

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        snapshot = frame.window.now
        if snapshot.requests is None:
            return [NOTHING, *missing(snapshot, "requests", width - 1, "requests")]
        if snapshot.requests is not self._drawn_of or self._drawn_as != self._asked(width, height):
            self._lines = self._draw(snapshot, snapshot.requests.items, width, height - 1)
            self._drawn_of, self._drawn_as = snapshot.requests, self._asked(width, height)
        return [self._summary(snapshot, snapshot.requests), *self._lines][:height]

    def _asked(self, width: int, height: int) -> tuple[object, ...]:
        """What a picture depends on beside the requests, which of a large pool are read once a second."""
        return width, height, self.selected, self.top, self.sort, self.reverse, self.wanted, self.by

    def _draw(self, snapshot: Snapshot, requests: Sequence[Request], width: int, height: int) -> list[Line]:
        if self.by:
            return talker_lines(snapshot, self.by, width, height)
        names, now_ns = names_of(snapshot), read_ns(snapshot)
        items = [r for r in requests if matches(r, self.wanted, names)]
        self._shown = sorted(items, key=lambda request: self.sort.sort_key(request, now_ns), reverse=self.reverse)
        panel = self._panel(snapshot, width) if height >= 13 else []
        self._rows = max(1, height - 1 - len(panel))
        self._follow_selection()
        self._columns = fitting(width - 1)
        rows = [
            row(request, self._columns, now_ns, names, selected=request.number == self.selected)
            for request in self._shown[self.top : self.top + self._rows]
        ]
        if not rows:
            rows = [(dim(f"  {self._empty(snapshot)}"),)]
        rows += [NOTHING] * (self._rows - len(rows))
        return [heading(self._columns, self.sort, self.reverse), *rows, *panel]

    def _summary(self, snapshot: Snapshot, found: requests.Requests) -> Line:
        """Above the picture, and of now: it says when the requests are of long ago."""
        stages = [request.stage for request in found.items]
        spans: list[Span] = [Span(f" {text.counted(len(stages), 'request')}", "value")]
        spans.append(mark(found.origin, snapshot.mono_ns))
        for stage in ("decode", "prefill", "waiting", "preempted", "finished"):
            if stage in stages:
                spans.append(dim(f" · {stages.count(stage)} {stage}"))
        if snapshot.kvcache is not None and snapshot.kvcache.columns_ns is not None:
            spans.append(dim(" · read each second"))
        if self.by:
            return tuple(spans)
        if self.wanted:
            spans += [dim(" · showing "), Span(f"{len(self._shown)} with “{self.wanted}”", "accent")]
        if len(self._shown) > self._rows:
            spans.append(dim(f" · {self.top + 1}–{min(len(self._shown), self.top + self._rows)}"))
        return tuple(spans)

    def _empty(self, snapshot: Snapshot) -> str:
        if self.wanted and snapshot.requests is not None and snapshot.requests.items:
            return "none matches: escape shows all"
        return "the engine has no request"

    def _panel(self, snapshot: Snapshot, width: int) -> list[Line]:
        """Of the selected request; while none is, of the oldest that is shown and not finished."""
        said = "all are finished" if self._shown else ""
        hint = ""
        if self.selected is None:
            going = (request for request in self._shown if request.stage != "finished")
            request = min(going, key=lambda request: request.number, default=None)
            hint = " the oldest; up and down select"
        else:
            request = names_of(snapshot).request(self.selected)
            said = f"request #{self.selected} is gone"
            if request is not None:
                self._last_row = snapshot, request
            elif self._last_row is not None and self._last_row[1].number == self.selected:
                return self._panel_of_ended(snapshot, *self._last_row, width)
        title: Line = line("request")
        lines: list[Line] = [(dim(said),)]
        if request is not None:
            lines = request_lines(snapshot, request, width - 4, PANEL - 2)
            title = line(f"request {names_of(snapshot)(request.number, 60)}", dim(hint))
        return boxed(title, [*lines, *[NOTHING] * (PANEL - 2 - len(lines))], width)

    def _panel_of_ended(self, snapshot: Snapshot, then: Snapshot, request: Request, width: int) -> list[Line]:
        """A request that was selected stays as it was when it was last seen, or is not there yet in the past."""
        title = line(f"request {names_of(then)(request.number, 60)}")
        before_ns = snapshot.mono_ns - then.mono_ns
        if before_ns <= 0:
            return boxed(title, [(dim("is not there at this moment"),), *[NOTHING] * (PANEL - 3)], width)
        lines = request_lines(then, request, width - 4, PANEL - 2)
        title = line(title, " ended", dim(f"; last seen {text.duration(before_ns)} ago, as below"))
        return boxed(title, [*lines, *[NOTHING] * (PANEL - 2 - len(lines))], width)

    def _follow_selection(self) -> None:
        at = self._index()
        if at is not None:
            self.top = min(max(self.top, at - self._rows + 1), at)
        self.top = min(max(0, self.top), max(0, len(self._shown) - self._rows))

    def _index(self) -> int | None:
        return next((index for index, request in enumerate(self._shown) if request.number == self.selected), None)

    def action_move(self, step: int) -> None:
        if self._shown and not self.by:
            at = self._index()
            index = self.top if at is None else min(max(0, at + step), len(self._shown) - 1)
            self.selected = self._shown[index].number
            self.redraw()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self._rows - 1))

    def action_sort(self, step: int) -> None:
        columns = [column for column, _ in self._columns] or list(COLUMNS)
        at = columns.index(self.sort) if self.sort in columns else 0
        self.sort_by(columns[(at + step) % len(columns)])

    def sort_by(self, column: Column) -> None:
        self.reverse = column.descends if column is not self.sort else not self.reverse
        self.sort = column
        self.redraw()

    def action_reverse(self) -> None:
        self.reverse = not self.reverse
        self.redraw()

    def action_jump(self) -> None:
        if self.selected is None:
            self.action_move(0)
        if self.selected is not None:
            self.post_message(self.Jump("kvmap", self.selected))

    def action_group(self) -> None:
        """The next way to add them up, or one by one again after the last."""
        snapshot = self.frame.window.now if self.frame is not None else None
        if snapshot is not None and snapshot.requests is not None:
            ways = ["", *offered(snapshot.requests)]
            self.by = ways[(ways.index(self.by) + 1) % len(ways)] if self.by in ways else ""
            self.redraw()

    def action_clear(self) -> None:
        self.wanted, self.selected, self.by = "", None, ""
        self.redraw()

    def find(self, wanted: str) -> str:
        self.wanted, self.top, self.by = wanted, 0, ""
        self.redraw()
        return "" if self._shown else "no request matches"

    def show_request(self, number: int) -> None:
        self.selected, self.by = number, ""
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        if self.by:
            return
        if event.y == 1:
            edge = 1
            for column, width in self._columns:
                if edge <= event.x < edge + width + 1:
                    self.sort_by(column)
                    return
                edge += width + 1
        index = self.top + event.y - 2
        if 2 <= event.y < 2 + self._rows and index < len(self._shown):
            self.selected = self._shown[index].number
            self.redraw()
