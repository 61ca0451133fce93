"""Steps go by and no request gets anything from them."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import requests_now
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

_AT_LEAST_NS = 2 * SECOND


def check(window: Window) -> Iterator[Finding]:
    if window.now.server is not None and window.now.server.state != "alive":
        return
    fruitless = _fruitless(window)
    if not fruitless:
        return
    first = fruitless[0]
    over_ns = window.now.mono_ns - first.mono_ns
    steps = _steps(window.now) - _steps(first)
    if over_ns < _AT_LEAST_NS or steps < 2:
        return
    scheduler = window.now.scheduler
    running, waiting = (scheduler.running, scheduler.waiting) if scheduler is not None else (None, None)
    blocked = [request for request in requests_now(window) if request.wait is not None]
    yield Finding(
        cause="scheduler_livelock",
        severity="stuck",
        confidence="sure",
        summary=f"{text.counted(steps, 'step')} in {text.duration(over_ns)} computed no token, though "
        f"{text.counted(running, 'request')} run and {text.count(waiting)} wait: the scheduler turns in a circle",
        evidence=(
            Evidence("scheduler.steps_total", f"rose by {text.count(steps)}"),
            Evidence("scheduler.generated_tokens_total", "did not rise, nor did prefilled_tokens_total"),
            *(
                Evidence(f"requests.{request.number}", f"{request.id} waits: {request.wait.reason}")
                for request in blocked[:1]
                if request.wait is not None
            ),
        ),
        next_step="inferdbg top, view requests: who waits for what",
        since_ns=first.mono_ns,
    )


def _fruitless(window: Window) -> list[Snapshot]:
    """The last Snapshots, oldest first, over which no token was computed though there was work all the while."""
    found: list[Snapshot] = []
    for snapshot in reversed(window.snapshots):
        if not _has_work(snapshot) or _tokens(snapshot) != _tokens(window.now):
            break
        found.append(snapshot)
    return found[::-1]


def _has_work(snapshot: Snapshot) -> bool:
    scheduler = snapshot.scheduler
    return scheduler is not None and bool((scheduler.running or 0) + (scheduler.waiting or 0))


def _tokens(snapshot: Snapshot) -> tuple[int | None, int | None] | None:
    scheduler = snapshot.scheduler
    return None if scheduler is None else (scheduler.generated_tokens_total, scheduler.prefilled_tokens_total)


def _steps(snapshot: Snapshot) -> int:
    scheduler = snapshot.scheduler
    return (scheduler.steps_total or 0) if scheduler is not None else 0
