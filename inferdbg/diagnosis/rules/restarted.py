"""Another process serves now: the server was restarted while we looked, and counters began anew."""

from collections.abc import Iterator
from itertools import pairwise

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.window import Window


def check(window: Window) -> Iterator[Finding]:
    first, last = window.snapshots[0].server, window.now.server
    if first is not None and last is not None and first.pid is not None and first.pid == last.pid:
        return  # a number does not come back within a minute
    seen = [(s.mono_ns, s.server.pid) for s in window.snapshots if s.server is not None and s.server.pid is not None]
    changes = [(at_ns, before, after) for (_, before), (at_ns, after) in pairwise(seen) if before != after]
    if not changes:
        return
    at_ns, before, after = changes[-1]
    yield Finding(
        cause="restarted",
        severity="note",
        confidence="sure",
        summary=f"restarted {text.duration(window.now.mono_ns - at_ns)} ago: pid {before} is gone, pid {after} serves",
        evidence=(Evidence("server.pid", f"{before} before, {after} now; counters began anew"),),
        next_step=f"inferdbg attach {after}   (looks at the new one as deep as at the old one)",
        since_ns=at_ns,
    )
