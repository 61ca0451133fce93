"""Steps go by and no request gets anything from them."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import newest_steps, requests_now
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

_AT_LEAST_NS = 2 * SECOND


def check(window: Window) -> Iterator[Finding]:
    scheduler = window.now.scheduler
    if scheduler is None or not _has_work(window.now):
        return
    if window.now.server is not None and window.now.server.state != "alive":
        return
    since_ns, steps = max(_by_counters(window), _by_steps(window), key=lambda seen: seen[1])
    over_ns = window.now.mono_ns - since_ns
    if over_ns < _AT_LEAST_NS or steps < 2:
        return
    blocked = [request for request in requests_now(window) if request.wait is not None]
    yield Finding(
        cause="scheduler_livelock",
        severity="stuck",
        confidence="sure",
        summary=f"{text.counted(steps, 'step')} in {text.duration(over_ns)} computed no token, though "
        f"{text.counted(scheduler.running, 'request')} run and {text.count(scheduler.waiting)} wait: "
        "the scheduler turns in a circle",
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
        since_ns=since_ns,
    )


def _by_counters(window: Window) -> tuple[int, int]:
    """Since when no token was computed though there was work, and how many steps went by: as the Snapshots tell."""
    first = window.now
    if _of_two_clocks(window.now):
        return first.mono_ns, 0
    for snapshot in reversed(window.snapshots):
        if not _has_work(snapshot) or _tokens(snapshot) != _tokens(window.now):
            break
        first = snapshot
    return first.mono_ns, _steps(window.now) - _steps(first)


def _of_two_clocks(snapshot: Snapshot) -> bool:
    """Tokens are not known, or the server reports them now and then while steps are seen at every look."""
    boxed = snapshot.server is not None and snapshot.server.box_path is not None
    return _tokens(snapshot) == (None, None) or (snapshot.metrics is not None and not boxed)


def _by_steps(window: Window) -> tuple[int, int]:
    """The same as the engine's ring of steps tells: it reaches back before the first look."""
    since_ns, count = window.now.mono_ns, 0
    for step in newest_steps(window):
        if step.prefill_tokens + step.decode_tokens:
            break
        since_ns, count = step.start_ns, count + 1
    return since_ns, count


def _has_work(snapshot: Snapshot) -> bool:
    scheduler = snapshot.scheduler
    return scheduler is not None and bool((scheduler.running or 0) + (scheduler.waiting or 0))


def _tokens(snapshot: Snapshot) -> tuple[int | None, int | None] | None:
    scheduler = snapshot.scheduler
    return None if scheduler is None else (scheduler.generated_tokens_total, scheduler.prefilled_tokens_total)


def _steps(snapshot: Snapshot) -> int:
    scheduler = snapshot.scheduler
    return (scheduler.steps_total or 0) if scheduler is not None else 0
