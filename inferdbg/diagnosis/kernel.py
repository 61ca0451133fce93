"""What the kernel's log says of a server: which of its events are of this server's time, and of its processes."""

from collections.abc import Iterator, Sequence

from inferdbg.diagnosis.finding import Confidence
from inferdbg.diagnosis.roles import named
from inferdbg.facts.sections.kernel_log import KernelEvent
from inferdbg.facts.window import SECOND, Window

_LATELY_NS = 3600 * SECOND
_BEFORE_NS = 2 * SECOND  # the kernel's clock and ours may be so far apart
_TOGETHER_NS = 2 * SECOND
_AFTER_NS = 60 * SECOND  # a dead engine's last moment is its last sign of life
ENDS = (
    "engine_dead",
    "engine_core_gone",
    "worker_gone",
    "orphans",
    "requests_failing",
    "step_stalled",
    "kernel_wedged",
    "no_progress",
    "not_answering",
    "front_and_engine_disagree",
)
"""What a process that the kernel ended leaves behind."""


def told(window: Window, *kinds: str) -> Iterator[KernelEvent]:
    """Events of these kinds since the server began, or of the last hour where that is not known, oldest first."""
    log, server = window.now.kernel_log, window.now.server
    began_ns = server.started_mono_ns if server is not None else None
    since_ns = window.now.mono_ns - _LATELY_NS if began_ns is None else began_ns - _BEFORE_NS
    until_ns = window.now.mono_ns + _AFTER_NS
    for event in log.items if log is not None else ():
        if event.kind in kinds and event.mono_ns is not None and since_ns <= event.mono_ns <= until_ns:
            yield event


def whose(window: Window, event: KernelEvent) -> tuple[str, Confidence] | None:
    """A process of this server, as findings name it; None where it is of nobody that we saw. A crash is told of a
    thread: where its number was never seen, that it came with the server's last sign of life makes it likely."""
    if event.pid is None:
        return None
    for snapshot in reversed(window.snapshots):
        items = snapshot.processes.items if snapshot.processes is not None else ()
        found = next((one for one in items if event.pid in (one.pid, *one.thread_ids)), None)
        if found is not None:
            return named(found), "sure"
        if snapshot.server is not None and snapshot.server.pid == event.pid:
            return f"{snapshot.server.engine} {event.pid}", "sure"
    server = window.now.server
    if server is None or server.state != "dead" or server.box_path is None or event.kind not in ("segfault", "trap"):
        return None
    if event.mono_ns is None or abs(event.mono_ns - window.now.mono_ns) >= _TOGETHER_NS:
        return None
    return f"thread {event.pid}, with the last sign of life of {server.engine} {server.pid},", "likely"


def ask_the_kernel(window: Window, pids: Sequence[int]) -> str:
    """Where to look for why processes ended: in the kernel's log, unless that was read and names none of them."""
    log = window.now.kernel_log
    if log is not None and not any(event.pid in pids or whose(window, event) for event in log.items):
        return "the end of its log says why: the kernel's log names none of its processes"
    whom = f"-w {pids[0]}" if len(pids) == 1 else f"-wE '{'|'.join(map(str, pids))}'"
    return f"dmesg -T | grep {whom}   (the kernel says whom it killed, and who crashed)"
