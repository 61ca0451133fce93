"""The table of processes, as text."""

from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Blocked, Process, Processes, Stalled
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window
from inferdbg.tui.drawing.processes import in_order, machine_lines, table_lines
from inferdbg.tui.ink import plain

NOW = 1_000 * SECOND
ASLEEP = Blocked(63, "VLLM::Worker", "rpc_wait_bit_killable", ("rpc_wait_bit_killable", "nfs_file_read"))
WORKER = Process(
    63, "VLLM::Worker", "worker", "D", 0, 3 << 30, 46, 100, 1024, "TP1",
    parent=62, shared_bytes=1 << 20, swap_bytes=0, major_faults=0, waits=0, preempted=0, running=1, blocked=(ASLEEP,),
    oom_score=700,
)  # fmt: skip
CORE = Process(62, "VLLM::EngineCore", "engine core", "S", parent=60)


def window(*workers: Process) -> Window:
    looks = []
    for index, worker in enumerate(workers):
        at_ns = NOW + 10 * index * SECOND
        lost = (Stalled("cpu", index * SECOND, 0), Stalled("io", 6 * index * SECOND, 5 * index * SECOND))
        processes = Processes(
            Origin("processes", at_ns), (CORE, worker), memory_bytes=16 << 30, memory_available_bytes=8 << 30,
            stalled=lost, shm_bytes=16 << 30, shm_used_bytes=1 << 30, oom_kills=1,
        )  # fmt: skip
        looks.append(Snapshot(index, at_ns, at_ns, Target("process", "x", 60), processes=processes))
    return Window(looks)


def lines(width: int) -> list[str]:
    later = replace(WORKER, cpu_ns=9 * SECOND, waits=1200, preempted=90, major_faults=3)
    seen = window(WORKER, later)
    assert seen.now.processes is not None
    drawn = [*table_lines(seen, seen.now.processes, width), *machine_lines(seen, seen.now.processes, width)]
    return [plain(line).rstrip() for line in drawn]


def test_a_process_stands_below_its_parent_and_what_fits_is_told_of_it() -> None:
    assert lines(80)[:4] == [
        " process                                 cpu      rss run/thr    files   shared",
        " engine core 62                    S       -        -       -        -        -",
        "   worker 63 TP1                   D    90 %    3 GiB    1/46 100/1.0k    1 MiB",
        "     its first thread sleeps uninterruptibly in rpc_wait_bit_killable ← nfs_file_read",
    ]
    assert lines(120)[2].endswith("1 MiB      0 B        0     120       9  700")
    assert max(map(len, lines(120))) <= 120


def test_what_tasks_waited_for_is_told_with_whose_they_are() -> None:
    assert lines(120)[-2:] == [
        " memory   8 GiB of 16 GiB available · /dev/shm 1 GiB of 16 GiB · 1 OOM kill in its group",
        " waited   for cpu 10 % · for io 60 % (all 50 %) · of the last 10 s, by the machine's tasks",
    ]


def test_of_one_look_no_rate_is_told() -> None:
    seen = window(WORKER)
    assert seen.now.processes is not None
    assert len(machine_lines(seen, seen.now.processes, 80)) == 2
    assert "    -" in plain(table_lines(seen, seen.now.processes, 80)[2])


def test_processes_that_are_each_others_parents_are_each_shown_once() -> None:
    circle = (replace(CORE, parent=63), replace(WORKER, parent=62), replace(CORE, pid=9, parent=9))
    assert sorted(process.pid for _, process in in_order(circle)) == [9, 62, 63]
