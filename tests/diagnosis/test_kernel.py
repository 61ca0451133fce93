"""Rules over what the kernel's log says of a server."""

from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kernel_log import KernelEvent, KernelLog
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.server import Server
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window

BEGAN = 1_000 * SECOND
NOW = 2_000 * SECOND
FRONT = Process(60, "vllm", "front end", "S")
CORE = Process(62, "VLLM::EngineCore", "engine core", "S")
WORKER = Process(63, "VLLM::Worker_TP1", "worker", "S", rank="TP1")
KILLED = KernelEvent(
    "oom kill", "Memory cgroup out of memory: Killed process 63", mono_ns=NOW, pid=63, process="VLLM::Worker_TP1",
    rss_bytes=20 << 30, group="/kubepods/pod1", asked_by="VLLM::Worker_TP1",
)  # fmt: skip
CRASHED = KernelEvent(
    "segfault", "VLLM::EngineCor[62]: segfault at 10", mono_ns=NOW, pid=62, what="crashed (SIGSEGV)", address=16,
    access="wrote to memory that is not there", library="libcuda.so", offset=0x2B8E10,
)  # fmt: skip
XID = KernelEvent(
    "xid", "NVRM: Xid (PCI:0000:3b:00): 79", mono_ns=NOW, device="0000:3b:00", code=79, what="it fell off the bus",
    blame="hardware", advice="reboot",
)  # fmt: skip


def moment(
    *items: Process, after_s: int = 0, log: tuple[KernelEvent, ...] | None = (), state: str = "alive"
) -> Snapshot:
    at_ns = NOW + after_s * SECOND
    origin = Origin("processes", at_ns)
    server = Server(origin, "vllm", pid=60, state=state, started_mono_ns=BEGAN)  # type: ignore[arg-type]
    kernel_log = KernelLog(Origin("kernel log", at_ns), "/dev/kmsg", log) if log is not None else None
    processes = Processes(origin, items) if items else None
    return Snapshot(
        after_s, at_ns, at_ns, Target("process", "x", 60), server=server, processes=processes, kernel_log=kernel_log
    )


def found(*moments: Snapshot) -> list[Finding]:
    return diagnose(Window(moments))


def test_a_kill_for_want_of_memory_explains_what_it_left_behind() -> None:
    said = found(moment(FRONT, CORE, WORKER), moment(FRONT, CORE, after_s=1, log=(KILLED,)))
    assert [finding.cause for finding in said] == ["host_oom", "worker_gone"]
    assert said[0].summary == (
        "memory of /kubepods/pod1 ended: the kernel killed worker 63 (VLLM::Worker_TP1, TP1), which held 20 GiB; "
        "VLLM::Worker_TP1 asked for more"
    )
    assert (said[0].severity, said[0].since_ns) == ("dead", NOW)


def test_a_kill_of_somebody_else_is_a_note_and_an_old_one_nothing() -> None:
    other = replace(KILLED, pid=999, process="chrome", group=None)
    (said,) = found(moment(FRONT, CORE, WORKER, log=(other,)))
    assert (said.cause, said.severity) == ("host_oom_elsewhere", "note")
    assert "the machine's memory ended: the kernel killed process 999 (chrome)" in said.summary
    assert not found(moment(FRONT, CORE, WORKER, log=(replace(other, mono_ns=NOW - 700 * SECOND),)))
    for at_ns in (BEGAN - 60 * SECOND, NOW + 3600 * SECOND):
        assert not found(moment(FRONT, CORE, WORKER, log=(replace(KILLED, mono_ns=at_ns),))), "another had that PID"


def test_a_crash_is_named_with_where_and_what_it_did() -> None:
    said = found(moment(FRONT, CORE, WORKER), moment(FRONT, after_s=1, log=(CRASHED,)))
    assert said[0].summary == (
        "engine core 62 (VLLM::EngineCore) crashed (SIGSEGV) in libcuda.so+0x2b8e10: it wrote to memory that is not "
        "there (0x10)"
    )
    assert said[0].next_step.startswith("addr2line -Cfie libcuda.so 0x2b8e10")
    assert [finding.cause for finding in said[1:]] == ["engine_core_gone"]
    illegal = replace(CRASHED, kind="trap", what="crashed (SIGILL): an instruction that this processor does not have")
    assert found(moment(FRONT, CORE, WORKER, log=(illegal,)))[0].cause == "driver_stack_mismatch"
    assert not found(moment(FRONT, CORE, WORKER, log=(replace(CRASHED, pid=7),)))
    threads = replace(CORE, thread_ids=(62, 70))
    assert "engine core 62" in found(moment(FRONT, threads, WORKER, log=(replace(CRASHED, pid=70),)))[0].summary


def test_a_crash_at_the_last_sign_of_life_is_likely_that_of_the_engine_which_tells_no_threads() -> None:
    dead = moment(log=(replace(CRASHED, pid=70),), state="dead")
    assert dead.server is not None
    of_a_box = replace(dead, server=replace(dead.server, engine="inferdbg", box_path="/dev/shm/60.box"))
    said = found(of_a_box)
    assert [finding.cause for finding in said] == ["native_memory_bug", "engine_dead"]
    assert said[0].confidence == "likely"
    assert said[0].summary.startswith(
        "thread 70, with the last sign of life of inferdbg 60, crashed (SIGSEGV) in libcuda"
    )
    assert "log names none" not in said[1].next_step
    later = replace(of_a_box, mono_ns=NOW - 30 * SECOND)
    assert [finding.cause for finding in found(later)] == ["engine_dead"]


def test_the_first_xid_that_is_no_consequence_is_the_one() -> None:
    after = replace(XID, code=45, blame="consequence", text="Xid 45", device="0000:86:00")
    (said,) = found(moment(FRONT, CORE, WORKER, log=(replace(after, mono_ns=NOW - 1), XID, XID)))
    assert (said.cause, said.severity, said.confidence) == ("gpu_hardware_fault", "wrong", "sure")
    assert said.summary == "Xid 79 on 0000:3b:00: it fell off the bus, 2 times; 1 more GPUs report errors after it"
    (said,) = found(moment(FRONT, CORE, WORKER, log=(after,)))
    assert said.severity == "note"


def test_an_xid_of_a_program_is_this_servers_or_nobodys() -> None:
    fault = replace(XID, code=31, blame="program", pid=63, what="a kernel touched memory that is not mapped")
    (said,) = found(moment(FRONT, CORE, WORKER, log=(fault,)))
    assert (said.cause, said.severity, said.confidence) == ("kernel_memory_fault", "wrong", "likely")
    assert "(of worker 63 (VLLM::Worker_TP1, TP1))" in said.summary
    (other,) = found(moment(FRONT, CORE, WORKER, log=(replace(fault, pid=999),)))
    assert other.severity == "note"


def test_nobody_is_sent_to_a_log_that_was_read_and_says_nothing() -> None:
    for log, says in ((None, "dmesg -T | grep -w 62"), ((), "the kernel's log names none of its processes")):
        said = found(moment(FRONT, CORE, WORKER, log=log), moment(FRONT, WORKER, after_s=1, log=log))
        assert says in said[0].next_step
