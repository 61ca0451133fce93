"""Heat or the power supply keeps a GPU that works below its clocks; that it is at its power cap is usual."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.gpus import began_before, gpu_at, used_gpus
from inferdbg.facts.sections.gpus import HURTING, Gpu
from inferdbg.facts.window import SECOND, Window

_LASTS_NS = 5 * SECOND
_WORKS = 0.3
"""Share of time in which a kernel ran."""


def check(window: Window) -> Iterator[Finding]:
    for gpu in used_gpus(window.now):
        since_ns = _since(window, gpu.index)
        if since_ns is None or window.now.mono_ns - since_ns < _LASTS_NS:
            continue
        lasts = text.lasting(window.now.mono_ns - since_ns, at_least=(at_least := began_before(window, since_ns)))
        clocks = f"at {gpu.sm_clock_mhz:,} of {gpu.sm_clock_max_mhz:,} MHz" if _clocks_known(gpu) else "slower"
        heat = f", {gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
        yield Finding(
            cause="gpu_throttled",
            severity="slow",
            confidence="likely",
            summary=f"GPU {gpu.index} works {clocks}: held back by {', '.join(_hurting(gpu))}{heat}",
            evidence=(Evidence("gpus.items.throttle", f"so in every look for {lasts}"),),
            next_step=f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {gpu.index}",
            since_ns=since_ns,
            at_least=at_least,
        )


def _since(window: Window, index: int) -> int | None:
    """mono_ns of the first of the last readings in all of which it worked and was held back; None when it is not."""
    since_ns = None
    for snapshot in reversed(window.snapshots):
        gpu = gpu_at(snapshot, index)
        if snapshot.gpus is None or gpu is None or gpu.busy is None or gpu.busy < _WORKS or not _hurting(gpu):
            break
        since_ns = snapshot.gpus.origin.mono_ns
    return since_ns


def _hurting(gpu: Gpu) -> list[str]:
    return [word for word in gpu.throttle or () if word in HURTING]


def _clocks_known(gpu: Gpu) -> bool:
    return gpu.sm_clock_mhz is not None and gpu.sm_clock_max_mhz is not None
