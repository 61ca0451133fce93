"""NVML and GPM of this machine's GPUs against copies of known size; under a minute. Exit code 4 without a GPU.

python -m benchmarks.gpu_check                 the copies need torch with CUDA, reading does not
"""

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Any

from inferdbg import text
from inferdbg.collect.collector import Collector
from inferdbg.facts.sections.gpus import Gpu
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window
from inferdbg.probes.nvml import Nvml
from inferdbg.tui.drawing.gpus import gpus_lines
from inferdbg.tui.ink import plain

if TYPE_CHECKING:
    import torch

PATIENCE_NS = 30 * SECOND
LOOKS = 5
COPIED_BYTES = 1 << 30
TOLERANCE = 0.15
"""Between what was copied and what GPM saw: refreshes, and a peak that is a formula."""
FINE, DIFFERS, NOTHING_CHECKED = 0, 1, 4


class Load(threading.Thread):
    """Calls ``work``, which moves so many bytes and waits for it, until it is told to stop."""

    def __init__(self, work: Callable[[], None], bytes_each: int) -> None:
        super().__init__(name="load", daemon=True)
        self._work, self._bytes_each, self._over = work, bytes_each, threading.Event()
        self.bytes_per_s = 0.0

    def run(self) -> None:
        began, done = time.monotonic(), 0
        while not self._over.is_set():
            self._work()
            done += 1
        self.bytes_per_s = done * self._bytes_each / (time.monotonic() - began)

    def stop(self) -> None:
        self._over.set()
        self.join()


def look(collector: Collector) -> Snapshot:
    """One that was read now."""
    return collector.round(PATIENCE_NS)


def during(collector: Collector, load: Load, index: int) -> list[Gpu]:
    """Looks whose samples both lie within the load."""
    load.start()
    try:
        time.sleep(1)
        looks = []
        for _ in range(LOOKS + 1):
            looks.append(look(collector))
            time.sleep(1)
    finally:
        load.stop()
    return [gpu for one in looks[1:] if one.gpus is not None for gpu in one.gpus.items if gpu.index == index]


def compared(what: str, seen: list[float | None], load: Load) -> bool:
    known = [one for one in seen if one is not None]
    if not known:
        print(f"{what:<34} moved {text.short(load.bytes_per_s)}B/s, not measured by this GPU")
        return True
    found = median(known)
    off = found / load.bytes_per_s - 1
    holds = abs(off) <= TOLERANCE
    figures = f"moved {text.short(load.bytes_per_s)}B/s, seen {text.short(found)}B/s, {off:+.0%}"
    print(f"{what:<34} {figures}  {'ok' if holds else 'DIFFERS'}")
    return holds


def index_of(torch_uuid: str, gpus: tuple[Gpu, ...]) -> int | None:
    """Which GPU of NVML torch's first one is: CUDA_VISIBLE_DEVICES may hide and reorder them."""
    return next((gpu.index for gpu in gpus if (gpu.uuid or "").endswith(torch_uuid)), None)


def measured(collector: Collector, cuda: "type[torch.cuda] | Any", gpus: tuple[Gpu, ...]) -> int:  # noqa: ANN401
    import torch

    index = index_of(str(cuda.get_device_properties(0).uuid), gpus)
    if index is None:
        print("not compared: the GPU that torch uses is none of those that NVML shows (a slice of MIG?)")
        return FINE
    here, there = (torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda:0") for _ in range(2))
    host = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
    factor = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda:0")

    def within() -> None:
        for _ in range(50):
            there.copy_(here)
        cuda.synchronize()

    def upwards() -> None:
        here.copy_(host, non_blocking=True)
        cuda.synchronize()

    def multiply() -> None:
        for _ in range(20):
            torch.mm(factor, factor)
        cuda.synchronize()

    within(), upwards(), multiply()  # the first ones load kernels
    copy = Load(within, 50 * 2 * COPIED_BYTES)  # each byte is read and written
    holds = compared(
        "copy within the GPU, DRAM", [gpu.dram_bytes_per_s for gpu in during(collector, copy, index)], copy
    )
    upload = Load(upwards, COPIED_BYTES)
    holds &= compared(
        "copy from the host, PCIe in", [_pcie_in(gpu) for gpu in during(collector, upload, index)], upload
    )
    product = Load(multiply, 0)
    tensor = [gpu.activity.tensor for gpu in during(collector, product, index) if gpu.activity is not None]
    known = [one for one in tensor if one is not None]
    if known:
        works = median(known) > 0.3
        print(f"{'bf16 products, tensor cores':<34} {text.percent(median(known))}  {'ok' if works else 'DIFFERS'}")
        holds &= works
    return FINE if holds else DIFFERS


def _pcie_in(gpu: Gpu) -> float | None:
    seen = gpu.activity.pcie_rx_bytes_per_s if gpu.activity is not None else None
    return seen if seen is not None or gpu.pcie is None else gpu.pcie.rx_bytes_per_s


def main() -> int:
    probe = Nvml(cadence_ns=0, deadline_ns=PATIENCE_NS)
    with closing(Collector(Target("process", "this machine"), [probe])) as collector:
        first = look(collector)
        report = first.probes[0]
        if first.gpus is None:
            print(f"nothing checked: {report.message}\n  {report.hint}", file=sys.stderr)
            return NOTHING_CHECKED
        second = look(collector)
        print("\n".join(plain(one) for one in gpus_lines(Window([first, second]), 100)))
        costs = [f"{text.duration(one.probes[0].cost_ns)}" for one in (first, second)]
        print(f"\nNVML took {costs[0]} at the first look (with two samples of GPM), {costs[1]} at the next")
        if importlib.util.find_spec("torch") is None:
            print("not compared: torch is not installed")
            return FINE
        import torch

        if not torch.cuda.is_available():
            print("not compared: this torch has no CUDA, or cannot use it")
            return FINE
        return measured(collector, torch.cuda, second.gpus.items if second.gpus is not None else ())


if __name__ == "__main__":
    sys.exit(main())
