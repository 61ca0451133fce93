"""The front end lives, its engine core or a worker does not: whatever it is asked, nobody computes it."""

from collections.abc import Iterator
from typing import NamedTuple

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.kernel import ask_the_kernel
from inferdbg.diagnosis.roles import alive_pids, named, seen_last, with_role
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window

_WITH_CORES = ("vllm", "sglang")
_UNWELL = "503"
FRONT, CORE = "front end", "engine core"


def check(window: Window) -> Iterator[Finding]:
    server, processes = window.now.server, window.now.processes
    if server is None or processes is None or server.engine not in _WITH_CORES or server.state != "alive":
        return
    front = with_role(window.now, FRONT)
    if not front or processes.startup is not None or with_role(window.now, "starting"):
        return
    # A server that was restarted has others: only what belonged to this front end can be missing.
    lived = Window([one for one in window.snapshots if front[0].pid in {each.pid for each in with_role(one, FRONT)}])
    if seen_last(lived, CORE) is None:
        yield from _never_seen(window, front[0])
    cores = _gone(lived, CORE) if not with_role(window.now, CORE) else []
    workers = _gone(lived, "worker")
    if cores and workers:
        yield from _both(window, front[0], cores[0], workers[0])
    elif cores or workers:
        yield _finding(window, front[0], (cores or workers)[0])


def _both(window: Window, front: Process, core: "_Gone", worker: "_Gone") -> Iterator[Finding]:
    """A worker that dies takes its engine core along, and the other way round: who went first is told where it was
    seen."""
    if core.then is worker.then:
        yield _finding(window, front, core, worker)
        return
    first, second = sorted((core, worker), key=lambda one: one.then.mono_ns)
    yield _finding(window, front, first, explains=(second.cause,))
    yield _finding(window, front, second)


class _Gone(NamedTuple):
    """``then``: the last moment at which it was there."""

    process: Process
    then: Snapshot

    @property
    def cause(self) -> str:
        return "engine_core_gone" if self.process.role == CORE else "worker_gone"


def _gone(lived: Window, role: str) -> list[_Gone]:
    """Who was there in that role and is not any more, whoever went first first."""
    there = {process.pid for process in with_role(lived.now, role)}
    gone = [_Gone(one, _last_with(lived, one.pid)) for one in _of_window(lived, role) if one.pid not in there]
    return sorted(gone, key=lambda one: one.then.mono_ns)


def _finding(window: Window, front: Process, *gone: _Gone, explains: tuple[str, ...] = ()) -> Finding:
    """Of several, which were last seen together."""
    who = " and ".join(named(one.process) for one in gone)
    are, order = ("is", "") if len(gone) == 1 else ("are", " (which went first was not seen)")
    first = gone[0]
    return Finding(
        cause=first.cause,
        severity="dead",
        confidence="sure",
        summary=f"{who} {are} gone{order}, {named(front)} lives on: no request is computed any more",
        evidence=tuple(
            Evidence(
                "processes",
                f"{named(one.process)} was last seen {_ago(window, one.then.mono_ns)} ago, "
                f"{len(with_role(one.then, one.process.role or ''))} of its kind",
            )
            for one in gone
        ),
        next_step=ask_the_kernel(window, [one.process.pid for one in gone]),
        since_ns=first.then.mono_ns,
        explains=("requests_failing", "not_answering", *explains),
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
