"""Health tells a hung engine from a busy one, and from one that has nothing to do."""

from __future__ import annotations

from inferdbg.engine.server.health import ITERATION_BOUNDS, RECENT_STEPS, PulseWatch, Vitals, judge
from inferdbg.engine.state import Column, Phase, Pulse

SECOND = 1_000_000_000


def pulse(phase: Phase = Phase.FORWARD, step: int = 7) -> Column:
    column = memoryview(bytearray(8 * len(Pulse))).cast("Q")
    column[Pulse.PHASE] = phase
    column[Pulse.STEP] = step
    return column


def test_no_work_is_healthy_for_ever() -> None:
    health = judge(Vitals(moved_ns=SECOND), pulse(Phase.IDLE), now_ns=9_999 * SECOND, owed_since_ns=None)
    assert (health.ok, health.seconds, health.phase) == (True, 0.0, "idle")


def test_a_step_of_more_than_two_seconds_is_a_stall() -> None:
    vitals = Vitals(busy=True, moved_ns=10 * SECOND)
    assert judge(vitals, pulse(), now_ns=12 * SECOND, owed_since_ns=None).ok
    stalled = judge(vitals, pulse(), now_ns=12 * SECOND + 1, owed_since_ns=None)
    assert (stalled.state, stalled.phase, stalled.step) == ("stalled", "forward", 7)
    assert stalled.seconds > 2
    assert "step 7" in stalled.detail


def test_a_long_step_whose_kernels_go_on_is_no_stall_until_they_stop() -> None:
    vitals, column = Vitals(busy=True, moved_ns=0), pulse()
    watch = PulseWatch(column)
    for second in range(1, 9):
        column[Pulse.LAUNCHED] += 1
        watch.look(second * SECOND)
        now = second * SECOND
        assert judge(vitals, column, now_ns=now, owed_since_ns=0, pulse_moved_ns=watch.moved_ns).ok
    watch.look(10 * SECOND)
    stuck = judge(vitals, column, now_ns=10 * SECOND + 1, owed_since_ns=0, pulse_moved_ns=watch.moved_ns)
    assert (stuck.state, round(stuck.seconds)) == ("stalled", 2)


def test_steps_that_only_follow_each_other_are_no_progress() -> None:
    column = pulse()
    watch = PulseWatch(column)
    for second in range(1, 9):
        column[Pulse.STEP] += 1
        column[Pulse.PHASE] = (Phase.SCHEDULE, Phase.PREPARE)[second % 2]
        watch.look(second * SECOND)
    assert watch.moved_ns == 0


def test_slow_steps_are_given_five_times_their_median() -> None:
    vitals = Vitals(busy=True, moved_ns=0)
    for took in (1, 3, 3, 3, 60):
        vitals.stepped(took * SECOND, 1)
    assert judge(vitals, pulse(), now_ns=15 * SECOND, owed_since_ns=None).ok
    assert not judge(vitals, pulse(), now_ns=15 * SECOND + 1, owed_since_ns=None).ok


def test_only_recent_steps_count() -> None:
    vitals = Vitals()
    vitals.stepped(60 * SECOND, 1)
    for _ in range(RECENT_STEPS):
        vitals.stepped(SECOND // 100, 1)
    assert vitals.median_step_ns() == SECOND // 100


def test_a_client_that_waits_while_the_engine_claims_to_be_idle_is_a_stall() -> None:
    vitals = Vitals(busy=False, moved_ns=SECOND)
    assert judge(vitals, pulse(Phase.IDLE), now_ns=11 * SECOND, owed_since_ns=10 * SECOND).ok
    assert not judge(vitals, pulse(Phase.IDLE), now_ns=13 * SECOND, owed_since_ns=10 * SECOND).ok


def test_a_dead_engine_says_why() -> None:
    health = judge(Vitals(failure="ValueError: boom", moved_ns=0), pulse(), now_ns=SECOND, owed_since_ns=None)
    assert health.state == "failed"
    assert "boom" in str(health.body()["detail"])


def test_tokens_of_a_step_fall_into_their_bucket() -> None:
    vitals = Vitals()
    for tokens in (0, 1, 2, 8, 9, 100_000):
        vitals.stepped(1, tokens)
    assert list(vitals.iteration_counts[:3]) == [2, 2, 1]
    assert vitals.iteration_counts[len(ITERATION_BOUNDS)] == 1
    assert vitals.iteration_sum == 100_020
