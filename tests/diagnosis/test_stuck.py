"""Rules for an engine that does not go on: dead, stopped, wedged, turning in a circle."""

from msgspec import structs
from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.pulse import Intent
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from inferdbg.tui.drawing.verdict import verdict

from .moments import MS, SECOND, calm, causes, later, only, steps_before, with_events, with_section


def in_kernel(snapshot: Snapshot, *, for_ns: int, phase: str = "forward", launched: int = 101) -> Snapshot:
    since = snapshot.mono_ns - for_ns
    return with_section(
        snapshot,
        "pulse",
        step=312,
        phase=phase,
        phase_since_ns=since,
        heartbeat_ns=since,
        layer=7,
        kernel="attention",
        kernels_launched=launched,
        kernels_completed=100,
    )


# dead


def test_a_dead_engine_says_in_the_middle_of_what() -> None:
    now = with_section(in_kernel(calm()[-1], for_ns=0), "server", state="dead")
    now = with_section(now, "pulse", intent=Intent("evict", block=17, request=now.requests.items[0].number))
    found = only([with_events(now, (40 * MS, "logged", "out of patience"))], "engine_dead")
    assert found.severity == "dead"
    assert "in the middle of step 312: forward, layer 7, kernel attention launched" in found.summary
    said = " ".join(evidence.text for evidence in found.evidence)
    assert f"half done: evict of block 17 for {now.requests.items[0].id}" in said
    assert "logged 40 ms before: out of patience" in said
    assert found.next_step.startswith("dmesg -T | grep -w 58")


def test_a_dead_engine_is_not_called_stuck_as_well() -> None:
    now = with_section(in_kernel(calm()[-1], for_ns=9 * SECOND), "server", state="dead")
    assert causes([now]) == ["engine_dead"]


def test_a_clean_stop_is_no_finding() -> None:
    now = with_section(in_kernel(calm()[-1], for_ns=9 * SECOND), "server", state="stopped cleanly")
    assert causes([now]) == []


# wedged


def test_a_wedged_kernel_is_named_with_layer_and_time() -> None:
    now = in_kernel(calm()[-1], for_ns=4200 * MS)
    found = only([now], "kernel_wedged")
    assert found.summary == (
        "step 312 has not moved for 4.2 s: forward, layer 7, kernel attention launched and not completed"
    )
    assert found.confidence == "possible"  # one look cannot tell a long kernel from a wedged one
    assert found.since_ns == now.mono_ns - 4200 * MS
    assert found.next_step == "py-spy dump --nonblocking --pid 58"


def test_more_looks_make_a_stall_surer() -> None:
    first = in_kernel(calm()[-1], for_ns=3 * SECOND)
    assert only([first, later(first, 200 * MS)], "kernel_wedged").confidence == "likely"
    assert only([first, later(first, 200 * MS), later(first, 3 * SECOND)], "kernel_wedged").confidence == "sure"


def test_a_stall_outside_kernels_is_named_by_its_phase() -> None:
    found = only([in_kernel(calm()[-1], for_ns=3 * SECOND, phase="schedule", launched=100)], "step_stalled")
    assert found.summary == "step 312 has not moved for 3 s: schedule"


def test_a_stall_shows_the_last_log_line_and_the_change_that_is_half_done() -> None:
    now = with_events(
        in_kernel(calm()[-1], for_ns=3 * SECOND, phase="commit", launched=100), (3 * SECOND, "logged", "thread ended")
    )
    found = only([with_section(now, "pulse", intent=Intent("free", block=17))], "step_stalled")
    said = [evidence.text for evidence in found.evidence]
    assert "half done: free of block 17" in said
    assert "3 s ago: thread ended" in said


def test_a_long_step_whose_kernels_go_on_is_not_stuck() -> None:
    first = in_kernel(calm()[-1], for_ns=3 * SECOND)
    moved = with_section(later(first, 200 * MS), "pulse", kernels_launched=140, kernels_completed=139)
    assert causes([first, moved]) == []
    assert causes([first, moved, later(moved, 3 * SECOND)]) == ["kernel_wedged"]


