"""Which rank is missing from a collective: named from two looks, never from ranks that go on."""

from inferdbg.diagnosis.finding import Finding
from inferdbg.diagnosis.folding import folds, seats_of
from inferdbg.diagnosis.movement import movements
from inferdbg.diagnosis.ranks_apart import DIVERGED, MISSING, ranks_apart
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.stacks import Call, ProcessStacks, Stacks, ThreadStack

SECOND = 10**9
C10D = "torch/distributed/distributed_c10d.py"
REDUCE = (Call("all_reduce", C10D, 3252), Call("work", "train.py", 9))
GATHER = (Call("all_gather", C10D, 4192), Call("work", "train.py", 12))
SLEEP = (Call("work", "train.py", 7),)
ELSEWHERE = (Call("load", "train.py", 41),)


def rank(number: int, calls: tuple[Call, ...], *, wakes: int = 5, cpu_ns: int = 0, **more: object) -> ProcessStacks:
    kernel = "hrtimer_nanosleep" if calls == SLEEP else "futex_do_wait"
    main = ThreadStack("MainThread", 100 + number, calls, state="S", kernel_wait=kernel, wakes=wakes, cpu_ns=cpu_ns)
    pool = ThreadStack("pt_gloo_runloop", 200 + number, state="S", kernel_wait="futex_do_wait", wakes=1, cpu_ns=0)
    fields = {"rank": str(number), "job": "127.0.0.1:29500", "job_ranks": 4} | more
    return ProcessStacks(100 + number, None, (main, pool), tool="py-spy", **fields)  # type: ignore[arg-type]


def looked(*processes: ProcessStacks, at_s: int = 0) -> Stacks:
    return Stacks(Origin("stacks", at_s * SECOND), processes)


def found(*looks: Stacks, all_here: bool = True) -> tuple[Finding, ...]:
    moved = movements(looks[0], looks[-1]) if len(looks) > 1 else None
    return ranks_apart(seats_of(looks[-1], moved), all_here=all_here)


def four(calls: tuple[Call, ...] = SLEEP, **more: int) -> list[ProcessStacks]:
    return [rank(number, calls if number == 2 else REDUCE, **more) for number in range(4)]


def test_the_missing_rank_is_named_with_where_it_stands() -> None:
    (finding,) = found(looked(*four()), looked(*four(), at_s=2))
    assert (finding.cause, finding.severity, finding.confidence) == (MISSING, "stuck", "sure")
    assert finding.summary == (
        "rank 2 is missing: ranks 0, 1, 3 wait in all_reduce for at least 2 s; rank 2 sleeps (work train.py:7)"
    )
    assert finding.next_step == "inferdbg stacks 102 --native"
    assert finding.evidence[0].source == "rank 2, process 102, MainThread"


def test_one_look_alone_is_no_verdict() -> None:
    (finding,) = found(looked(*four()))
    assert finding.confidence == "possible"


def test_ranks_that_go_on_are_not_accused() -> None:
    """Each look of a healthy job shows a rank that comes later than the others."""
    assert found(looked(*four(wakes=5)), looked(*four(wakes=90), at_s=2)) == ()
    assert found(looked(*four()), looked(*[rank(number, GATHER) for number in range(3)], rank(3, SLEEP), at_s=2)) == ()
    assert found(looked(*[rank(number, REDUCE) for number in range(4)])) == ()
    assert found(looked(*[rank(number, ELSEWHERE) for number in range(4)])) == ()


def test_who_spins_in_a_collective_waits_in_it_too() -> None:
    later = [rank(number, SLEEP if number == 2 else REDUCE, cpu_ns=2 * SECOND) for number in range(4)]
    (finding,) = found(looked(*four()), looked(*later, at_s=2))
    assert (finding.cause, finding.confidence) == (MISSING, "likely")


def test_a_rank_whose_calls_are_not_seen_is_not_accused() -> None:
    """It may stand in that very collective."""
    assert found(looked(*four(())), looked(*four(()), at_s=2)) == ()


def test_a_rank_in_another_collective_is_said() -> None:
    (finding,) = found(looked(*four(GATHER)), looked(*four(GATHER), at_s=2))
    assert finding.cause == DIVERGED
    assert "ranks 0, 1, 3 wait in all_reduce; rank 2 waits in all_gather" in finding.summary


def test_ranks_without_a_process_here_are_said_only_where_all_were_looked_at() -> None:
    three = [rank(number, REDUCE) for number in (0, 1, 3)]
    (sure,) = found(looked(*three), looked(*three, at_s=2))
    assert (sure.confidence, sure.summary) == (
        "sure", "ranks 0, 1, 3 wait in all_reduce for at least 2 s; rank 2 has no process on this machine",
    )  # fmt: skip
    (unsure,) = found(looked(*three), looked(*three, at_s=2), all_here=False)
    assert (unsure.confidence, unsure.next_step) == ("possible", "inferdbg stacks 100 --all-ranks")


def test_jobs_are_told_apart() -> None:
    other = [rank(number, ELSEWHERE, job="other") for number in (4, 5)]
    (finding,) = found(looked(*four(), *other), looked(*four(), *other, at_s=2))
    assert "rank 2 is missing" in finding.summary


def test_identical_stacks_fold_across_ranks_and_the_idle_come_last() -> None:
    groups = folds(seats_of(looked(*four()), movements(looked(*four()), looked(*four(), at_s=2))))
    assert [len(group.seats) for group in groups] == [3, 1, 4]
    assert [group.is_idle for group in groups] == [False, False, True]
    assert [process.rank for process in groups[0].processes] == ["0", "1", "3"]


def test_the_engine_comes_before_workers_and_they_before_the_front_end() -> None:
    processes = [
        ProcessStacks(pid, role, (ThreadStack("MainThread", pid, (Call("run", f"{role}.py", 1),)),))
        for pid, role in ((1, "front end"), (2, "resource tracker"), (3, "worker"), (4, "engine core"))
    ]
    groups = folds(seats_of(looked(*processes)))
    assert [group.seats[0].process.role for group in groups] == [
        "engine core",
        "worker",
        "front end",
        "resource tracker",
    ]


def test_what_moved_between_two_looks_is_said() -> None:
    def how(**later: object) -> str:
        first = ThreadStack("it", 7, REDUCE, wakes=5, cpu_ns=0)
        fields = {"calls": REDUCE, "wakes": 5, "cpu_ns": 0} | later
        now = ThreadStack("it", 7, **fields)  # type: ignore[arg-type]  # fields by name
        (moved,) = movements(
            looked(ProcessStacks(1, None, (first,))), looked(ProcessStacks(1, None, (now,)), at_s=2)
        ).values()
        return moved.said

    assert how() == "did not move in 2 s"
    assert how(wakes=25) == "woke 20 times in 2 s, in the same calls again"
    assert how(cpu_ns=1_900_000_000) == "spins: the same calls, 95 % of a core for 2 s"
    assert how(calls=GATHER) == "moved"
    assert how(wakes=385, timed=True) == "woke 380 times in 2 s in the same calls: it waits for the GIL"
    assert how(wakes=None) == "stood in the same calls 2 s apart"
    assert how(calls=(Call("wait", "libc.so.6", 0, True), *REDUCE)) == "did not move in 2 s"
