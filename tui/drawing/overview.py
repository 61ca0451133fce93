"""The overview: healthy or not in two seconds, then the numbers behind it, as many as the room allows."""

from collections.abc import Sequence
from typing import NamedTuple

from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.window import Window

from ..ink import NOTHING, Line, Span, beside, crop, flow, labelled
from .batch import batch_lines, scale_ns, step_line
from .cache import cache_lines
from .flow import draft_lines, latency_lines, tokens_lines
from .happenings import happening_lines
from .machine import kernel_lines, machine_lines
from .pulse import now_lines
from .queue import queue_lines, waiting_requests
from .verdict import verdict_lines

LABEL = 10
WIDE = 150
TALL = 34


class Part(NamedTuple):
    """Lines about one subject, most important first. ``least`` of them are shown however small the room; when there
    is more room, parts of a higher ``rank`` get theirs first. Air is put where the ``group`` changes."""

    label: str
    lines: list[Line]
    least: int
    rank: int
    group: int


def overview_lines(
    window: Window, findings: Sequence[Finding], width: int, height: int | None = None, *, evidence: bool = False
) -> list[Line]:
    """``height`` None: everything. Else the least of every part, then more of each, then air, then events."""
    top = verdict_lines(window, findings, width, evidence=evidence)
    room = None if height is None else max(0, height - len(top))
    below = (
        _across(window, findings, width, room)
        if room is not None and width >= WIDE
        else _down(window, findings, width, room)
    )
    return [crop(found, width) for found in (*top, *below)]


def _across(window: Window, findings: Sequence[Finding], width: int, room: int) -> list[Line]:
    """On a wide screen: numbers at the left, who waits and what happened at the right."""
    left_width = width * 9 // 16
    parts = _parts(window, findings, left_width - LABEL, charts=3, waiting=0)
    if waiting_requests(window.now):
        parts = [part for part in parts if part.label != "queue"]
    left = _shown(parts, room)
    left += _steps(window, left_width - LABEL, room - len(left))
    return beside(left, _people(window, width - left_width - 3, room), left_width, "   ")


def _down(window: Window, findings: Sequence[Finding], width: int, room: int | None) -> list[Line]:
    """Everything under each other."""
    if room is None:
        parts = _parts(window, findings, width - LABEL, charts=1, waiting=8)
        return [*_shown(parts, None), NOTHING, *_events(window, width, 8)]
    parts = _parts(window, findings, width - LABEL, charts=3 if room >= TALL else 1, waiting=6 if room >= 24 else 3)
    gauges = _shown(parts, room)
    left_over = room - len(gauges) - 1
    return gauges if left_over < 2 else [*gauges, NOTHING, *_events(window, width, left_over)]


def _parts(window: Window, findings: Sequence[Finding], width: int, *, charts: int, waiting: int) -> list[Part]:
    drafts = draft_lines(window, width)
    parts = [
        Part("now", now_lines(window, findings, width), 2, 9, 0),
        Part("tokens/s", tokens_lines(window, width, charts), charts, 9, 1),
        Part("latency", latency_lines(window, width), 1, 9, 1),
        *([Part("drafts", drafts, 1, 5, 1)] if drafts else []),
        Part("KV cache", cache_lines(window, width), 2, 7, 2),
        Part("batch", batch_lines(window, width), 3, 4, 3),
        Part("queue", queue_lines(window, width, waiting), 3, 8, 4),
        Part("kernels", kernel_lines(window, width), 1, 3, 5),
        Part("machine", machine_lines(window, width), 1, 6, 5),
    ]
    return _unseen_together(parts, width)


def _unseen_together(parts: Sequence[Part], width: int) -> list[Part]:
    """Parts that are not seen for the same reason are named together, and the reason once."""
    kept: list[Part] = []
    for part in parts:
        same = [other for other in parts if other.lines == part.lines]
        if len(same) == 1 or not part.lines or part.lines[0][0].ink != "unseen":
            kept.append(part)
        elif same[0] is part:
            names = flow([Span(other.label, "unseen") for other in same], width, " · ")
            lines = [*names, *part.lines]
            kept.append(Part("", lines, len(lines), 9, part.group))
    return kept


def _shown(parts: Sequence[Part], room: int | None) -> list[Line]:
    """As many lines of each part as ``room`` allows."""
    counts = [len(part.lines) if room is None else min(part.least, len(part.lines)) for part in parts]
    left = sum(len(part.lines) for part in parts) if room is None else max(0, room - sum(counts))
    for index in sorted(range(len(parts)), key=lambda index: -parts[index].rank):
        more = min(left, len(parts[index].lines) - counts[index])
        counts[index] += more
        left -= more
    groups = len({part.group for part in parts})
    air = room is None or left >= groups - 1
    lines: list[Line] = []
    for index, part in enumerate(parts):
        if air and index and part.group != parts[index - 1].group:
            lines.append(NOTHING)
        lines += labelled(f" {part.label}", part.lines[: counts[index]], LABEL)
    return lines if room is None else lines[:room]


def _steps(window: Window, width: int, room: int) -> list[Line]:
    """The last steps as bars, newest at the bottom, where there is room for some."""
    rows = min(room - 1, 30)
    steps = window.steps(rows) if rows >= 4 else []
    if not steps:
        return []
    longest_ns = scale_ns(steps)
    return [NOTHING, *labelled(" steps", [step_line(step, width, longest_ns) for step in steps], LABEL)]


def _people(window: Window, width: int, room: int) -> list[Line]:
    """Beside the gauges of a wide screen: who waits, then what happened."""
    waiting = len(waiting_requests(window.now))
    if not waiting:
        return _events(window, width, room)
    queue = queue_lines(window, width - LABEL, min(waiting, max(2, room // 2)))
    lines = labelled(" queue", queue[: room // 2], LABEL)
    return [*lines, NOTHING, *_events(window, width, room - len(lines) - 1)]


def _events(window: Window, width: int, rows: int) -> list[Line]:
    if window.now.events is None:
        return []  # the probes view says why
    return labelled(" events", happening_lines(window, width - LABEL, rows)[: max(0, rows)], LABEL)
