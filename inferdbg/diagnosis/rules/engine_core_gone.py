"""The front end lives, its engine core or a worker does not: whatever it is asked, nobody computes it."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.kernel import ask_the_kernel
from inferdbg.diagnosis.roles import alive_pids, named, seen_last, with_role
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window

_WITH_CORES = ("vllm", "sglang")
_UNWELL = "503"
FRONT = "front end"


def check(window: Window) -> Iterator[Finding]:
    server, processes = window.now.server, window.now.processes
    if server is None or processes is None or server.engine not in _WITH_CORES or server.state != "alive":
        return
    front = with_role(window.now, FRONT)
    if not front or processes.startup is not None or with_role(window.now, "starting"):
        return
    # A server that was restarted has others: only what belonged to this front end can be missing.
    lived = Window([one for one in window.snapshots if front[0].pid in {each.pid for each in with_role(one, FRONT)}])
    for role, cause in (("engine core", "engine_core_gone"), ("worker", "worker_gone")):
        if seen_last(lived, role) is None:
            if role == "engine core":
                yield from _never_seen(window, front[0])
            continue
        now = {process.pid for process in with_role(window.now, role)}
        gone = [process for process in _of_window(lived, role) if process.pid not in now]
        if gone and (not now or role == "worker"):
            then = _last_with(lived, gone[0].pid)
            yield Finding(
                cause=cause,
                severity="dead",
                confidence="sure",
                summary=f"{named(gone[0])} is gone, {named(front[0])} lives on: no request is computed any more",
                evidence=(
                    Evidence(
                        "processes",
                        f"it was last seen {_ago(window, then.mono_ns)} ago, {len(with_role(then, role))} of its kind",
                    ),
                ),
                next_step=ask_the_kernel(window, (gone[0].pid,)),
                since_ns=then.mono_ns,
                explains=("requests_failing", "worker_gone", "not_answering") if role == "engine core" else (),
            )


def _never_seen(window: Window, front: Process) -> Iterator[Finding]:
    server = window.now.server
    unwell = server is not None and server.health is not None and server.health.answer == _UNWELL
    yield Finding(
        cause="engine_core_gone",
        severity="dead" if unwell else "note",
        confidence="sure" if unwell else "possible",
        summary=f"{named(front)} has no engine core" + (": none is computed" if unwell else " on this machine"),
        evidence=(
            Evidence("processes", "none of its descendants is one"),
            *((Evidence("server.health", f"/health answers {_UNWELL}"),) if unwell else ()),
        ),
        next_step="the end of the server's log says why it ended"
        if unwell
        else "with data parallelism it may run elsewhere",
    )


def _of_window(window: Window, role: str) -> tuple[Process, ...]:
    """All that were seen in that role, each once."""
    found = {process.pid: process for snapshot in window.snapshots for process in with_role(snapshot, role)}
    return tuple(found.values())


def _last_with(window: Window, pid: int) -> Snapshot:
    """The newest moment at which that process was there."""
    return next(one for one in reversed(window.snapshots) if pid in alive_pids(one))


def _ago(window: Window, mono_ns: int) -> str:
    return text.duration(max(0, window.now.mono_ns - mono_ns))
