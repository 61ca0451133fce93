"""The processes behind a server, as findings name them: by what they do."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window

VITAL = ("engine", "front end", "engine core", "worker")
"""Without one of these nobody is served."""


def named(process: Process) -> str:
    """``engine core 60 (VLLM::EngineCore)``, ``worker 61 (VLLM::Worker_TP1, TP1)``, ``process 58 (python)``."""
    role = process.role if process.role not in (None, "engine") else "process"
    rank = f", {process.rank}" if process.rank is not None else ""
    return f"{role} {process.pid} ({text.safe(process.name)}{rank})"


def with_role(snapshot: Snapshot, role: str) -> tuple[Process, ...]:
    """Those that have not ended."""
    items = snapshot.processes.items if snapshot.processes is not None else ()
    return tuple(process for process in items if process.role == role and process.state not in ("Z", "X"))


def seen_last(window: Window, role: str) -> tuple[Snapshot, tuple[Process, ...]] | None:
    """The newest moment at which there were some, and they."""
    for snapshot in reversed(window.snapshots):
        if found := with_role(snapshot, role):
            return snapshot, found
    return None


def since_state(window: Window, pid: int, *states: str) -> int | None:
    """mono_ns of the first of the last looks at all of which the process was in one of these states; None when it was
    so at the first look already: since when, that does not tell."""
    began = None
    for snapshot in reversed(window.snapshots):
        if snapshot.processes is None:
            continue
        if not any(process.pid == pid and process.state in states for process in snapshot.processes.items):
            return began
        began = snapshot.processes.origin.mono_ns
    return None


def alive_pids(snapshot: Snapshot) -> Iterator[int]:
    for process in snapshot.processes.items if snapshot.processes is not None else ():
        if process.state not in ("Z", "X"):
            yield process.pid
