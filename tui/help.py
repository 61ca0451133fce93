"""Every key with what it does, read from the bindings themselves, and what the marks mean."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.keys import format_key
from textual.screen import ModalScreen

from .drawing.marks import LEGEND, TRENDS
from .ink import NOTHING, Line, Span, boxed, dim, fit_text, line, paragraph
from .lineview import LineView
from .view import View, bound

_SHORT = {"full_stop": ".", "comma": ",", "pageup": "pgup", "pagedown": "pgdn"}
_TIME = "pause and scrub work live as in a recording: a live target goes on while the screen stands still"


class Help(ModalScreen[None]):
    """The keys of the present view first, then those of the application, then those of the other views."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("help.close", "escape,question_mark,q,f1,enter,space", "dismiss", "close"),
        bound("help.up", "up,k", "scroll_lines(-1)", "up"),
        bound("help.down", "down,j", "scroll_lines(1)", "down"),
        bound("help.page-up", "pageup", "scroll_lines(-10)", "a page up"),
        bound("help.page-down", "pagedown", "scroll_lines(10)", "a page down"),
    ]

    def __init__(self, current: type[View], views: Sequence[type[View]], general: Sequence[BindingType]) -> None:
        super().__init__()
        self._current = current
        self._views = views
        self._general = general
        self._top = 0

    def compose(self) -> ComposeResult:
        yield LineView(id="help")

    def on_mount(self) -> None:
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def action_scroll_lines(self, lines: int) -> None:
        self._top += lines
        self._draw()

    def _draw(self) -> None:
        page = self.query_one("#help", LineView)
        width, height = page.size
        inner = width - 4
        lines = [*_section(self._current.title, self._current.about, self._current.BINDINGS, inner), NOTHING]
        lines += [*_section("everywhere", _TIME, self._general, inner), NOTHING]
        lines += [*paragraph(LEGEND, inner, "dim"), *paragraph(TRENDS, inner, "dim"), NOTHING]
        for view in self._views:
            if view is not self._current:
                lines += [*_section(view.title, view.about, view.BINDINGS, inner), NOTHING]
        room = max(1, height - 2)
        self._top = min(max(0, self._top), max(0, len(lines) - room))
        shown = lines[self._top : self._top + room]
        more = dim(" ↑ ↓ for more") if len(lines) > room else ""
        page.put(boxed(line("help", more, dim("  escape closes")), [*shown, *[NOTHING] * (room - len(shown))], width))


def _section(title: str, about: str, bindings: Iterable[BindingType], width: int) -> list[Line]:
    lines: list[Line] = [line(Span(title, "value")), *paragraph(about, width, "dim")]
    for binding in bindings:
        if isinstance(binding, Binding):
            keys = " ".join(_shown(key) for key in binding.key.split(","))
            words = binding.tooltip or binding.description
            said = paragraph(words[0].upper() + words[1:], width - 20)
            lines.append(line(Span(fit_text(keys, 18, right=True), "key"), "  ", said[0]))
            lines += [line(" " * 20, more) for more in said[1:]]
    return lines


def _shown(key: str) -> str:
    return "+".join(_SHORT.get(part, format_key(part)) for part in key.split("+"))
