"""What can and cannot be seen here, and why: every probe with its answer."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from inferdbg import text
from inferdbg.facts.provenance import ProbeReport
from inferdbg.facts.snapshot import SECTIONS, Snapshot
from inferdbg.facts.window import SECOND

from ..drawing.marks import LEGEND
from ..frame import Frame
from ..ink import NOTHING, Line, Span, dim, fit_text, line, paragraph
from ..view import View, bound

_INKS = {
    "ok": "ok",
    "absent": "dim",
    "denied": "slow",
    "stale": "slow",
    "torn": "slow",
    "failed": "stuck",
    "not answering": "stuck",
}


class Probes(View):
    title = "probes"
    about = "what can and cannot be seen here, and why"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("probes.up", "up", "scroll_lines(-1)", "scroll", "Scroll up", shown="↑↓"),
        bound("probes.down", "down", "scroll_lines(1)", "scroll down"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.top = 0

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        snapshot = frame.window.now
        head = line(
            Span(fit_text("   probe", 19), "label"),
            Span(fit_text("status", 14), "label"),
            Span(fit_text("answered", 11, right=True), "label"),
            Span(fit_text("cost", 9, right=True), "label"),
            Span("  fills", "label"),
        )
        body = [found for report in snapshot.probes for found in _report(report, snapshot, width)]
        if not snapshot.probes:
            body = [(dim(" no probe was asked: this is what was stored"),)]
        body += [NOTHING, *_unseen(snapshot, width)]
        body += [line(" ", found) for found in paragraph(LEGEND, width - 2, "dim")]
        self.top = min(self.top, max(0, len(body) - (height - 1)))
        return [head, *body[self.top : self.top + height - 1]]

    def action_scroll_lines(self, lines: int) -> None:
        self.top = max(0, self.top + lines)
        self.redraw()


def _report(report: ProbeReport, snapshot: Snapshot, width: int) -> list[Line]:
    ink = _INKS[report.status]
    first = line(
        Span(" ● ", ink),
        fit_text(text.safe(report.probe), 16),
        Span(fit_text(report.status, 14), ink),
        fit_text(_answered(report, snapshot), 11, right=True),
        fit_text(text.duration(report.cost_ns) if report.cost_ns else "", 9, right=True),
        "  ",
    )
    fills = paragraph(", ".join(report.sections), max(16, width - 55)) or [NOTHING]
    lines = [line(first, fills[0]), *(line(" " * 55, more) for more in fills[1:])]
    for said, said_ink in ((report.message, "dim"), (report.hint, "accent")):
        for one in said.splitlines():
            lines += [line("   ", found) for found in paragraph(text.safe(one), width - 4, said_ink)]
    return lines


def _answered(report: ProbeReport, snapshot: Snapshot) -> str:
    if report.answered_ns is None:
        return "" if report.status == "absent" else "never"
    ago_ns = snapshot.mono_ns - report.answered_ns
    return "now" if ago_ns < SECOND else f"{text.duration(ago_ns)} ago"


_OF_OTHERS = ("prefixes", "metrics", "wiring")
"""Sections that stand in for what a foreign server does not show otherwise."""


def _unseen(snapshot: Snapshot, width: int) -> list[Line]:
    """Sections that nobody filled."""
    own = snapshot.server is not None and snapshot.server.engine == "inferdbg"
    empty = [name for name in SECTIONS if getattr(snapshot, name) is None and not (own and name in _OF_OTHERS)]
    if not empty:
        return [line(" ", dim("every section is filled"))]
    return [
        line(" ", found) for found in paragraph(f"not filled by any probe: {', '.join(empty)}", width - 2, "unseen")
    ]
