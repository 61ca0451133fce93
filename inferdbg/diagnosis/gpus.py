"""The GPUs behind a server, as rules judge them."""

from inferdbg.diagnosis.roles import alive_pids
from inferdbg.facts.sections.gpus import Gpu
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window


def used_gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Those that the server's processes use; all where that cannot be told."""
    return snapshot.gpus.used_by(frozenset(alive_pids(snapshot))) if snapshot.gpus is not None else ()


def gpu_at(snapshot: Snapshot, index: int) -> Gpu | None:
    """None where it is not seen."""
    items = snapshot.gpus.items if snapshot.gpus is not None else ()
    return next((gpu for gpu in items if gpu.index == index), None)


def was_used(window: Window, index: int) -> bool:
    """A process of the server was seen on it."""
    for snapshot in window.snapshots:
        pids, gpu = set(alive_pids(snapshot)), gpu_at(snapshot, index)
        if gpu is not None and any(process.pid in pids for process in gpu.processes or ()):
            return True
    return False


def began_before(window: Window, since_ns: int) -> bool:
    """What is so since that reading was so at the first one already."""
    first = next((one.gpus for one in window.snapshots if one.gpus is not None), None)
    return first is not None and since_ns <= first.origin.mono_ns
