"""The process is stopped by a signal or a debugger: nothing in it can run."""

from collections.abc import Iterator

from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.window import Window


def check(window: Window) -> Iterator[Finding]:
    server, processes = window.now.server, window.now.processes
    if processes is None or (server is not None and server.state != "alive"):
        return
    for process in processes.items:
        if process.state in ("T", "t"):
            by = "a debugger traces it" if process.state == "t" else "SIGSTOP, SIGTSTP or a debugger"
            yield Finding(
                cause="process_stopped",
                severity="stuck",
                confidence="sure",
                summary=f"process {process.pid} ({process.name}) is stopped ({by}): nothing in it runs",
                evidence=(Evidence("processes.state", f"/proc/{process.pid}/stat says {process.state}"),),
                next_step=f"kill -CONT {process.pid}",
                since_ns=window.now.pulse.heartbeat_ns if window.now.pulse is not None else None,
                explains=("kernel_wedged", "step_stalled", "engine_thread_gone"),
            )
