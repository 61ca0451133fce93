"""Requests end with an error of the engine's own; not a number in the logits is told from the rest."""

import re
from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import events_of, request_named, rose
from inferdbg.facts.window import Window

_EXAMPLES = 3
_NAN = re.compile(r"\bnan\b", re.IGNORECASE)


def check(window: Window) -> Iterator[Finding]:
    failures, over_ns = rose(window, lambda s: s.scheduler.failed_total if s.scheduler else None, "failed")
    if not failures:
        return
    events = events_of(window, "failed")
    not_numbers = [event for event in events if _NAN.search(event.text)]
    yield Finding(
        cause="numeric_nan" if not_numbers else "requests_failing",
        severity="wrong",
        confidence="sure",
        summary=f"{text.counted(failures, 'request')} failed in {text.duration(over_ns)}"
        + (f": {events[-1].text}" if events else ""),
        evidence=tuple(
            Evidence(f"events.{event.seq}", f"{request_named(window, event.request or 0)} failed: {event.text}")
            for event in events[-_EXAMPLES:]
        ),
        next_step="serve it with --dtype fp32: if the NaN goes, the type is too narrow"
        if not_numbers
        else "read the engine's log at the time of the events above",
        since_ns=events[0].mono_ns if events else None,
    )
