"""A GPU fell off the bus or must be reset: what runs on it waits for ever or dies."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.gpus import began_before, gpu_at, was_used
from inferdbg.facts.sections.gpus import Gpu
from inferdbg.facts.window import Window

_FOLLOWS = (
    "kernel_wedged",
    "step_stalled",
    "no_progress",
    "rank_stands",
    "engine_dead",
    "engine_core_gone",
    "not_answering",
)


def check(window: Window) -> Iterator[Finding]:
    for gpu in window.now.gpus.items if window.now.gpus is not None else ():
        if gpu.state not in ("lost", "needs reset"):
            continue
        used = was_used(window, gpu.index)
        last = f", Xid {gpu.xids[-1].code} before" if gpu.xids else ""
        whose = "the server ran on it" if used else "whether the server ran on it is not known"
        name = f"GPU {gpu.index} ({text.safe(gpu.name or 'unknown')}{f', {text.safe(gpu.bus)}' if gpu.bus else ''})"
        since_ns = _since(window, gpu)
        yield Finding(
            cause="gpu_lost",
            severity="stuck" if used else "note",
            confidence="sure",
            summary=f"{name} {'is lost' if gpu.state == 'lost' else 'must be reset'}: {gpu.why}{last}; {whose}",
            evidence=(Evidence("gpus.items.state", f"NVML says so of GPU {gpu.index}"),),
            next_step="sudo dmesg | grep -iE 'NVRM|Xid'",
            since_ns=since_ns,
            at_least=began_before(window, since_ns),
            explains=_FOLLOWS if used else (),
        )


def _since(window: Window, now: Gpu) -> int:
    """mono_ns of the first of the last readings that say so."""
    since_ns = window.now.mono_ns
    for snapshot in reversed(window.snapshots):
        then = gpu_at(snapshot, now.index)
        if snapshot.gpus is None or then is None or then.state != now.state:
            break
        since_ns = snapshot.gpus.origin.mono_ns
    return since_ns
