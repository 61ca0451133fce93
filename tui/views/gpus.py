"""What the GPUs do, what holds them back, and how healthy they are."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from ..drawing.gpus import gpus_lines
from ..frame import Frame
from ..ink import Line
from ..view import View, bound


class Gpus(View):
    title = "gpus"
    about = "what the GPUs do, what holds them back, and how healthy they are"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("gpus.up", "up", "scroll_lines(-1)", "scroll", "Scroll up", shown="↑↓"),
        bound("gpus.down", "down", "scroll_lines(1)", "scroll down"),
        bound("gpus.page-up", "pageup", "scroll_lines(-10)", "a page up"),
        bound("gpus.page-down", "pagedown", "scroll_lines(10)", "a page down"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.top = 0

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        lines = gpus_lines(frame.window, width)
        self.top = min(self.top, max(0, len(lines) - height))
        return lines[self.top : self.top + height]

    def action_scroll_lines(self, lines: int) -> None:
        self.top = max(0, self.top + lines)
        self.redraw()
