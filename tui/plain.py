"""The overview as plain text, for where there is no terminal: pipes, logs, `attach --once`."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.window import Window

from .drawing.header import subject
from .drawing.overview import overview_lines
from .ink import flow, paragraph, plain


def overview_text(
    window: Window, findings: Sequence[Finding], title: str = "", problem: str = "", width: int = 110
) -> list[str]:
    """Lines without colour or control characters, without spaces at their ends. ``problem``: what ails the source."""
    about = [part for _, part in subject(window, title)]
    head = flow([*about, text.clock(window.now.wall_ns)], width, " · ")
    head += paragraph(text.safe(problem), width) if problem else []
    return [plain(found) for found in [*head, *overview_lines(window, findings, width, evidence=True)]]
