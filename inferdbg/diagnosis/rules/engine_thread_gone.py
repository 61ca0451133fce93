"""The process lives but the engine's heartbeat stopped while idle: the thread that runs it has ended or hangs."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.window import SECOND, Window

_PATIENCE_NS = 2 * SECOND  # ten heartbeats of an idle engine


def check(window: Window) -> Iterator[Finding]:
    pulse, server = window.now.pulse, window.now.server
    if pulse is None or pulse.phase != "idle" or (server is not None and server.state != "alive"):
        return
    silent_ns = window.now.mono_ns - pulse.heartbeat_ns
    if silent_ns <= _PATIENCE_NS:
        return
    pid = server.pid if server is not None and server.pid is not None else "PID"
    yield Finding(
        cause="engine_thread_gone",
        severity="stuck",
        confidence="likely",
        summary=f"no heartbeat for {text.duration(silent_ns)} while idle: the engine's thread has ended or hangs",
        evidence=(Evidence("pulse.heartbeat_ns", "an idle engine stores one every 200 ms"),),
        next_step=f"py-spy dump --nonblocking --pid {pid}",
        since_ns=pulse.heartbeat_ns,
    )
