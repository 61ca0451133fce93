"""Rules for what connects front end and engine core: threads that are gone, requests that only one side knows."""

from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.wiring import DeadThread, Queue, Stray, Wiring
from inferdbg.facts.snapshot import Snapshot

from .moments import MS, SECOND, calm, causes, later, only, with_section

OUTPUT = "process_output_sockets"
THERE = ("MainThread", "Thread-1 (process_input_sockets)", f"Thread-2 ({OUTPUT})")


def wired(
    snapshot: Snapshot, *, threads: tuple[str, ...] = THERE, queued: int = 0, strays: tuple[Stray, ...] = ()
) -> Snapshot:
    since = snapshot.mono_ns - SECOND
    dead = () if THERE[2] in threads else (DeadThread(OUTPUT, "sends tokens to the front end", since),)
    queues = (Queue("input", 0), Queue("output", queued))
    return replace(snapshot, wiring=Wiring(Origin("memory", snapshot.mono_ns), queues, threads, dead, 4, 4, strays))


# a thread that is gone


def test_a_dead_output_thread_is_named_with_what_waits_for_it() -> None:
    first = wired(calm()[-1])
    found = only([first, wired(later(first, SECOND), threads=THERE[:2], queued=899)], "output_thread_dead")
    assert (found.severity, found.confidence) == ("stuck", "sure")
    assert found.summary == (
        "the thread that sends tokens to the front end is gone (process_output_sockets): the engine computes, and no "
        "token reaches a client"
    )
    said = [evidence.text for evidence in found.evidence]
    assert "899 wait in the queue that it emptied" in said
    assert "Exception in thread" in found.next_step


def test_a_thread_that_was_gone_before_the_first_look_is_told_by_its_queue() -> None:
    now = wired(calm()[-1], threads=THERE[:2], queued=3)
    assert only([now], "output_thread_dead").confidence == "likely"
    more = wired(later(now, SECOND), threads=THERE[:2], queued=90)
    assert only([now, more], "output_thread_dead").confidence == "sure"


def test_a_version_without_such_a_thread_is_fine() -> None:
    assert causes([wired(calm()[-1], threads=THERE[:2])]) == []


def test_a_full_queue_of_a_living_thread_is_no_finding() -> None:
    assert causes([wired(calm()[-1], queued=500)]) == []


def test_requests_that_a_dead_thread_leaves_unanswered_are_its_consequence() -> None:
    now = calm()[-1]
    stray = Stray("cmpl-1", "front end", now.mono_ns - 5 * SECOND)
    assert causes([wired(now, threads=THERE[:2], queued=7, strays=(stray,))]) == [
        "output_thread_dead",
        "front_and_engine_disagree",
    ]


# requests that only one side knows


def test_requests_that_only_the_front_end_knows_are_lost() -> None:
    now = calm()[-1]
    strays = (
        Stray("cmpl-1", "front end", now.mono_ns - 5 * SECOND),
        Stray("cmpl-2", "engine", now.mono_ns - 12 * SECOND, 2),
    )
    found = only([wired(now, strays=strays)], "front_and_engine_disagree")
    assert found.summary == (
        "front end and engine disagree for 12 s: 1 request waited for that the engine does not know: never answered; "
        "1 request computed that nobody waits for"
    )
    assert (found.severity, found.confidence, found.since_ns) == ("wrong", "sure", now.mono_ns - 12 * SECOND)
    assert "only the engine knows cmpl-2" in [evidence.text for evidence in found.evidence]


def test_a_request_on_its_way_is_known_to_one_side_for_a_moment() -> None:
    now = calm()[-1]
    assert causes([wired(now, strays=(Stray("cmpl-1", "front end", now.mono_ns - 2900 * MS),))]) == []


