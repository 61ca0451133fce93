"""GPUs as the real pynvml reads them from a library of recorded answers, in the child that reads them."""

from pathlib import Path
from typing import Any

import pytest

from inferdbg.facts.sections.gpus import Activity, Gpu, GpuProcess, MemoryHealth, NvLinks, Pcie
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from inferdbg.probes.nvml import Nvml
from tests.nvml.recorded import built, collecting, fixture, rounds_until

pytestmark = pytest.mark.live
MIB = 1 << 20


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("nvml"))


def looks(answers: dict[str, Any], library: Path, monkeypatch: pytest.MonkeyPatch, count: int = 1) -> list[Snapshot]:
    with collecting(answers, library, monkeypatch) as collector:
        return [collector.round(patience_ns=20_000_000_000) for _ in range(count)]


def only_gpu(snapshot: Snapshot) -> Gpu:
    assert snapshot.gpus is not None, snapshot.probes
    (gpu,) = snapshot.gpus.items
    return gpu


def test_an_h100_tells_all_and_its_measured_bandwidth_in_bytes(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = looks(fixture("h100"), library, monkeypatch)
    assert found.gpus is not None
    assert (found.gpus.driver, found.gpus.cuda) == ("570.133.20", "12.8")
    gpu, other = found.gpus.items
    assert (gpu.name, gpu.bus, other.index, other.busy) == ("NVIDIA H100 80GB HBM3", "00000000:1B:00.0", 1, 0.91)
    assert (gpu.busy, gpu.memory_busy) == (0.97, 0.58)
    memory = (gpu.memory_total_bytes, gpu.memory_reserved_bytes, gpu.memory_used_bytes)
    assert memory == (85520809984, 572 * MIB, 76450 * MIB)
    clocks = (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.memory_clock_mhz, gpu.memory_clock_max_mhz)
    assert clocks == (1755, 1980, 2619, 2619)
    assert (gpu.power_mw, gpu.power_limit_mw, gpu.temperature_c, gpu.slowdown_c) == (698212, 700000, 64, 90)
    assert (gpu.throttle, gpu.persistence, gpu.mig, gpu.xids) == (("power cap",), True, None, ())
    assert gpu.health == MemoryHealth(0, 0, 0, None, False, False)
    assert gpu.processes == (GpuProcess(90, "compute", 75900 * MIB),)
    assert gpu.dram_peak_bytes_per_s == 2619 * 10**6 * 2 * 5120 // 8
    activity = gpu.activity
    assert activity is not None
    assert activity.over_ns >= 100_000_000
    assert (activity.sm, activity.tensor, activity.dram) == pytest.approx((0.614, 0.3425, 0.715))
    assert activity.pcie_rx_bytes_per_s == 2002 * MIB
    assert activity.nvlink_tx_bytes_per_s == 256 * MIB
    assert gpu.dram_bytes_per_s == pytest.approx(0.715 * 3.352e12, rel=1e-3)
    assert gpu.pcie == Pcie(5, 5, 16, 16, replays_total=0)  # GPM tells its throughput


def test_samples_are_as_far_apart_as_looks_are(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = looks(fixture("h100"), library, monkeypatch, 2)
    assert first.gpus is not None
    assert second.gpus is not None
    activity = second.gpus.items[0].activity
    assert activity is not None
    assert activity.over_ns >= 100_000_000
    links = [one.gpus.items[0].nvlinks for one in (first, second) if one.gpus is not None]
    assert links == [
        NvLinks(18, 18, 9000000000 * 1024, 9100000000 * 1024),
        NvLinks(18, 18, 9000262144 * 1024, 9100131072 * 1024),
    ]


def test_an_a100_without_gpm_has_no_bandwidth_and_says_what_ails_it(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = looks(fixture("a100"), library, monkeypatch, 2)
    gpu = only_gpu(first)
    assert (gpu.activity, gpu.dram_bytes_per_s, gpu.memory_busy) == (None, None, 0.58)
    assert gpu.throttle == ("heat (software)",)
    assert gpu.health == MemoryHealth(7, 1, 1, None, True, False)
    assert gpu.pcie == Pcie(4, 4, 8, 16, 31_000_000, 2_100_000_000, 0)
    assert gpu.nvlinks is not None
    assert (gpu.nvlinks.up, gpu.nvlinks.links) == (11, 12)
    assert gpu.xids == ()
    assert [xid.code for xid in only_gpu(second).xids] == [94]


def test_a_counter_of_32_bits_that_begins_again_still_gives_a_rate(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = looks(fixture("a100"), library, monkeypatch, 3)
    links = [only_gpu(one).nvlinks for one in snapshots]
    assert [one.wraps_at_bytes for one in links if one is not None] == [2**42] * 3
    window = Window(snapshots[1:])
    rise = window.delta(sent, wraps_at=2**42)
    assert rise == (2**32 - 4294960000 + 100000) * 1024
    assert window.delta(sent) == 100000 * 1024  # as after a restart


def sent(snapshot: Snapshot) -> int | None:
    links = only_gpu(snapshot).nvlinks
    return links.tx_bytes_total if links is not None else None


def test_an_idle_l4_is_held_back_by_nothing(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = only_gpu(looks(fixture("l4"), library, monkeypatch)[0])
    assert (gpu.throttle, gpu.nvlinks, gpu.processes, gpu.persistence) == ((), None, (), False)
    assert gpu.dram_peak_bytes_per_s == 300_048_000_000
    assert gpu.pcie == Pcie(1, 4, 16, 16, 0, 0, 0)


def test_slices_of_mig_are_measured_one_by_one(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = only_gpu(looks(fixture("mig"), library, monkeypatch)[0])
    assert gpu.busy is None
    assert gpu.mig is not None
    large, small = gpu.mig
    assert (large.name, large.gpu_instance, large.memory_used_bytes) == (
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        1,
        30100 * MIB,
    )
    assert isinstance(large.activity, Activity)
    assert (large.activity.sm, large.activity.dram, large.activity.nvlink_tx_bytes_per_s) == (0.55, 0.4, None)
    assert small.activity is None
    assert gpu.processes == (GpuProcess(90, "compute", 30000 * MIB, 1),)


def test_a_gpu_that_is_lost_keeps_its_name_and_the_others_are_read_on(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting(fixture("lost"), library, monkeypatch) as collector:
        lost = rounds_until(collector, lambda one: one.gpus is not None and one.gpus.items[1].state == "lost")
    assert lost.gpus is not None
    well, gone = lost.gpus.items
    assert (well.state, well.busy) == ("ok", 0.97)
    assert (gone.name, gone.bus, gone.busy) == ("NVIDIA H100 80GB HBM3", "00000001:1B:00.0", None)
    assert [xid.code for xid in gone.xids] == [79]
    assert (lost.probes[0].status, lost.probes[0].message) == (
        "ok",
        "GPU 1: it fell off the bus, or cannot be reached",
    )
    assert "dmesg" in lost.probes[0].hint


@pytest.mark.parametrize(("error", "state"), [("GPU_IS_LOST", "lost"), ("RESET_REQUIRED", "needs reset")])
def test_a_gpu_that_goes_while_it_is_read_is_gone(
    error: str, state: str, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = fixture("l4")
    going["0"]["nvmlDeviceGetPowerUsage"] = [12410, {"error": error}, 12420]
    states = [only_gpu(one).state for one in looks(going, library, monkeypatch, 3)]
    assert states == ["ok", state, "ok"]


def test_what_a_card_does_not_tell_is_none(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = only_gpu(looks(fixture("not_available"), library, monkeypatch)[0])
    assert (gpu.name, gpu.temperature_c, gpu.memory_used_bytes) == ("NVIDIA GeForce GT 1030", 41, 100 * MIB)
    unknown = (gpu.power_mw, gpu.busy, gpu.memory_reserved_bytes, gpu.throttle, gpu.nvlinks, gpu.mig, gpu.activity)
    assert unknown == (None,) * 7
    assert gpu.health == MemoryHealth(retired_pages=3, pending=False)
    assert gpu.processes == (GpuProcess(90),)


@pytest.mark.parametrize(
    ("error", "status", "says", "cure"),
    [
        ("DRIVER_NOT_LOADED", "absent", "no NVML: the NVIDIA driver is not loaded", "sudo modprobe nvidia"),
        ("LIB_RM_VERSION_MISMATCH", "failed", "differ in version", "reboot, or"),
        ("NO_PERMISSION", "denied", "may not be opened by us", "ls -l /dev/nvidia*"),
        ("OPERATING_SYSTEM", "denied", "operating system keeps us", "--gpus all"),
        ("GPU_IS_LOST", "failed", "fell off the bus", "sudo dmesg"),
        ("RESET_REQUIRED", "failed", "must be reset", "--gpu-reset"),
        ("IRQ_ISSUE", "failed", "interrupts", "sudo dmesg"),
        ("INSUFFICIENT_POWER", "failed", "power cables", "sudo dmesg"),
        ("CORRUPTED_INFOROM", "failed", "infoROM", "nvidia-smi -q"),
        ("TIMEOUT", "failed", "in time", "sudo dmesg"),
        ("UNKNOWN", "failed", "NVML: Unknown Error (code 999)", "nvidia-smi"),
        ("NOT_READY", "failed", "an error without a name (code 27)", "nvidia-smi"),
    ],
)
def test_a_library_that_refuses_says_why_and_what_to_type(
    error: str, status: str, says: str, cure: str, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = looks({"system": {"nvmlInit": {"error": error}}}, library, monkeypatch)
    report = found.probes[0]
    assert found.gpus is None
    assert report.status == status
    assert says in report.message
    assert cure in report.hint


def test_a_driver_that_is_loaded_later_is_found(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = fixture("l4")
    late["system"]["nvmlInit"] = [{"error": "DRIVER_NOT_LOADED"}, 0]
    first, second = looks(late, library, monkeypatch, 2)
    assert (first.probes[0].status, second.probes[0].status) == ("absent", "ok")


def test_a_driver_that_goes_and_comes_back_is_read_again(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reloaded = fixture("l4")
    reloaded["system"] |= {"nvmlDeviceGetCount": [1, {"error": "UNINITIALIZED"}, 1], "nvmlInit": [0, 0, "hang"]}
    found = looks(reloaded, library, monkeypatch, 3)
    assert [one.probes[0].status for one in found] == ["ok", "failed", "ok"]


def test_no_gpu_is_absent(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = looks({"system": {"nvmlDeviceGetCount": 0}}, library, monkeypatch)
    assert (found.probes[0].status, found.probes[0].message) == ("absent", "no NVML: the driver sees no GPU")


def test_a_call_that_never_returns_costs_the_child_alone(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = fixture("l4")
    stuck["0"]["nvmlDeviceGetPowerUsage"] = [12410, "hang"]
    with collecting(stuck, library, monkeypatch, Nvml(cadence_ns=0, deadline_ns=2_000_000_000)) as collector:
        first = rounds_until(collector, lambda one: one.gpus is not None)
        silent = rounds_until(collector, lambda one: one.probes[0].status == "not answering")
    assert silent.gpus == first.gpus
    assert silent.probes[0].message.startswith("not answering for ")
