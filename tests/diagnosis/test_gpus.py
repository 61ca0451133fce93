"""What GPUs do to a server: each rule fires on its picture and is silent on the others."""

from collections.abc import Iterable

from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.gpus import Gpu, GpuProcess, Gpus, MemoryHealth, Xid
from inferdbg.facts.snapshot import Snapshot
from tests.diagnosis.moments import SECOND, calm, causes, only

WELL = Gpu(
    0,
    name="NVIDIA H100",
    bus="00000000:1B:00.0",
    busy=0.97,
    sm_clock_mhz=1755,
    sm_clock_max_mhz=1980,
    temperature_c=64,
    throttle=("power cap",),
    health=MemoryHealth(3, 0, 0, None, False, False),
    processes=(GpuProcess(58),),
)
OTHER = replace(WELL, index=1, processes=(GpuProcess(4711),))
LOST = Gpu(0, "lost", "it fell off the bus", name="NVIDIA H100", bus="00000000:1B:00.0", xids=(Xid(79, 5),))
HOT = replace(WELL, throttle=("power cap", "heat (hardware)"), sm_clock_mhz=900, temperature_c=91)


def seen(gpus: Iterable[Gpu], *others: Gpu) -> list[Snapshot]:
    """A calm engine and one look at its GPU a second, oldest first."""
    first = calm()[0]
    items = [(gpu, *others) for gpu in gpus]
    return [
        replace(first, seq=at + 1, mono_ns=now, gpus=Gpus(Origin("nvml", now), found))
        for at, found in enumerate(items)
        for now in (first.mono_ns + at * SECOND,)
    ]


def about_gpus(snapshots: list[Snapshot]) -> list[str]:
    return [cause for cause in causes(snapshots) if cause.startswith("gpu_")]


def test_a_gpu_that_works_at_its_power_cap_is_well() -> None:
    assert about_gpus(seen([WELL] * 10, OTHER)) == []
    assert about_gpus(calm()) == []


def test_a_lost_gpu_of_the_server_is_the_cause_of_what_follows() -> None:
    finding = only(seen([WELL, WELL, LOST, LOST]), "gpu_lost")
    assert (finding.severity, finding.confidence) == ("stuck", "sure")
    assert finding.summary == (
        "GPU 0 (NVIDIA H100, 00000000:1B:00.0) is lost: it fell off the bus, Xid 79 before; the server ran on it"
    )
    assert finding.since_ns == calm()[0].mono_ns + 2 * SECOND
    assert not finding.at_least
    assert "step_stalled" in finding.explains


def test_a_lost_gpu_that_nobody_saw_in_use_is_a_note() -> None:
    finding = only(seen([LOST, LOST]), "gpu_lost")
    assert (finding.severity, finding.explains, finding.at_least) == ("note", (), True)


def test_heat_that_lasts_while_it_works_is_slow() -> None:
    finding = only(seen([WELL, *[HOT] * 6]), "gpu_throttled")
    assert finding.severity == "slow"
    assert finding.summary == "GPU 0 works at 900 of 1,980 MHz: held back by heat (hardware), 91 °C"
    assert finding.since_ns == calm()[0].mono_ns + SECOND


def test_heat_for_a_moment_at_rest_or_on_a_gpu_of_others_is_nothing() -> None:
    assert about_gpus(seen([WELL, *[HOT] * 5])) == []
    assert about_gpus(seen([replace(HOT, busy=0.0)] * 10)) == []
    assert about_gpus(seen([WELL] * 10, replace(HOT, index=1, processes=()))) == []


def test_errors_that_ecc_cannot_correct_are_wrong_when_they_are_new_and_a_note_when_old() -> None:
    bad = replace(WELL, health=MemoryHealth(3, 2, 1, None, True, False))
    new = only(seen([WELL, bad]), "gpu_memory_errors")
    assert new.severity == "wrong"
    assert new.summary == (
        "GPU 0 has 2 errors that ECC could not correct, 2 of them in the last minute and bad memory that is put out of "
        "use at the next reset"
    )
    old = only(seen([bad, bad]), "gpu_memory_errors")
    assert old.severity == "note"
    assert "since its driver was loaded" in old.summary
    worn = replace(WELL, health=MemoryHealth(0, 0, 8, None, False, True))
    assert only(seen([worn]), "gpu_memory_errors").severity == "wrong"


def test_corrected_errors_are_nothing() -> None:
    assert about_gpus(seen([WELL, replace(WELL, health=MemoryHealth(9000, 0, 1, None, False, False))])) == []
