"""The server waits for memory: pages are thrown out and fetched again, by the kernel's own account of lost time."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.sections.processes import Stalled
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

_OVER_NS = 10 * SECOND
_MATTERS = 0.10


def stalled(snapshot: Snapshot, resource: str) -> Stalled | None:
    found = snapshot.processes.stalled if snapshot.processes is not None else ()
    return next((one for one in found if one.resource == resource), None)


def share(window: Window, resource: str, over_ns: int = _OVER_NS) -> float | None:
    """Of the last time, how much at least one task waited for that; None where it is not known."""
    rate = window.rate(
        lambda snapshot: one.some_ns if (one := stalled(snapshot, resource)) is not None else None, over_ns, "processes"
    )
    return None if rate is None else min(1.0, rate / SECOND)


def check(window: Window) -> Iterator[Finding]:
    lost = share(window, "memory")
    processes = window.now.processes
    if lost is None or lost < _MATTERS or processes is None:
        return
    swapped = sum(process.swap_bytes or 0 for process in processes.items)
    whose = "its control group" if processes.stalled_group else "this machine"
    yield Finding(
        cause="memory_stalls",
        severity="slow",
        confidence="sure" if processes.stalled_group else "likely",
        summary=f"{text.percent(lost)} of the last time somebody on {whose} waited for memory"
        + (f"; {text.size(swapped)} of the server are swapped out" if swapped else ""),
        evidence=(Evidence("processes.stalled", "memory pressure (PSI), some"),),
        next_step="free memory or raise the limit: a smaller --swap-space or CPU offload, fewer other processes",
    )
