"""Where the server's threads stand, and what lies in the queues between them."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from inferdbg.diagnosis.waits import waits_of
from inferdbg.facts.sections.stacks import ProcessStacks, ThreadStack

from ..drawing.marks import mark, missing
from ..drawing.threads import LABEL, all_threads, calls_lines, process_line, state_of, thread_line, wiring_lines
from ..frame import Frame
from ..ink import NOTHING, Line, boxed, crop, dim, labelled, line
from ..view import View, bound

PANEL = 12
_SMALLEST_PANEL = 5


class Threads(View):
    title = "threads"
    about = "where the threads stand, and what waits in the queues between them"
    finds = "part of a thread's name or of a function's"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("threads.up", "up", "move(-1)", "select", "Select the thread above", shown="↑↓"),
        bound("threads.down", "down", "move(1)", "thread below"),
        bound("threads.page-up", "pageup", "move(-10)", "a page up"),
        bound("threads.page-down", "pagedown", "move(10)", "a page down"),
        bound("threads.clear", "escape", "clear", "all threads", "Drop the filter and the selection"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selected: tuple[int, int | None, str] | None = None  # PID, the kernel's id of the thread, its name
        self.wanted = ""
        self._shown: list[tuple[ProcessStacks, ThreadStack]] = []
        self._top = 0

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        snapshot = frame.window.now
        head = [*wiring_lines(snapshot, width), NOTHING]
        stacks = snapshot.stacks
        if stacks is None:
            unseen = missing(snapshot, "stacks", width - LABEL - 1, "stacks")
            return [*head, *labelled(" stacks", unseen, LABEL)][:height]
        self._shown = [pair for pair in all_threads(stacks.processes) if _matches(pair[1], self.wanted)]
        at = self._index()
        deep = max(_SMALLEST_PANEL, min(PANEL, height // 3))
        panel = self._panel(self._shown[at or 0], width, deep) if self._shown and height >= len(head) + deep + 4 else []
        rows: list[Line] = []
        place = 0
        for process in stacks.processes:
            rows.append(process_line(process))
            waits = dict(zip(process.threads, waits_of(process), strict=True))
            for index, (owner, thread) in enumerate(self._shown):
                if owner is process:
                    place = len(rows) if index == at else place
                    rows.append(thread_line(thread, waits[thread], width, selected=index == at))
        if self.wanted and not self._shown:
            rows.append((dim("   none matches: escape shows all"),))
        room = max(1, height - len(head) - len(panel) - 1)
        self._top = min(max(self._top, place - room + 1), place) if at is not None else 0
        title = line(" ", dim("taken without a stop: one that ran meanwhile may show calls of two moments"))
        title = line(title, mark(stacks.origin, snapshot.mono_ns))
        shown = rows[self._top : self._top + room]
        shown += [NOTHING] * (room - len(shown)) if panel else []
        return [*head, title, *(crop(row, width) for row in shown), *panel][:height]

    def _panel(self, chosen: tuple[ProcessStacks, ThreadStack], width: int, deep: int) -> list[Line]:
        process, thread = chosen
        name = thread.name or f"thread {thread.native_id}"
        hint = "" if self.selected is not None else "  up and down select"
        title = line(f"{name} of {process.role or 'process'} {process.pid} {state_of(thread)}", dim(hint))
        lines = [crop(one, width - 4) for one in calls_lines(thread, deep - 2)]
        return boxed(title, [*lines, *[NOTHING] * (deep - 2 - len(lines))], width)

    def _index(self) -> int | None:
        keys = [_key(process, thread) for process, thread in self._shown]
        return keys.index(self.selected) if self.selected in keys else None

    def action_move(self, steps: int) -> None:
        if self._shown:
            at = self._index()
            index = 0 if at is None else min(max(0, at + steps), len(self._shown) - 1)
            self.selected = _key(*self._shown[index])
            self.redraw()

    def action_clear(self) -> None:
        self.selected, self.wanted = None, ""
        self.redraw()

    def find(self, wanted: str) -> str:
        self.wanted = wanted
        self.redraw()
        return ""


def _key(process: ProcessStacks, thread: ThreadStack) -> tuple[int, int | None, str]:
    return process.pid, thread.native_id, thread.name


def _matches(thread: ThreadStack, wanted: str) -> bool:
    asked = wanted.casefold()
    return not asked or any(
        asked in word.casefold() for word in (thread.name, *(call.function for call in thread.calls))
    )
