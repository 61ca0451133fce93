"""What happened lately, one line an event: who was preempted by whom, evicted for whom, and why."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.sections.events import Event
from inferdbg.facts.window import Window

from ..ink import Line, Span, dim, fit_text, line
from .marks import missing
from .names import Names

_INKS = {"preempted": "slow", "rejected": "slow", "failed": "stuck", "fault": "stuck", "aborted": "note"}


def happening_lines(window: Window, width: int, rows: int) -> list[Line]:
    """What happened last, newest first, in ``rows`` lines; a run of evictions for one request is one line."""
    if window.now.events is None:
        return missing(window.now, "events", width, "events")
    runs = _runs(window.events(rows * 40), rows)
    if not runs:
        return [(dim("nothing in the time looked at"),)]
    names = Names(window.now)
    return [event_line(run[0], names, window.now.mono_ns, len(run)) for run in runs]


def _runs(events: Sequence[Event], most: int) -> list[list[Event]]:
    """Newest first; events of one step that differ only in block stay together."""
    runs: list[list[Event]] = []
    for event in reversed(events):
        if runs and event.kind == "evicted" and _alike(event) == _alike(runs[-1][-1]):
            runs[-1].append(event)
        elif len(runs) == most:
            break
        else:
            runs.append([event])
    return runs


def _alike(event: Event) -> tuple[str, int, int | None, int | None]:
    return event.kind, event.step, event.request, event.other


def event_line(event: Event, names: Names, now_ns: int, times: int = 1) -> Line:
    """``times``: for how many blocks the same happened."""
    ago_ns = now_ns - event.mono_ns
    ago = fit_text(f"-{text.duration(ago_ns)}" if ago_ns > 0 else "now", 8, right=True)
    return line(dim(f"{ago}  "), Span(f"{event.kind:<12}", _INKS.get(event.kind, "")), event_text(event, names, times))


def event_text(event: Event, names: Names, times: int = 1) -> str:
    """What befell whom, without the kind: ``r-91 for r-104, 768 tokens lost``."""
    who = names(event.request) if event.request else ""
    other = names(event.other) if event.other else ""
    tokens = text.count(event.tokens) if event.tokens else ""
    if event.kind == "preempted":
        return f"{who}{f' for {other}' if other else ''}{f', {tokens} tokens lost' if tokens else ''}"
    if event.kind == "evicted":
        blocks = f"{times} blocks" if times > 1 else f"block {event.block}"
        return f"{blocks}{f' of {who}' if who else ''}{f' for {other}' if other else ''}"
    if event.kind == "copied on write":
        return f"block {event.other} to {event.block}{f' by {who}' if who else ''}"
    if event.kind == "scheduled":
        return f"{who}{f', {tokens} tokens from the prefix cache' if tokens else ''}"
    words = [who, f"{tokens} tokens" if tokens else "", text.safe(event.text, 200)]
    return ", ".join(word for word in words if word)
