"""The server answers, says that requests run, and none of its totals moves: its front end lives, its engine stands."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import first_count_ns
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.window import SECOND, Window

_LIKELY_NS, _SURE_NS = 8 * SECOND, 30 * SECOND
"""A long prompt moves no total until its prefill is over: seconds for tens of thousands of tokens."""


def check(window: Window) -> Iterator[Finding]:
    server, scheduler = window.now.server, window.now.scheduler
    if window.now.pulse is not None or scheduler is None or not scheduler.running:
        return  # where the engine itself is seen, other rules know better
    if scheduler.origin.provenance != "reported" or (server is not None and server.state != "alive"):
        return
    since_ns = _unmoved_since(window, scheduler)
    still_ns = scheduler.origin.mono_ns - since_ns
    at_least = since_ns == first_count_ns(window)
    lasts = text.lasting(still_ns, at_least=at_least)
    if still_ns < _LIKELY_NS:
        return
    evidence = [Evidence("scheduler", f"running {text.count(scheduler.running)}, and no total rose")]
    if server is not None and server.health is not None:
        evidence.append(Evidence("server.health", f"/health answers {server.health.answer}"))
    pid = server.pid if server is not None and server.pid is not None else None
    yield Finding(
        cause="no_progress",
        severity="stuck",
        confidence="sure" if still_ns >= _SURE_NS else "likely",
        summary=f"{text.counted(scheduler.running, 'request')} run, and no token was computed for "
        f"{lasts} by the server's own counts: the engine behind the front end stands",
        evidence=tuple(evidence),
        next_step=f"inferdbg attach {pid} --depth memory" if pid is not None else "look at it on its own machine",
        since_ns=since_ns,
        at_least=at_least,
    )


def _unmoved_since(window: Window, now: Scheduler) -> int:
    """When the oldest of the readings was made since which requests ran and nothing was computed."""
    since_ns = now.origin.mono_ns
    for snapshot in reversed(window.snapshots):
        scheduler = snapshot.scheduler
        if scheduler is None or not scheduler.running or _totals(scheduler) != _totals(now):
            break
        since_ns = scheduler.origin.mono_ns
    return since_ns


def _totals(scheduler: Scheduler) -> tuple[int | None, ...]:
    return (
        scheduler.steps_total,
        scheduler.prefilled_tokens_total,
        scheduler.generated_tokens_total,
        scheduler.finished_total,
    )
