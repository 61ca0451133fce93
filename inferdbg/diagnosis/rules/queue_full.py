"""Clients are turned away because as many requests wait as may."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import events_of, rose
from inferdbg.diagnosis.options import option_or_words
from inferdbg.facts.window import Window


def check(window: Window) -> Iterator[Finding]:
    server, scheduler = window.now.server, window.now.scheduler
    limit = server.config.max_waiting if server is not None and server.config is not None else None
    refused, over_ns = rose(window, lambda s: s.scheduler.rejected_total if s.scheduler else None, "rejected")
    longest = max((s.scheduler.waiting or 0 for s in window.snapshots if s.scheduler is not None), default=0)
    if not refused or limit is None or scheduler is None or longest < limit:
        return
    events = events_of(window, "rejected")
    yield Finding(
        cause="queue_full",
        severity="slow",
        confidence="sure",
        summary=f"{text.counted(refused, 'request')} turned away in {text.duration(over_ns)}: "
        f"{text.count(limit)} wait already, as many as may",
        evidence=(
            Evidence("scheduler.waiting", f"{text.count(scheduler.waiting)} wait now, up to {text.count(limit)} may"),
            *(Evidence(f"events.{event.seq}", event.text) for event in events[-1:]),
        ),
        next_step=f"send less, add a replica, or let more wait: {option_or_words(window, 'waiting')}",
        since_ns=events[0].mono_ns if events else None,
    )
