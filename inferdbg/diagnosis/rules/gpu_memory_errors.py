"""The memory of a GPU had errors that ECC could not correct, or waits for a reset to put bad rows out of use."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.gpus import gpu_at, used_gpus
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Counter, Window


def check(window: Window) -> Iterator[Finding]:
    for gpu in used_gpus(window.now):
        health = gpu.health
        if health is None or not (health.uncorrected_total or health.pending or health.failed):
            continue
        new = window.delta(_uncorrected(gpu.index)) or 0
        said: list[str] = []
        if health.uncorrected_total:
            lately = f", {new} of them in the last minute" if new else " since its driver was loaded"
            said.append(f"{text.counted(health.uncorrected_total, 'error')} that ECC could not correct{lately}")
        if health.pending:
            said.append("bad memory that is put out of use at the next reset")
        if health.failed:
            said.append("no spare row left for bad ones: it is to be replaced")
        yield Finding(
            cause="gpu_memory_errors",
            severity="wrong" if new or health.failed else "note",
            confidence="sure",
            summary=f"GPU {gpu.index} has {' and '.join(said)}",
            evidence=(Evidence("gpus.items.health", f"uncorrected {health.uncorrected_total}"),),
            next_step=f"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {gpu.index}",
        )


def _uncorrected(index: int) -> Counter:
    def read(snapshot: Snapshot) -> int | None:
        gpu = gpu_at(snapshot, index)
        return gpu.health.uncorrected_total if gpu is not None and gpu.health is not None else None

    return read
