"""The processes behind the server as the kernel sees them, and what they wait for."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from ..drawing.marks import missing
from ..drawing.processes import machine_lines, table_lines
from ..frame import Frame
from ..ink import NOTHING, Line, crop, line, paragraph
from ..view import View, bound


class Processes(View):
    title = "processes"
    about = "the processes behind the server: who runs, sleeps, is stopped, and what the machine lets them wait for"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("processes.up", "up", "scroll_lines(-1)", "scroll", "Scroll up", shown="↑↓"),
        bound("processes.down", "down", "scroll_lines(1)", "scroll down"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.top = 0

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        processes = frame.window.now.processes
        if processes is None:
            return missing(frame.window.now, "processes", width, "the processes")
        head, *rows = table_lines(frame.window, processes, width)
        rows += [NOTHING, *machine_lines(frame.window, processes, width), NOTHING]
        rows += [line(" ", one) for one in paragraph(_LEGEND, width - 2, "dim")]
        self.top = min(self.top, max(0, len(rows) - (height - 1)))
        return [crop(one, width) for one in (head, *rows[self.top : self.top + height - 1])]

    def action_scroll_lines(self, lines: int) -> None:
        self.top = max(0, self.top + lines)
        self.redraw()


_LEGEND = "R runs  S sleeps  D cannot be woken  T stopped  Z ended · run/thr: threads that run, of all"
