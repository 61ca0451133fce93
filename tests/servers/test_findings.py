"""What is said of foreign servers: who is stopped, gone, orphaned, restarted, or still starting."""

import pytest
from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.server import Health, Server
from inferdbg.facts.sections.startup import Startup
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window

NOW = 1_000 * SECOND
FRONT = Process(60, "vllm", "front end", "S", rss_bytes=1 << 20)
CORE = Process(62, "VLLM::EngineCore", "engine core", "S", rss_bytes=2 << 20)
WORKER = Process(63, "VLLM::Worker_TP1", "worker", "S", rss_bytes=3 << 20, rank="TP1")
ALL = (FRONT, CORE, WORKER)


def moment(
    *items: Process,
    after_s: int = 0,
    pid: int = 60,
    state: str = "alive",
    health: str | None = None,
    orphans: tuple[Process, ...] = (),
    startup: Startup | None = None,
) -> Snapshot:
    at_ns = NOW + after_s * SECOND
    origin = Origin("processes", at_ns)
    health = health or ("200" if startup is None else "refused")
    server = Server(origin, "vllm", pid=pid, state=state, health=Health(health, 1, at_ns))  # type: ignore[arg-type]
    processes = Processes(origin, items, orphans=orphans, startup=startup)
    return Snapshot(after_s, at_ns, at_ns, Target("process", "x", pid), server=server, processes=processes)


def found(*moments: Snapshot) -> dict[str, Finding]:
    return {one.cause: one for one in diagnose(Window(moments))}


def test_of_a_server_that_was_restarted_the_old_processes_are_not_missing() -> None:
    again = [replace(one, pid=one.pid + 20) for one in ALL]
    said = found(moment(*ALL), moment(*ALL, after_s=1), moment(*again, after_s=9, pid=80))
    assert not {"worker_gone", "engine_core_gone", "engine_dead"} & set(said)
    without_a_worker = [one for one in again if one.role != "worker"]
    later = moment(*without_a_worker, after_s=10, pid=80)
    assert "worker_gone" in found(moment(*ALL), moment(*again, after_s=9, pid=80), later)


def test_a_server_that_answers_has_started_though_where_it_listens_cannot_be_seen() -> None:
    assert "starting_up" not in found(moment(*ALL, startup=LOADING, health="200"))


def test_of_a_server_that_has_ended_who_went_first_is_named_where_that_was_seen() -> None:
    left = [one for one in ALL if one.role != "engine core"]
    first = found(moment(*ALL), moment(*left, after_s=1), moment(after_s=2, state="dead"))["engine_dead"]
    assert first.summary.endswith("engine core 62 (VLLM::EngineCore) was gone before")
    assert first.next_step.startswith("dmesg -T | grep -wE '62|")
    unseen = found(moment(*ALL), moment(after_s=2, state="dead"))["engine_dead"]
    assert "gone before" not in unseen.summary
    assert any("engine core 62" in one.text and "which went first was not seen" in one.text for one in unseen.evidence)
    assert "62" in unseen.next_step
    assert unseen.next_step.split("'")[1].endswith("|60")


def test_a_server_that_is_well_gives_nothing_to_say() -> None:
    assert found(moment(*ALL), moment(*ALL, after_s=1)) == {}


@pytest.mark.parametrize(
    ("process", "name", "follows"),
    [
        (FRONT, "front end 60 (vllm)", "clients get no answer"),
        (CORE, "engine core 62 (VLLM::EngineCore)", "looks healthy from outside"),
        (WORKER, "worker 63 (VLLM::Worker_TP1, TP1)", "the engine core waits for it"),
    ],
)
def test_the_stopped_process_is_named_by_what_it_does(process: Process, name: str, follows: str) -> None:
    stopped = replace(process, state="T")
    others = [one for one in ALL if one is not process]
    said = found(moment(*ALL), moment(stopped, *others, after_s=1))["process_stopped"]
    assert said.summary.startswith(f"{name} is stopped (SIGSTOP")
    assert follows in said.summary
    assert (said.severity, said.next_step, said.since_ns) == ("stuck", f"kill -CONT {process.pid}", NOW + SECOND)
    health = any("/health answers 200 all the same" in one.text for one in said.evidence)
    assert health == (process is not FRONT)