def test_what_waits_in_a_queue_while_nobody_takes_it_is_not_lost() -> None:
    now = calm()[-1]
    strays = (
        Stray("cmpl-1", "front end", now.mono_ns - 5 * SECOND),
        Stray("cmpl-2", "engine", now.mono_ns - SECOND, 2),
    )
    alone = with_section(wired(now, strays=strays), "pulse", phase="idle", phase_since_ns=now.mono_ns - 9 * SECOND)
    assert causes([alone]) == ["front_and_engine_disagree"]
    core = Process(60, "VLLM::EngineCor", "engine core", "T")
    stopped = replace(alone, processes=Processes(Origin("processes", now.mono_ns), (core,)))
    assert causes([stopped]) == ["process_stopped"]
    computing = with_section(alone, "pulse", phase="forward", phase_since_ns=now.mono_ns - 6 * SECOND)
    assert "front_and_engine_disagree" not in causes([computing]), "it takes them when this step is over"
    since_a_step_before = with_section(alone, "pulse", phase="forward", phase_since_ns=now.mono_ns - SECOND)
    assert "front_and_engine_disagree" in causes([since_a_step_before])


# an engine that tells of no kernels


def coarse(snapshot: Snapshot, *, for_ns: int, cpu_ns: int, phase: str = "forward") -> Snapshot:
    """A foreign engine: the step's number, a phase, and what its worker has computed."""
    since = snapshot.mono_ns - for_ns
    now = with_section(
        snapshot, "pulse", step=312, phase=phase, phase_since_ns=since, heartbeat_ns=since, layer=None, kernel=None,
        kernels_launched=None, kernels_completed=None,
    )  # fmt: skip
    items = (Process(60, "VLLM::EngineCor", "engine core", "R"), Process(61, "VLLM::Worker", "worker", "R", cpu_ns))
    return replace(now, processes=Processes(Origin("processes", now.mono_ns), items), steps=None, kernels=None)


def test_an_engine_core_that_does_not_go_on_is_stuck_and_its_own_stack_is_named() -> None:
    first = coarse(calm()[-1], for_ns=1 * SECOND, cpu_ns=0, phase="schedule")
    now = coarse(later(first, 2100 * MS), for_ns=3100 * MS, cpu_ns=0, phase="schedule")
    found = only([first, now], "step_stalled")
    assert found.summary == "step 312 has not moved for 3.1 s: schedule"
    assert found.next_step == "py-spy dump --nonblocking --pid 60"
    assert causes([first, coarse(later(first, 1900 * MS), for_ns=2900 * MS, cpu_ns=0, phase="schedule")]) == []


def test_a_long_prompt_of_a_worker_that_computes_is_not_stuck() -> None:
    first = coarse(calm()[-1], for_ns=1 * SECOND, cpu_ns=0)
    busy = coarse(later(first, 20 * SECOND), for_ns=21 * SECOND, cpu_ns=19 * SECOND)
    assert causes([first, busy]) == []
    still = coarse(later(first, 20 * SECOND), for_ns=21 * SECOND, cpu_ns=1 * SECOND)
    assert causes([first, still]) == ["step_stalled"]
    assert causes([first, coarse(later(first, 40 * SECOND), for_ns=41 * SECOND, cpu_ns=39 * SECOND)]) == [
        "step_stalled"
    ]


def test_an_idle_engine_that_gives_no_heartbeat_is_fine() -> None:
    now = with_section(calm()[-1], "pulse", phase="idle", phase_since_ns=0, heartbeat_ns=None)
    assert causes([now]) == []


def test_steps_whose_tokens_are_not_known_are_no_livelock() -> None:
    unknown = {"generated_tokens_total": None, "prefilled_tokens_total": None}
    first = with_section(calm()[-1], "scheduler", **unknown)
    assert first.scheduler is not None
    assert first.pulse is not None
    now = with_section(later(first, 5 * SECOND), "scheduler", steps_total=first.scheduler.steps_total + 900)
    assert causes([first, with_section(now, "pulse", step=first.pulse.step + 900, phase_since_ns=now.mono_ns)]) == []
