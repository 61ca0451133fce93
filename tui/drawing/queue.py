"""Who waits, for how long, and for what, with the numbers."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.sections.requests import Request, Wait
from inferdbg.facts.sections.scheduler import Rank
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window

from ..ink import Line, Piece, Span, dim, fit_text, flow, line, value
from .counters import MINUTE, minute_delta
from .marks import mark, missing
from .names import NAME_WIDTH, Names, names_of

WAITING = ("waiting", "preempted")
_RANK_LINES = 3


def queue_lines(window: Window, width: int, rows: int = 2) -> list[Line]:
    """Counts, then up to ``rows`` of those who wait, the oldest first."""
    scheduler = window.now.scheduler
    if scheduler is None:
        return missing(window.now, "scheduler", width, "the queue")
    waiting = waiting_requests(window.now)
    found = mark(scheduler.origin, window.now.mono_ns)
    limit = window.now.server.config.max_running if window.now.server and window.now.server.config else None
    parts: list[Piece] = [
        line(
            value(text.count(scheduler.running)),
            dim(f" of {text.count(limit)} running" if limit is not None else " running"),
            found,
        ),
        line(value(text.count(scheduler.waiting)), dim(" waiting")),
    ]
    oldest_ns = max((window.now.mono_ns - r.arrived_ns for r in waiting if r.arrived_ns is not None), default=None)
    if oldest_ns is not None:
        parts.append(line(dim("oldest "), value(text.duration(oldest_ns))))
    if scheduler.preempted:
        parts.append(Span(f"{text.count(scheduler.preempted)} of them preempted", "slow"))
    counts = flow([*parts, *_outcomes(window)], width, " · ")
    return [*counts, *_rank_lines(scheduler.ranks, width), *_waiting_lines(window.now, waiting, width, rows)]


def _rank_lines(ranks: Sequence[Rank], width: int) -> list[Line]:
    """``DP0 12 · DP1 3 + 2 waiting``: what each of several ranks has to do."""
    pieces: list[Piece] = []
    for rank in ranks:
        waiting = Span(f" + {text.count(rank.waiting)} waiting", "slow") if rank.waiting else ""
        pieces.append(line(dim(f"{rank.name} "), value(text.count(rank.running)), waiting))
    lines = flow(pieces, width, " · ")
    return [*lines[: _RANK_LINES - 1], (dim("…"),)] if len(lines) > _RANK_LINES else lines


def waiting_requests(snapshot: Snapshot) -> list[Request]:
    """In order of arrival."""
    if snapshot.requests is None:
        return []
    return [request for request in snapshot.requests.items if request.stage in WAITING]


def wait_text(wait: Wait | None, names: Names) -> str:
    """``needs 37 blocks, 12 free``; empty when it does not wait."""
    if wait is None:
        return ""
    if wait.reason == "behind":
        return f"behind {names(wait.behind)}" if wait.behind is not None else "behind another"
    if wait.reason == "max running":
        return _seats(wait)
    noun = "block" if wait.reason == "blocks" else "token"
    needs = text.counted(wait.needs, noun) if wait.needs is not None else f"more {noun}s"
    return f"needs {needs}{f', {text.count(wait.available)} left' if wait.available is not None else ''}"


def _seats(wait: Wait) -> str:
    running, limit = wait.needs, wait.available
    if running is None or limit is None:
        return "as many run as may"
    if running < limit:  # continuations start together
        return f"needs more than the {text.counted(limit - running, 'place')} left"
    return f"{text.count(running)} of {text.count(limit)} run already"


def _waiting_lines(snapshot: Snapshot, waiting: Sequence[Request], width: int, rows: int) -> list[Line]:
    if not waiting or rows <= 0:
        return []
    names = names_of(snapshot)
    shown = waiting if len(waiting) <= rows else waiting[: rows - 1]
    lines = [
        line(
            fit_text(names(request.number), NAME_WIDTH),
            dim(fit_text(_waited(snapshot, request), 8, right=True) + "  "),
            wait_text(request.wait, names) or dim("not scheduled yet"),
            Span("  preempted", "slow") if request.stage == "preempted" else "",
        )
        for request in shown
    ]
    if len(shown) < len(waiting):
        lines.append((dim(f"and {len(waiting) - len(shown)} more"),))
    return lines


def _waited(snapshot: Snapshot, request: Request) -> str:
    return text.duration(None if request.arrived_ns is None else snapshot.mono_ns - request.arrived_ns)


def _outcomes(window: Window) -> list[Piece]:
    """What became of requests in the last minute, as far as anything did: ``last 12 s: finished 6``."""
    parts: list[Piece] = []
    for outcome, ink in (("finished", ""), ("aborted", ""), ("rejected", "slow"), ("failed", "stuck")):
        count = minute_delta(window, f"{outcome}_total")
        if count:
            lately = f"last {text.duration(min(MINUTE, window.span_ns))}: " if not parts else ""
            parts.append(line(dim(f"{lately}{outcome} "), Span(text.count(count), ink)))
    return parts
