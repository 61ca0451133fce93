"""The engine's process is gone: when, and in the middle of what."""

from collections.abc import Iterator, Sequence

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.kernel import ask_the_kernel
from inferdbg.diagnosis.lately import events_of, place_of, request_named
from inferdbg.diagnosis.roles import alive_pids, named, with_role
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.server import Server
from inferdbg.facts.window import Window

_LAST_WORDS = 3
_BEHIND = ("engine core", "worker")


def check(window: Window) -> Iterator[Finding]:
    server, pulse = window.now.server, window.now.pulse
    if server is None or server.state != "dead":
        return
    if server.box_path is None:
        yield from _front_end_gone(window, server)
        return
    yield Finding(
        cause="engine_dead",
        severity="dead",
        confidence="sure",
        summary=f"{server.engine} pid {server.pid} died{_when(server, pulse)}{_amid(pulse)}",
        evidence=tuple(_evidence(window, pulse)),
        next_step=ask_the_kernel(window, (server.pid or 0,)),
        explains=("step_stalled", "kernel_wedged", "engine_thread_gone"),
    )


def _front_end_gone(window: Window, server: Server) -> Iterator[Finding]:
    """Of somebody else's server, which leaves nothing that says how it ended; its orphans are another finding."""
    if server.pid is None or server.pid in alive_pids(window.now):
        return
    seen_ns = _last_seen(window, server)
    lived = (
        f" some {text.duration(seen_ns - server.started_mono_ns)} after its start"
        if server.started_mono_ns and seen_ns is not None
        else ""
    )
    left = [process for role in _BEHIND for process in with_role(window.now, role)]
    others = sum(1 for _ in alive_pids(window.now))
    gone, first = _with_it(window, server.pid)
    yield Finding(
        cause="engine_dead",
        severity="dead",
        confidence="sure",
        summary=f"{server.engine} pid {server.pid} has ended{lived}: clients are refused"
        + (f", and {text.count(others)} of its processes live on" if others else "")
        + _gone_before(first),
        evidence=(
            Evidence("server.state", f"there is no process {server.pid} any more; how it ended the kernel knows"),
            *(
                Evidence("processes", f"{named(process)} is gone, too: which went first was not seen")
                for process in gone
            ),
        ),
        next_step=ask_the_kernel(window, (*(process.pid for process in (*first, *gone)), server.pid))
        + (f"; then kill {_pids(left)}   (they serve nobody)" if left else ""),
        since_ns=seen_ns,
        explains=("step_stalled", "kernel_wedged", "engine_thread_gone", "orphans", "not_answering"),
    )


def _gone_before(first: Sequence[Process]) -> str:
    who = " and ".join(named(process) for process in first[:2])
    return f"; {who} {'was' if len(first) == 1 else 'were'} gone before" if first else ""


def _pids(processes: Sequence[Process]) -> str:
    return " ".join(str(process.pid) for process in processes)


def _with_it(window: Window, front: int) -> tuple[list[Process], list[Process]]:
    """Engine cores and workers that are gone as well: between two looks, and those that were gone at an earlier one."""
    seen: dict[int, Process] = {}
    last: set[int] = set()
    for snapshot in window.snapshots:
        if front in (there := set(alive_pids(snapshot))):
            seen |= {process.pid: process for role in _BEHIND for process in with_role(snapshot, role)}
            last = there
    gone = [process for process in seen.values() if process.pid not in set(alive_pids(window.now))]
    return [one for one in gone if one.pid in last], [one for one in gone if one.pid not in last]


def _last_seen(window: Window, server: Server) -> int | None:
    for snapshot in reversed(window.snapshots):
        if snapshot.server is not None and snapshot.server.pid == server.pid and snapshot.server.state == "alive":
            return snapshot.mono_ns
    return None


def _when(server: Server, pulse: Pulse | None) -> str:
    if pulse is None or pulse.heartbeat_ns is None or server.started_wall_ns is None or server.started_mono_ns is None:
        return ""
    lived_ns = pulse.heartbeat_ns - server.started_mono_ns
    if lived_ns < 0:
        return ""  # of a damaged box
    return f" at {text.clock(server.started_wall_ns + lived_ns)}, {text.duration(lived_ns)} after its start,"


def _amid(pulse: Pulse | None) -> str:
    if pulse is None:
        return ""
    if pulse.phase == "idle":
        return f" while idle, after step {text.count(pulse.step)}"
    if pulse.phase in ("starting", "stopping"):
        return f" while {pulse.phase}"
    return f" in the middle of step {text.count(pulse.step)}: {place_of(pulse)}"


def _evidence(window: Window, pulse: Pulse | None) -> Iterator[Evidence]:
    yield Evidence("server.state", "nobody holds the lock of its black box, and it was not marked as stopped cleanly")
    if pulse is not None and pulse.intent is not None:
        block = "" if pulse.intent.block is None else f" of block {pulse.intent.block}"
        owner = "" if pulse.intent.request is None else f" for {request_named(window, pulse.intent.request)}"
        yield Evidence("pulse.intent", f"half done: {pulse.intent.operation}{block}{owner}; all else is consistent")
    scheduler = window.now.scheduler
    if scheduler is not None and scheduler.running is not None:
        yield Evidence(
            "scheduler", f"{text.counted(scheduler.running, 'request')} ran, {text.count(scheduler.waiting)} waited"
        )
    for event in events_of(window, "fault", "failed", "logged")[-_LAST_WORDS:]:
        before = text.duration(window.now.mono_ns - event.mono_ns)
        yield Evidence(f"events.{event.seq}", f"{event.kind} {before} before: {event.text}")
