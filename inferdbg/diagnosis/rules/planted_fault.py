"""The engine was started with a fault planted, and it fired: what else is seen may be its doing."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import events_of
from inferdbg.facts.window import Window

_SHOWN = 3


def check(window: Window) -> Iterator[Finding]:
    fired = events_of(window, "fault")
    if not fired:
        return
    last = fired[-1]
    ago = text.duration(window.now.mono_ns - last.mono_ns)
    yield Finding(
        cause="planted_fault",
        severity="note",
        confidence="sure",
        summary=f"a fault planted with --fault fired at step {text.count(last.step)}, {ago} ago: {last.text}",
        evidence=tuple(
            Evidence(f"events.{event.seq}", f"step {text.count(event.step)}: {event.text}") for event in fired[-_SHOWN:]
        ),
        next_step="start it without --fault",
        since_ns=fired[0].mono_ns,
    )
