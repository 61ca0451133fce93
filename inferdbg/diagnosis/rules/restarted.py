"""Another process serves now: the server was restarted while we looked, and counters began anew."""

from collections.abc import Iterator
from itertools import pairwise

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window


def check(window: Window) -> Iterator[Finding]:
    first = _front(window.snapshots[0])
    if first is not None and first == _front(window.now):
        return  # a number does not come back within a minute
    seen = [(s.mono_ns, pid) for s in window.snapshots if (pid := _front(s)) is not None]
    changes = [(at_ns, before, after) for (_, before), (at_ns, after) in pairwise(seen) if before != after]
    if not changes:
        return
    at_ns, before, after = changes[-1]
    ago_ns = window.now.mono_ns - at_ns
    ago = f"{text.duration(ago_ns)} ago" if ago_ns >= SECOND else "just now"
    starts = window.now.processes is not None and window.now.processes.startup is not None
    yield Finding(
        cause="restarted",
        severity="note",
        confidence="sure",
        summary=f"restarted {ago}: pid {before} is gone, pid {after} {'starts' if starts else 'serves'}",
        evidence=(Evidence("server.pid", f"{before} before, {after} now; counters began anew"),),
        next_step=f"inferdbg attach {after}   (looks at the new one as deep as at the old one)",
        since_ns=at_ns,
    )


def _front(snapshot: Snapshot) -> int | None:
    """The server's process; without a look at processes another one's may stand there, its engine core's."""
    return snapshot.server.pid if snapshot.server is not None and snapshot.processes is not None else None
