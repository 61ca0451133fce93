"""The server waits for memory: pages are thrown out and fetched again, by the kernel's own account of lost time."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import stalled_share
from inferdbg.facts.window import Window

_MATTERS = 0.10


def check(window: Window) -> Iterator[Finding]:
    lost = stalled_share(window, "memory")
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