def test_a_stopped_helper_is_a_note() -> None:
    tracker = Process(61, "python", "resource tracker", "T")
    assert found(moment(*ALL, tracker))["process_stopped"].severity == "note"


def test_orphans_are_named_with_what_they_hold_and_the_line_that_ends_them() -> None:
    orphans = (replace(CORE, pss_bytes=1 << 20), WORKER)
    said = found(moment(*ALL), moment(*orphans, after_s=1, state="dead", orphans=orphans))
    assert list(said) == ["engine_dead", "orphans"]
    assert said["engine_dead"].summary.startswith("vllm pid 60 has ended")
    assert said["orphans"].summary == (
        "engine core 62 (VLLM::EngineCore) and worker 63 (VLLM::Worker_TP1, TP1) live on without a front end, "
        "hold 4 MiB and serve nobody"
    )
    assert said["orphans"].next_step.startswith("kill 62 63 ")
    assert said["orphans"].since_ns == NOW + SECOND


def test_orphans_of_another_server_are_a_note() -> None:
    other = Process(90, "VLLM::EngineCor", "engine core", "S")
    (said,) = found(moment(*ALL, orphans=(other,))).values()
    assert (said.cause, said.severity) == ("orphans_elsewhere", "note")


def test_an_orphan_that_is_looked_at_is_no_dead_engine() -> None:
    assert list(found(moment(CORE, pid=62, state="orphaned", orphans=(CORE,)))) == ["orphans"]


def test_what_a_dead_front_end_left_behind_is_ended_by_the_line_to_type() -> None:
    said = found(moment(*ALL), moment(CORE, WORKER, after_s=1, state="dead", orphans=(CORE, WORKER)))
    assert said["engine_dead"].summary.endswith("clients are refused, and 2 of its processes live on")
    assert said["engine_dead"].next_step.endswith("; then kill 62 63   (they serve nobody)")


def test_a_front_end_whose_engine_core_went_away_serves_nobody() -> None:
    said = found(moment(FRONT, CORE), moment(FRONT, after_s=1))
    assert said["engine_core_gone"].severity == "dead"
    assert said["engine_core_gone"].summary.startswith("engine core 62 (VLLM::EngineCore) is gone, front end 60 (vllm)")
    assert said["engine_core_gone"].next_step.startswith("dmesg -T | grep -w 62")


def test_a_worker_that_went_away_is_named_while_the_engine_core_lives() -> None:
    said = found(moment(*ALL), moment(FRONT, CORE, after_s=1))
    assert said["worker_gone"].summary.startswith("worker 63 (VLLM::Worker_TP1, TP1) is gone")
    assert "engine_core_gone" not in said


def test_of_a_core_and_a_worker_that_are_gone_who_went_first_is_told_where_it_was_seen() -> None:
    together = found(moment(*ALL), moment(FRONT, after_s=1))
    assert list(together) == ["engine_core_gone"]
    assert "and worker 63 (VLLM::Worker_TP1, TP1) are gone (which went first was not seen)" in (
        together["engine_core_gone"].summary
    )
    assert "62|63" in together["engine_core_gone"].next_step
    worker_first = diagnose(Window([moment(*ALL), moment(FRONT, CORE, after_s=1), moment(FRONT, after_s=2)]))
    assert [(one.cause, "engine_core_gone" in one.explains) for one in worker_first] == [
        ("worker_gone", True),
        ("engine_core_gone", False),
    ]
    core_first = diagnose(Window([moment(*ALL), moment(FRONT, WORKER, after_s=1), moment(FRONT, after_s=2)]))
    assert [one.cause for one in core_first] == ["engine_core_gone", "worker_gone"]


def test_an_engine_core_that_ended_and_was_not_taken_away_is_gone() -> None:
    assert "engine_core_gone" in found(moment(*ALL), moment(FRONT, replace(CORE, state="Z"), after_s=1))


