"""The GPUs of the machine, as their driver describes them through NVML."""

from collections.abc import Container
from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

GpuState = Literal["ok", "lost", "needs reset", "unreadable"]
Throttle = Literal[
    "power cap",
    "power brake",
    "hardware slowdown",
    "heat (software)",
    "heat (hardware)",
    "clocks set by hand",
    "sync boost",
    "display",
    "unknown",
]
"""Why the clocks are below what they could be. ``power cap``: at its power limit, usual under load. ``power brake``:
the power supply asked for it. ``hardware slowdown``: heat, power brake or both, at a half of the clock or less."""
HURTING: tuple[Throttle, ...] = ("power brake", "hardware slowdown", "heat (software)", "heat (hardware)")
"""What no healthy machine has while it works."""


class GpuProcess(Struct, frozen=True, gc=False, omit_defaults=True):
    """``pid`` as the driver counts, on the machine: in a container our own PIDs may be others. ``gpu_instance``: of
    MIG."""

    pid: int
    kind: Literal["compute", "graphics"] = "compute"
    used_bytes: int | None = None
    gpu_instance: int | None = None


class Activity(Struct, frozen=True, gc=False, omit_defaults=True):
    """What GPM measured between two samples ``over_ns`` apart; shares 0..1. ``sm``: SMs that were busy, of all.
    ``occupancy``: warps that were resident, of the most possible. ``tensor``: time in which tensor cores worked.
    ``dram``: of the most bytes that its memory can move. The others: bytes per second, as seen from the GPU."""

    over_ns: int
    sm: float | None = None
    occupancy: float | None = None
    tensor: float | None = None
    dram: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None


class Pcie(Struct, frozen=True, gc=False, omit_defaults=True):
    """``_max``: what this GPU in this slot can do; an idle one goes to a low generation to save power. Throughput: in
    20 ms of the last look, where GPM does not tell it. ``replays_total``: packets sent again."""

    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    tx_bytes_per_s: int | None = None
    rx_bytes_per_s: int | None = None
    replays_total: int | None = None


class NvLinks(Struct, frozen=True, gc=False, omit_defaults=True):
    """``up`` of ``links``. ``_total``: bytes of data over all links, raw; they begin again at 0 after
    ``wraps_at_bytes`` where the driver counts in 32 bits."""

    links: int
    up: int
    tx_bytes_total: int | None = None
    rx_bytes_total: int | None = None
    wraps_at_bytes: int | None = None


class MemoryHealth(Struct, frozen=True, gc=False, omit_defaults=True):
    """``corrected``, ``uncorrected``: ECC errors since the driver was loaded (None: no ECC). Rows are remapped since
    Ampere, pages retired before. ``pending``: that waits for a reset of the GPU. ``failed``: no row was left for it."""

    corrected_total: int | None = None
    uncorrected_total: int | None = None
    remapped_rows: int | None = None
    retired_pages: int | None = None
    pending: bool | None = None
    failed: bool | None = None


class Xid(Struct, frozen=True, gc=False):
    """An error that the driver reported while we looked."""

    code: int
    mono_ns: int


class MigInstance(Struct, frozen=True, gc=False, omit_defaults=True):
    """A slice of a GPU."""

    uuid: str
    name: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    activity: Activity | None = None


class Gpu(Struct, frozen=True, gc=False, omit_defaults=True):
    """``state``: ``lost`` (fell off the bus), ``needs reset``, ``unreadable``; ``why`` says more. Of one that is lost
    nothing else is known.

    ``busy``: share of time in which any kernel ran, however small. ``memory_busy``: share of time in which memory was
    read or written at all; neither says how much was done. Both over the driver's last 1/6 s to 1 s, 0..1.
    ``dram_peak_bytes_per_s``: maximum memory clock × 2 (double data rate) × bus width / 8; an H100 SXM has 2619 MHz ×
    2 × 5120 bit / 8 = 3.35 TB/s.
    ``bus``: its PCI address, by which the kernel log names it. ``throttle``: empty while nothing holds the clocks back.
    ``slowdown_c``: where it slows down by itself.
    """

    index: int
    state: GpuState = "ok"
    why: str = ""
    uuid: str | None = None
    name: str | None = None
    bus: str | None = None
    busy: float | None = None
    memory_busy: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    dram_peak_bytes_per_s: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    throttle: tuple[Throttle, ...] | None = None
    persistence: bool | None = None
    pcie: Pcie | None = None
    nvlinks: NvLinks | None = None
    health: MemoryHealth | None = None
    xids: tuple[Xid, ...] = ()
    mig: tuple[MigInstance, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    activity: Activity | None = None

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Measured share × peak; None where either is not known."""
        if self.activity is None or self.activity.dram is None or self.dram_peak_bytes_per_s is None:
            return None
        return self.activity.dram * self.dram_peak_bytes_per_s


class Gpus(Struct, frozen=True, gc=False, omit_defaults=True):
    """``cuda``: the newest version that the driver can run, ``12.4``."""

    origin: Origin
    items: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None

    def used_by(self, pids: Container[int]) -> tuple[Gpu, ...]:
        """Those on which one of these processes is, and those of which nobody can tell; all where it is on none."""
        used = {gpu.index for gpu in self.items if any(one.pid in pids for one in gpu.processes or ())}
        return tuple(gpu for gpu in self.items if not used or gpu.index in used or gpu.state != "ok")
