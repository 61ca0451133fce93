"""Rules over what the kernel tells of the server's processes and of the machine they share."""

from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Blocked, Process, Processes, Stalled
from inferdbg.facts.sections.server import Server
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window

NOW = 1_000 * SECOND
WORKER = Process(63, "VLLM::Worker_TP1", "worker", "S", rank="TP1", open_files=100, open_files_limit=1024)
ON_NFS = Blocked(63, "VLLM::Worker_TP1", "rpc_wait_bit_killable", ("rpc_wait_bit_killable", "nfs_file_read"))


def moment(*items: Process, after_s: float = 0, **machine: object) -> Snapshot:
    at_ns = NOW + round(after_s * SECOND)
    origin = Origin("processes", at_ns)
    front = Process(60, "vllm", "front end", "S")
    core = Process(62, "VLLM::EngineCore", "engine core", "S")
    processes = Processes(origin, (front, core, *items), **machine)  # type: ignore[arg-type]
    server = Server(origin, "vllm", pid=60)
    return Snapshot(0, at_ns, at_ns, Target("process", "x", 60), server=server, processes=processes)


def found(*moments: Snapshot) -> dict[str, Finding]:
    return {one.cause: one for one in diagnose(Window(moments))}


def test_a_worker_that_no_signal_reaches_is_stuck_and_what_it_waits_for_is_named() -> None:
    asleep = replace(WORKER, state="D", blocked=(ON_NFS,))
    looks = [moment(WORKER), *(moment(asleep, after_s=second) for second in range(1, 8))]
    assert "blocked_in_kernel" not in found(*looks[:5])
    said = found(*looks)["blocked_in_kernel"]
    assert (said.severity, said.confidence, said.since_ns) == ("stuck", "likely", NOW + SECOND)
    assert said.summary == (
        "worker 63 (VLLM::Worker_TP1, TP1) sleeps in the kernel for 6 s, for a file server (NFS): no signal reaches "
        "it, SIGKILL neither"
    )
    assert said.next_step.startswith("mount -t nfs")
    assert found(*looks[1:], moment(asleep, after_s=20))["blocked_in_kernel"].confidence == "sure"
    assert "for at least 6 s" in found(*looks[1:])["blocked_in_kernel"].summary


def test_one_that_wakes_up_between_is_only_busy_with_its_disk() -> None:
    asleep = replace(WORKER, state="D", blocked=(replace(ON_NFS, waits_in="folio_wait_bit_common", kernel_stack=()),))
    looks = [moment(WORKER if second == 4 else asleep, after_s=second) for second in range(9)]
    assert found(*looks) == {}


def test_another_thread_than_the_first_is_a_note_and_unknown_functions_are_asked_for() -> None:
    loader = replace(WORKER, blocked=(Blocked(99, "loader"),))
    said = found(*(moment(loader, after_s=second) for second in range(8)))["blocked_in_kernel"]
    assert said.severity == "note"
    assert said.summary.startswith(
        "thread loader of worker 63 (VLLM::Worker_TP1, TP1) sleeps in the kernel for at least"
    )
    assert said.next_step == "sudo cat /proc/63/task/99/stack   (says where it sleeps)"


def test_the_last_files_are_told_of_before_they_are_taken() -> None:
    assert found(moment(replace(WORKER, open_files=972))) == {}
    said = found(moment(replace(WORKER, open_files=973)))["os_limit"]
    assert "has 973 of 1,024 files open" in said.summary
    assert "prlimit --pid 63 --nofile=4096" in said.next_step


def test_a_full_dev_shm_is_told_of() -> None:
    assert found(moment(WORKER, shm_bytes=1 << 30, shm_used_bytes=1 << 29)) == {}
    assert (
        "/dev/shm is full"
        in found(moment(WORKER, shm_bytes=1 << 30, shm_used_bytes=(1 << 30) - 9))["shm_exhausted"].summary
    )


def test_time_lost_for_want_of_memory_is_told_with_what_is_swapped_out() -> None:
    def looks(lost_s: float) -> list[Snapshot]:
        swapped = replace(WORKER, swap_bytes=3 << 30)
        return [
            moment(swapped, after_s=second, stalled=(Stalled("memory", round(lost_s / 10 * second * SECOND), 0),))
            for second in range(11)
        ]

    assert found(*looks(0.9)) == {}
    said = found(*looks(2.5))["memory_stalls"]
    assert said.summary == (
        "25 % of the last time somebody on this machine waited for memory; 3 GiB of the server are swapped out"
    )
    assert (said.severity, said.confidence) == ("slow", "likely")
