"""The process lives but the thread that runs the engine does not go on: its last words say so, or its heartbeat."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import events_of, place_of
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.window import SECOND, Window

LAST_WORDS = "the engine's thread ended: "
"""How the event begins that the thread logs when an exception ends it."""
_PATIENCE_NS = 2 * SECOND  # ten heartbeats of an idle engine


def check(window: Window) -> Iterator[Finding]:
    pulse, server = window.now.pulse, window.now.server
    if server is not None and server.state != "alive":
        return
    ended = [e for e in events_of(window, "logged", over_ns=window.now.mono_ns) if e.text.startswith(LAST_WORDS)]
    if ended:
        yield Finding(
            cause="engine_thread_gone",
            severity="stuck",
            confidence="sure",
            summary=f"the engine's thread ended{_amid(pulse)}: {ended[-1].text.removeprefix(LAST_WORDS)}",
            evidence=(Evidence(f"events.{ended[-1].seq}", ended[-1].text),),
            next_step="restart it; the traceback stands in what the server wrote to stderr",
            since_ns=ended[-1].mono_ns,
            explains=("step_stalled", "kernel_wedged"),
        )
        return
    if pulse is None or pulse.phase != "idle" or pulse.heartbeat_ns is None:
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


def _amid(pulse: Pulse | None) -> str:
    if pulse is None or pulse.phase in ("idle", "starting", "stopping"):
        return ""
    return f" in the middle of step {text.count(pulse.step)}, {place_of(pulse)}"
