"""Healthy or not, in two seconds; and the numbers behind it."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from ..drawing.overview import overview_lines
from ..frame import Frame
from ..ink import Line
from ..view import View, bound


class Overview(View):
    title = "overview"
    about = "healthy or not, and the numbers behind it"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("overview.why", "w", "why", "why", "Show or hide the evidence of every finding", shown="w"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.evidence = False

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        return overview_lines(frame.window, frame.findings, width, height, evidence=self.evidence)

    def action_why(self) -> None:
        self.evidence = not self.evidence
        self.redraw()