def test_a_first_step_of_a_fresh_server_whose_layers_move_is_not_stuck() -> None:
    now = in_kernel(calm()[-1], for_ns=3 * SECOND, launched=100)
    fresh = with_section(now, "steps", items=())
    assert only([fresh], "step_stalled").confidence == "possible"
    moved = with_section(later(fresh, 500 * MS), "pulse", layer=9)
    assert causes([fresh, moved]) == []
    assert causes([fresh, moved, with_section(later(moved, 3 * SECOND), "pulse", layer=22)]) == []


def test_a_step_is_given_four_normal_ones_so_that_five_are_told() -> None:
    now = in_kernel(calm()[-1], for_ns=7900 * MS)
    slow = with_section(now, "steps", items=steps_before(now, count=8, total_ms=2000))
    assert causes([slow]) == []
    assert causes([in_kernel(slow, for_ns=8100 * MS)]) == ["kernel_wedged"]


def test_a_step_may_take_a_second_and_a_half_and_two_are_told() -> None:
    assert causes([in_kernel(calm()[-1], for_ns=1400 * MS)]) == []
    assert causes([in_kernel(calm()[-1], for_ns=1600 * MS)]) == ["kernel_wedged"]


def test_a_long_prompt_is_measured_by_steps_as_large_and_not_by_decodes() -> None:
    now = in_kernel(calm()[-1], for_ns=3 * SECOND)
    decodes = [structs.replace(s, prefill_tokens=0, decode_tokens=4) for s in steps_before(now, count=8, total_ms=50)]
    prefill = structs.replace(decodes[0], prefill_tokens=500, forward_ns=900 * MS)
    busy = with_section(now, "steps", items=(prefill, *decodes), running=structs.replace(prefill, step=313))
    assert causes([busy]) == []
    assert causes([with_section(busy, "steps", running=structs.replace(decodes[0], step=313))]) == ["kernel_wedged"]


# stopped


def test_a_stopped_process_explains_the_step_that_hangs() -> None:
    now = in_kernel(calm()[-1], for_ns=5 * SECOND)
    processes = Processes(Origin("processes", now.mono_ns), (Process(58, "inferdbg", "engine", "T"),))
    found = diagnose(Window([replace(now, processes=processes)]))
    assert [finding.cause for finding in found] == ["process_stopped", "kernel_wedged"]
    assert found[0].next_step == "kill -CONT 58"


def test_a_stop_that_was_there_at_the_first_look_lasts_at_least_as_long_as_we_looked() -> None:
    first, now = calm()[-1], later(calm()[-1], 3 * SECOND)
    for begun_ns, seen_from_ns, lasts in (
        (first.mono_ns, first.mono_ns, "sure · for at least 3 s"),
        (first.mono_ns, first.mono_ns - SECOND, "sure · for 3 s"),
        (first.mono_ns - SECOND, None, "sure · for 4 s"),  # an engine that tells its own times
    ):
        looks = [
            with_section(
                replace(
                    look,
                    processes=Processes(Origin("processes", look.mono_ns), (Process(58, "x", "engine core", "T"),)),
                ),
                "pulse",
                heartbeat_ns=begun_ns,
                seen_from_ns=seen_from_ns,
            )
            for look in (first, now)
        ]
        found = diagnose(Window(looks))
        assert (found[0].cause, verdict(Window(looks), found).surety) == ("process_stopped", lasts)


def test_a_step_that_stood_at_the_first_look_stands_at_least_as_long_as_we_looked() -> None:
    first, now = calm()[-1], later(calm()[-1], 3 * SECOND)
    looks = [
        with_section(look, "pulse", phase="schedule", phase_since_ns=first.mono_ns, seen_from_ns=first.mono_ns)
        for look in (first, now)
    ]
    assert "has not moved for at least 3 s: schedule" in only(looks, "kernel_wedged").summary
    earlier = [with_section(look, "pulse", seen_from_ns=first.mono_ns - SECOND) for look in looks]
    assert "has not moved for 3 s: schedule" in only(earlier, "kernel_wedged").summary


