"""The engine lives, is in the middle of a step, and nothing moves: in which phase, layer and kernel, for how long."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Confidence, Evidence, Finding
from inferdbg.diagnosis.lately import events_of, in_kernel, normal_step_ns, patience_ns, place_of
from inferdbg.diagnosis.roles import with_role
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window

_COARSE, _COMPUTING = 2, 20
"""Times the usual patience."""
_STACK = "py-spy dump --nonblocking --pid {pid}"


def check(window: Window) -> Iterator[Finding]:
    pulse, server = window.now.pulse, window.now.server
    if pulse is None or pulse.phase in ("starting", "idle", "stopping"):
        return
    if server is not None and server.state != "alive":
        return
    still = _unmoved(window)
    since_ns = _since(window, still, pulse)
    at_least = since_ns == pulse.seen_from_ns
    silent_ns = window.now.mono_ns - since_ns
    if silent_ns <= _patience_ns(window, pulse, still):
        return
    wedged = in_kernel(pulse)
    cores = with_role(window.now, "engine core")
    pid = cores[0].pid if cores else server.pid if server is not None and server.pid is not None else "PID"
    yield Finding(
        cause="kernel_wedged" if wedged else "step_stalled",
        severity="stuck",
        confidence=_confidence(window, still),
        summary=f"step {text.count(pulse.step)} has not moved for "
        f"{text.lasting(silent_ns, at_least=at_least)}: {place_of(pulse)}",
        evidence=tuple(_evidence(window, pulse, text.lasting(silent_ns, at_least=at_least))),
        next_step=_STACK.format(pid=pid),
        since_ns=since_ns,
        at_least=at_least,
        explains=("front_and_engine_disagree", "not_answering"),
    )


def _patience_ns(window: Window, pulse: Pulse, still: list[Snapshot]) -> int:
    """An engine that tells of no layers and kernels gets more of it, most while its workers compute: a long prompt may
    take long."""
    usual_ns = patience_ns(window)
    if pulse.layer is not None or pulse.kernels_launched is not None:
        return usual_ns
    return usual_ns * (_COMPUTING if pulse.phase in ("forward", "sample") and _compute(still) else _COARSE)


def _compute(still: list[Snapshot]) -> bool:
    """Workers took half of a processor while nothing else was seen to move."""
    before = {process.pid: process.cpu_ns for process in with_role(still[0], "worker")}
    elapsed_ns = still[-1].mono_ns - still[0].mono_ns
    for process in with_role(still[-1], "worker"):
        then_ns = before.get(process.pid)
        if then_ns is not None and process.cpu_ns is not None and 2 * (process.cpu_ns - then_ns) > elapsed_ns > 0:
            return True
    return False


def _unmoved(window: Window) -> list[Snapshot]:
    """The last Snapshots, oldest first, between which the engine did not do anything that it would tell."""
    still: list[Snapshot] = []
    for snapshot in reversed(window.snapshots):
        if snapshot.pulse is None or _position(snapshot.pulse) != _position(window.now.pulse):
            break
        still.append(snapshot)
    return still[::-1]


def _position(pulse: Pulse | None) -> tuple[int | str | None, ...]:
    if pulse is None:
        return ()
    return (
        pulse.step,
        pulse.phase,
        pulse.phase_since_ns,
        pulse.layer,
        pulse.kernel,
        pulse.kernels_launched,
        pulse.kernels_completed,
    )


def _since(window: Window, still: list[Snapshot], pulse: Pulse) -> int:
    """The phase's begin; but where we saw a kernel move within this phase, the first look that saw no more of it."""
    before = window.snapshots[-len(still) - 1] if len(still) < len(window.snapshots) else None
    if before is not None and before.pulse is not None and before.pulse.phase_since_ns == pulse.phase_since_ns:
        return still[0].mono_ns
    return pulse.phase_since_ns


def _confidence(window: Window, still: list[Snapshot]) -> Confidence:
    """One look cannot tell a long kernel from a wedged one; two that saw nothing move can nearly."""
    if len(still) == 1:
        return "possible"
    return "sure" if window.now.mono_ns - still[0].mono_ns > patience_ns(window) else "likely"


def _evidence(window: Window, pulse: Pulse, silent: str) -> Iterator[Evidence]:
    yield Evidence("pulse.phase_since_ns", f"in phase {pulse.phase} for {silent}")
    if in_kernel(pulse):
        completed = text.count(pulse.kernels_completed)
        launched = f"{text.counted(pulse.kernels_launched, 'kernel')} launched, {completed} completed"
        yield Evidence("pulse.kernels_launched", launched)
    normal_ns = normal_step_ns(window)
    if normal_ns is not None:
        yield Evidence("steps", f"a normal step takes {text.duration(normal_ns)} (median)")
    if pulse.intent is not None:
        block = "" if pulse.intent.block is None else f" of block {pulse.intent.block}"
        yield Evidence("pulse.intent", f"half done: {pulse.intent.operation}{block}")
    for event in events_of(window, "logged")[-1:]:
        yield Evidence(f"events.{event.seq}", f"{text.duration(window.now.mono_ns - event.mono_ns)} ago: {event.text}")
    for process in window.now.processes.items if window.now.processes is not None else ():
        if process.state is not None:
            yield Evidence("processes.state", f"process {process.pid} ({process.name}) is in state {process.state}")