def test_an_engine_core_that_was_never_seen_may_run_elsewhere_unless_the_server_is_unwell() -> None:
    assert found(moment(FRONT))["engine_core_gone"].severity == "note"
    assert found(moment(FRONT, health="503"))["engine_core_gone"].severity == "dead"


def test_while_children_have_not_said_what_they_are_no_engine_core_is_missed() -> None:
    assert found(moment(FRONT, Process(62, "python", "starting", "R"))) == {}


def test_another_process_behind_the_server_is_a_restart() -> None:
    said = found(moment(*ALL), moment(*ALL, after_s=1, pid=80), moment(*ALL, after_s=4, pid=80))
    assert said["restarted"].summary == "restarted 3 s ago: pid 60 is gone, pid 80 serves"
    assert said["restarted"].severity == "note"
    now = found(moment(*ALL), moment(*ALL, after_s=1, pid=80, startup=LOADING))
    assert now["restarted"].summary == "restarted just now: pid 60 is gone, pid 80 starts"
    core_alone = replace(
        moment(after_s=1, pid=62), processes=None
    )  # told by its memory, before processes are looked at
    later = found(moment(*ALL), core_alone, moment(*ALL, after_s=2, pid=80))
    assert later["restarted"].summary == "restarted just now: pid 60 is gone, pid 80 serves"


LOADING = Startup(
    "loading weights",
    started_ns=NOW - 20 * SECOND,
    since_ns=NOW - 4 * SECOND,
    moved_ns=NOW,
    pid=63,
    role="worker",
    loaded_bytes=100 << 20,
    weight_bytes=400 << 20,
    file="model-00002-of-00004.safetensors",
    files_done=1,
    files=4,
)


def test_a_start_tells_phase_progress_rate_and_what_is_left() -> None:
    later = replace(LOADING, loaded_bytes=200 << 20, moved_ns=NOW + 2 * SECOND)
    said = found(moment(*ALL, startup=LOADING), moment(*ALL, after_s=2, startup=later))["starting_up"]
    assert said.summary == (
        "starting up for 22 s: loading weights, 200 MiB of 400 MiB, file 2 of 4, 50 MiB/s, about 4 s left"
    )
    assert said.severity == "note"


def test_weights_that_are_mapped_are_rated_by_what_the_disk_gives() -> None:
    before = replace(LOADING, loaded_bytes=None, files=1, read_bytes=0)
    after = replace(before, read_bytes=90 << 20)
    said = found(moment(*ALL, startup=before), moment(*ALL, after_s=1, startup=after))["starting_up"]
    assert said.summary.endswith("loading weights, 400 MiB, 90 MiB/s from disk")


def test_a_start_says_who_works() -> None:
    before = Startup("starting", NOW - 9 * SECOND, NOW - 9 * SECOND, NOW, pid=64, role="starting", cpu_ns=0)
    after = replace(before, cpu_ns=900_000_000)
    said = found(moment(FRONT, startup=before), moment(FRONT, after_s=1, startup=after))["starting_up"]
    assert said.summary == "starting up for 10 s: loading programs and libraries, in new process 64 at 90 % cpu"


def test_a_llamacpp_that_listens_and_is_not_ready_is_starting_and_an_old_one_is_not() -> None:
    now = moment(FRONT, health="503")
    assert now.server is not None
    young = replace(now, server=replace(now.server, engine="llama.cpp", started_mono_ns=NOW - 9 * SECOND))
    assert found(young)["starting_up"].summary == "starting up for 9 s: it listens and is not ready"
    old = replace(now, server=replace(now.server, engine="llama.cpp", started_mono_ns=NOW - 3600 * SECOND))
    assert found(old) == {}


def test_a_start_that_has_not_moved_for_a_minute_is_stuck() -> None:
    said = found(moment(*ALL, startup=LOADING), moment(*ALL, after_s=61, startup=LOADING))
    assert said["startup_stalled"].severity == "stuck"
    assert "and nothing has moved for 61 s" in said["startup_stalled"].summary
    assert said["startup_stalled"].next_step == "py-spy dump --nonblocking --pid 63"
    assert "starting_up" not in said
