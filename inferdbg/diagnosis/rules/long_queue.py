"""Requests wait long for their turn while the engine works: it has more to do than it can, or may not do more at a
time."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import patience_ns, requests_now, steps_of
from inferdbg.diagnosis.options import option_or_words
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.window import SECOND, Window

_LONG_NS = 5 * SECOND
"""What somebody in a chat would call broken."""
_LATELY_NS = 10 * SECOND
_LATENCY_NS = 30 * SECOND
_ROOMY = 0.7  # of the KV cache held: below that more could run


def check(window: Window) -> Iterator[Finding]:
    scheduler = window.now.scheduler
    waiting = [request for request in requests_now(window) if request.stage == "waiting"]
    counted = scheduler.waiting if scheduler is not None else None
    count = len(waiting) if counted is None else counted
    waited_ns = _waited_ns(window, waiting)
    if not count or waited_ns < _LONG_NS or not _works(window):
        return
    waits = f"{text.counted(count, 'request')} {'waits' if count == 1 else 'wait'}"
    longest = f", the longest for {text.duration(waited_ns)}" if waiting else f", p95 {text.duration(waited_ns)}"
    limit = _limit_reached(window)
    why = f": {text.count(limit)} run already, as many as may" if limit is not None else ""
    yield Finding(
        cause="long_queue",
        severity="slow",
        confidence="sure",
        summary=f"{waits} for a turn{longest}{why}",
        evidence=tuple(_evidence(window)),
        next_step=_advice(window, limit),
        since_ns=min((r.arrived_ns for r in waiting if r.arrived_ns is not None), default=None),
    )


def _waited_ns(window: Window, waiting: list[Request]) -> int:
    """How long the one has that waits longest; where requests are not seen, what the slowest waited lately (p95)."""
    if window.now.requests is not None:
        return max((window.now.mono_ns - r.arrived_ns for r in waiting if r.arrived_ns is not None), default=0)
    return round(window.percentile(lambda s: s.scheduler.queue_time if s.scheduler else None, 0.95, _LATENCY_NS) or 0)


def _works(window: Window) -> bool:
    """Tokens came lately: else something stands still, which other rules tell."""
    generated = window.delta(lambda s: s.scheduler.generated_tokens_total if s.scheduler else None, _LATELY_NS)
    return bool(generated) or bool(steps_of(window, patience_ns(window)))


def _limit_reached(window: Window) -> int | None:
    server, scheduler = window.now.server, window.now.scheduler
    limit = server.config.max_running if server is not None and server.config is not None else None
    running = scheduler.running if scheduler is not None else None
    return limit if limit is not None and running is not None and running >= limit else None


def _held(window: Window) -> float | None:
    """Share of the KV cache that requests hold."""
    kvcache = window.now.kvcache
    if kvcache is None or kvcache.used_blocks is None or not kvcache.num_blocks:
        return None
    return kvcache.used_blocks / kvcache.num_blocks


def _advice(window: Window, limit: int | None) -> str:
    held = _held(window)
    if limit is not None and held is not None and held < _ROOMY:
        return f"raise {option_or_words(window, 'running')}: the KV cache has room for more, or add a replica"
    return "send less at a time, or add a replica"


def _evidence(window: Window) -> Iterator[Evidence]:
    ttft_ns = window.percentile(lambda s: s.scheduler.ttft if s.scheduler else None, 0.95, _LATENCY_NS)
    if ttft_ns is not None:
        yield Evidence("scheduler.ttft", f"TTFT p95 {text.duration(ttft_ns)}")
    held = _held(window)
    if held is not None:
        yield Evidence("kvcache.used_blocks", f"{text.percent(held)} of the KV cache is held")
