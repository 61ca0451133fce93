"""A process of the server is stopped by a signal or a debugger: nothing in it can run."""

from collections.abc import Iterator

from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.roles import VITAL, named, since_state
from inferdbg.facts.window import Window

_FOLLOWS = {
    "engine core": ": nothing is scheduled, and the server looks healthy from outside",
    "worker": ": the engine core waits for it, and the server looks healthy from outside",
    "front end": ": clients get no answer",
}


def check(window: Window) -> Iterator[Finding]:
    server, processes, pulse = window.now.server, window.now.processes, window.now.pulse
    if processes is None or (server is not None and server.state != "alive"):
        return
    heartbeat_ns = pulse.heartbeat_ns if pulse is not None else None
    first_look_ns = pulse.seen_from_ns if pulse is not None else None
    for process in processes.items:
        if process.state in ("T", "t"):
            by = "a debugger traces it" if process.state == "t" else "SIGSTOP, SIGTSTP or a debugger"
            follows = _FOLLOWS.get(process.role or "", ": nothing in it runs")
            yield Finding(
                cause="process_stopped",
                severity="stuck" if process.role is None or process.role in VITAL else "note",
                confidence="sure",
                summary=f"{named(process)} is stopped ({by}){follows}",
                evidence=(
                    Evidence("processes.state", f"/proc/{process.pid}/stat says {process.state}"),
                    *_health(window, process.role),
                ),
                next_step=f"kill -CONT {process.pid}",
                since_ns=heartbeat_ns or since_state(window, process.pid, "T", "t"),
                explains=(
                    "kernel_wedged",
                    "step_stalled",
                    "engine_thread_gone",
                    "front_and_engine_disagree",
                    "not_answering",
                ),
                at_least=heartbeat_ns is not None and heartbeat_ns == first_look_ns,
            )


def _health(window: Window, role: str | None) -> Iterator[Evidence]:
    """That the server says it is well, while it cannot be."""
    server = window.now.server
    if role in ("engine core", "worker") and server is not None and server.health is not None:
        yield Evidence("server.health", f"/health answers {server.health.answer} all the same")
