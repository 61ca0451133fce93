"""The line at the bottom where one types what to find; the view follows while one types."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input

from .ink import Span, dim, line
from .lineview import LineView
from .view import View, bound


class Prompt(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [bound("prompt.close", "escape", "leave", "close, find nothing")]

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def compose(self) -> ComposeResult:
        with Horizontal(id="prompt"):
            yield LineView(id="prompt-label")
            yield Input(placeholder=self._view.finds, compact=True)
            yield LineView(id="prompt-answer")

    def on_mount(self) -> None:
        self.query_one("#prompt-label", LineView).put([line(Span(" find ", "key"))])

    def on_input_changed(self, event: Input.Changed) -> None:
        answer = self._view.find(event.value.strip())
        self.query_one("#prompt-answer", LineView).put(
            [line("  ", Span(answer, "slow") if answer else dim("enter closes"))]
        )

    def on_input_submitted(self) -> None:
        self.dismiss()

    def action_leave(self) -> None:
        self._view.find("")
        self.dismiss()
