"""One of several data-parallel ranks has requests and computes nothing; not each of them, that is no_progress."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import first_count_ns
from inferdbg.diagnosis.roles import with_role
from inferdbg.facts.sections.scheduler import Rank
from inferdbg.facts.window import SECOND, Window

_LIKELY_NS, _SURE_NS = 8 * SECOND, 30 * SECOND
"""As of no_progress: a long prompt moves no total until its prefill is over."""


def check(window: Window) -> Iterator[Finding]:
    scheduler = window.now.scheduler
    if scheduler is None:
        return
    since = {rank.name: _unmoved_since(window, rank) for rank in scheduler.ranks}
    read_ns = scheduler.origin.mono_ns
    if all(since_ns < read_ns for since_ns in since.values()):
        return
    for rank in scheduler.ranks:
        still_ns = read_ns - since[rank.name]
        if still_ns < _LIKELY_NS:
            continue
        at_least = since[rank.name] == first_count_ns(window)
        running = text.counted(rank.running or 0, "request")
        cores = [
            process for process in with_role(window.now, "engine core") if rank.name in (process.rank or "").split()
        ]
        yield Finding(
            cause="rank_stands",
            severity="stuck",
            confidence="sure" if still_ns >= _SURE_NS else "likely",
            summary=f"{rank.name} of {len(scheduler.ranks)} data-parallel ranks stands: it has {running} running and "
            f"computed no token for {text.lasting(still_ns, at_least=at_least)} by the server's own counts",
            evidence=(Evidence("scheduler.ranks", f"{rank.name} running {running}, and no total rose"),),
            next_step=f"inferdbg attach {cores[0].pid}" if cores else "look at it on its own machine",
            since_ns=since[rank.name],
            at_least=at_least,
            explains=("no_progress",),
        )


def _unmoved_since(window: Window, now: Rank) -> int:
    """When the oldest of the readings was made since which it ran requests and computed nothing; of one that works or
    is idle the newest."""
    scheduler = window.now.scheduler
    assert scheduler is not None
    since_ns = scheduler.origin.mono_ns
    for snapshot in reversed(window.snapshots):
        ranks = snapshot.scheduler.ranks if snapshot.scheduler is not None else ()
        then = next((rank for rank in ranks if rank.name == now.name), None)
        if snapshot.scheduler is None or then is None or not then.running:
            break
        if then.computed_tokens_total != now.computed_tokens_total or then.computed_tokens_total is None:
            break
        since_ns = snapshot.scheduler.origin.mono_ns
    return since_ns