def test_a_sleeping_process_is_not_stopped() -> None:
    processes = Processes(Origin("processes", 0), (Process(58, "inferdbg", "engine", "S"),))
    assert causes([replace(calm()[-1], processes=processes)]) == []


# idle


def test_an_idle_engine_without_heartbeat_has_lost_its_thread() -> None:
    now = calm()[-1]
    quiet = with_section(now, "pulse", phase="idle", heartbeat_ns=now.mono_ns - 5 * SECOND)
    assert "no heartbeat for 5 s while idle" in only([quiet], "engine_thread_gone").summary


def test_a_thread_that_an_exception_ended_is_named_at_once_in_any_phase() -> None:
    words = "the engine's thread ended: IndexError: pop from an empty deque"
    for phase, amid in (("commit", " in the middle of step 312, commit"), ("idle", "")):
        now = in_kernel(calm()[-1], for_ns=10 * MS, phase=phase, launched=100)
        found = only([with_events(now, (10 * MS, "logged", words))], "engine_thread_gone")
        assert found.summary == f"the engine's thread ended{amid}: IndexError: pop from an empty deque"
        assert (found.confidence, found.since_ns) == ("sure", now.mono_ns - 10 * MS)
        assert found.next_step.startswith("restart it; the traceback")


def test_a_thread_that_ended_explains_the_step_that_hangs_however_long_ago() -> None:
    now = in_kernel(calm()[-1], for_ns=900 * SECOND)
    ended = with_events(now, (900 * SECOND, "logged", "the engine's thread ended: ValueError: x"))
    assert causes([ended]) == ["engine_thread_gone", "kernel_wedged"]
    assert causes([with_events(now, (900 * SECOND, "logged", "another thread ended"))]) == ["kernel_wedged"]


def test_an_idle_engine_with_heartbeat_is_fine() -> None:
    now = calm()[-1]
    idle = with_section(now, "pulse", phase="idle", phase_since_ns=0, heartbeat_ns=now.mono_ns - 150 * MS)
    assert causes([idle]) == []


# turning in a circle


def turned(snapshot: Snapshot, by_ns: int, steps: int, **scheduler: int) -> Snapshot:
    now = later(snapshot, by_ns)
    assert now.scheduler is not None
    now = with_section(now, "scheduler", steps_total=now.scheduler.steps_total + steps, **scheduler)
    return with_section(now, "pulse", step=now.pulse.step + steps, phase_since_ns=now.mono_ns)


def test_steps_without_tokens_are_a_livelock() -> None:
    first = calm()[-1]
    snapshots = [first, turned(first, SECOND, 400), turned(first, 2500 * MS, 1000)]
    found = only(snapshots, "scheduler_livelock")
    assert found.summary.startswith("1,000 steps in 2.5 s computed no token, though 4 requests run")
    assert found.since_ns == first.mono_ns


def test_one_look_sees_a_livelock_in_the_steps_that_the_engine_remembers() -> None:
    now = calm()[-1]
    empty = tuple(replace(step, decode_tokens=0) for step in steps_before(now, count=30, total_ms=1))
    busy = with_section(now, "steps", items=(now.steps.items[0], *empty))
    assert only([busy], "scheduler_livelock").summary.startswith("30 steps in 3 s computed no token")
    assert causes([with_section(now, "steps", items=empty[-19:])]) == []


def test_steps_with_tokens_are_none() -> None:
    first = calm()[-1]
    more = first.scheduler.generated_tokens_total + 1
    assert causes([first, turned(first, 2500 * MS, 1000, generated_tokens_total=more)]) == []


def test_a_livelock_needs_two_seconds() -> None:
    first = calm()[-1]
    assert causes([first, turned(first, 1900 * MS, 1000)]) == []


def test_an_engine_without_requests_may_turn() -> None:
    first = with_section(calm()[-1], "scheduler", running=0, waiting=0)
    assert causes([first, turned(first, 3 * SECOND, 1000)]) == []
