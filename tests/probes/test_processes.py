"""Bytes of /proc in, processes out."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Blocked, Process, Processes, Stalled
from inferdbg.probes.cgroups import (
    Limits,
    groups,
    parse_cpus,
    parse_memory,
    read_limits,
    read_oom_kills,
    read_stalled,
)
from inferdbg.probes.process_table import descendants, parse_stat
from inferdbg.probes.processes import (
    ProcessFiles,
    ProcFiles,
    TaskFiles,
    Title,
    count_of_list,
    parse,
    parse_blocked,
    parse_open_files_limit,
    parse_status,
    title_of,
)

STAT = (
    b"6071 (VLLM::Worker (1)) D 6002 6000 3704 0 -1 4194304 101 0 0 0 9400 600 0 0 20 0 93 0 351361 3133440 409 "
    b"18446744073709551615 94000394985472 94000395005353 140730043882864 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
)
STATUS = (
    b"Name:\tVLLM::Worker (1)\nState:\tD (disk sleep)\nPPid:\t6002\nVmRSS:\t 2051172 kB\nCpus_allowed_list:\t0-3,8\n"
)
LIMITS = (
    b"Limit                     Soft Limit           Hard Limit           Units     \n"
    b"Max processes             96365                96365                processes \n"
    b"Max open files            1024                 524288               files     \n"
)
MEMINFO = b"MemTotal:       24684084 kB\nMemFree:        20575252 kB\nMemAvailable:   22209840 kB\n"
ORIGIN = Origin("processes", 7)
GIB = 1 << 30


def test_a_process_is_read_from_its_files() -> None:
    more = b"RssShmem:\t 1024 kB\nVmSwap:\t 8 kB\nvoluntary_ctxt_switches:\t70\nnonvoluntary_ctxt_switches:\t9\n"
    asleep = TaskFiles(
        STAT.replace(b"6071 (VLLM::Worker (1))", b"6072 (load) D)"),
        b"folio_wait_bit_common",
        b"[<0>] folio_wait_bit_common+0x135/0x340\n[<0>] filemap_read+0x2f/0x3c0 [ext4]\n",
    )
    tasks = (TaskFiles(STAT.replace(b") D ", b") R ")), TaskFiles(STAT.replace(b") D ", b") S ")), asleep)
    files = [ProcFiles(STAT, STATUS + more, LIMITS, 31, b"667\n", tasks)]
    found = parse(files, MEMINFO, Limits(), {}, ORIGIN)
    assert found.items == (
        Process(
            6071, "VLLM::Worker (1)", "worker", "D", 100 * 10**9, 2051172 * 1024, 93, 31, 1024,
            parent=6002, shared_bytes=1 << 20, swap_bytes=8192, major_faults=0, waits=70, preempted=9, running=1,
            blocked=(Blocked(6072, "load) D", "folio_wait_bit_common", ("folio_wait_bit_common", "filemap_read")),),
            oom_score=667, thread_ids=(6071, 6071, 6072),
        ),
    )  # fmt: skip
    assert (found.cpus, found.memory_bytes, found.memory_available_bytes) == (5, 24684084 * 1024, 22209840 * 1024)


def test_what_may_not_be_read_is_unknown() -> None:
    found = parse([ProcFiles(STAT)], b"", Limits(), {6071: Title("engine")}, ORIGIN)
    assert found.items == (
        Process(6071, "VLLM::Worker (1)", "engine", "D", 100 * 10**9, None, 93, parent=6002, major_faults=0),
    )
    assert (found.cpus, found.memory_bytes, found.memory_available_bytes) == (None, None, None)


def test_the_limits_of_a_container_count_before_the_machine() -> None:
    found = parse([ProcFiles(STAT, STATUS)], MEMINFO, Limits(2, 8 * GIB, 3 * GIB), {}, ORIGIN)
    assert (found.cpus, found.memory_bytes, found.memory_available_bytes) == (2, 8 * GIB, 5 * GIB)
    assert parse_memory(MEMINFO, Limits(None, 99 * GIB, GIB)) == (24684084 * 1024, 22209840 * 1024)


def test_where_a_thread_sleeps_is_unknown_where_that_is_hidden() -> None:
    assert parse_blocked([TaskFiles(STAT, b"0", None)]) == (Blocked(6071, "VLLM::Worker (1)"),)
    assert len(parse_blocked([TaskFiles(STAT)] * 100)) == 8


def test_time_lost_is_that_of_the_group_or_of_the_machine(tmp_path: Path) -> None:
    machine, group = tmp_path / "pressure", tmp_path / "fs/a/b"
    machine.mkdir()
    (machine / "io").write_text("some avg10=0.00 avg60=0.00 avg300=0.09 total=11154810\nfull avg10=0.00 total=97\n")
    assert read_stalled(b"0::/\n", str(machine), str(tmp_path / "fs")) == ((Stalled("io", 11154810000, 97000),), False)
    group.mkdir(parents=True)
    (group / "cpu.pressure").write_text("some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n")
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n")
    assert read_stalled(b"0::/a/b\n", str(machine), str(tmp_path / "fs")) == ((Stalled("cpu", 5000, 0),), True)
    assert read_oom_kills(b"0::/a/b\n", str(tmp_path / "fs")) == 1
    assert read_oom_kills(b"0::/\n", str(tmp_path / "fs")) is None


def test_a_process_that_no_signal_reaches_is_seen_with_where_it_sleeps(tmp_path: Path) -> None:
    """The parent of a vfork sleeps uninterruptibly until its child is done."""
    source, program = tmp_path / "asleep.c", tmp_path / "asleep"
    source.write_text("#include <unistd.h>\nint main(void) { if (vfork() == 0) { pause(); _exit(0); } return 0; }\n")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    subprocess.run(["cc", "-w", "-o", program, source], check=True)
    with subprocess.Popen([program]) as process:
        try:
            for _ in range(100):
                section = ProcessFiles(process.pid).read(7).sections["processes"]
                assert isinstance(section, Processes)
                if section.items[0].blocked:
                    break
                time.sleep(0.05)
            (blocked,) = section.items[0].blocked
            assert (section.items[0].state, blocked.native_id, blocked.name) == ("D", process.pid, "asleep")
            assert blocked.waits_in is None or "fork" in blocked.waits_in or "clone" in blocked.waits_in
        finally:
            for one in section.items:
                os.kill(one.pid, signal.SIGKILL)


@pytest.mark.parametrize("broken", [b"", b"12", b"12 (x", b"12 (x) R 1"])
def test_a_cut_stat_is_refused(broken: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_stat(broken)


def test_a_status_without_memory_is_a_process_without_memory() -> None:
    assert "VmRSS" not in parse_status(b"Name:\tkthreadd\nState:\tS (sleeping)\n")
    assert parse_open_files_limit(LIMITS.replace(b"1024 ", b"unlimited ")) is None


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-7", 8), ("0-3,8,10-11", 7), ("", None), (None, None)])
def test_processors_are_counted(text: str | None, count: int | None) -> None:
    assert count_of_list(text) == count


def test_roles_come_from_the_names_that_engines_give() -> None:
    assert title_of("VLLM::EngineCor", ("VLLM::EngineCore_DP1",)) == Title("engine core", "DP1", "VLLM::EngineCore_DP1")
    assert title_of("VLLM::Worker_DP", ("VLLM::Worker_DP0_TP1",)) == Title("worker", "DP0 TP1", "VLLM::Worker_DP0_TP1")
    assert title_of("sglang::schedul", ()).role == "engine core"
    assert title_of("python3", ("python3", "-c", "from multiprocessing.resource_tracker import main;main(7)")) == Title(
        "resource tracker"
    )
    assert title_of("bash", ("bash",)) == Title()


def test_descendants_are_found_through_any_generation() -> None:
    parents = {1: 0, 58: 1, 60: 58, 61: 58, 70: 61, 99: 1, 71: 70}
    assert descendants(58, parents) == (60, 61, 70, 71)
    assert descendants(5, {5: 5}) == ()


def test_control_groups_of_both_versions_are_understood() -> None:
    assert list(groups(b"4:memory:/a/b\n0::/user.slice\n")) == [(("memory",), "/a/b"), ((), "/user.slice")]
    assert parse_cpus(b"150000 100000\n", None, None) == 2
    assert parse_cpus(b"max 100000\n", None, None) is None
    assert parse_cpus(None, b"400000\n", b"100000\n") == 4
    assert parse_cpus(None, b"-1\n", b"100000\n") is None
    assert parse_cpus(None, None, None) is None


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_limit_on_the_way_up_counts(version: int, tmp_path: Path) -> None:
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }
    limit, usage, dropped = names[version]
    base = tmp_path / "memory" if version == 1 else tmp_path
    inner = base / "pod" / "engine"
    inner.mkdir(parents=True)
    (base / "pod" / limit).write_text(f"{8 * GIB}\n")
    (base / "pod" / usage).write_text(f"{5 * GIB}\n")
    (base / "pod" / "memory.stat").write_text(f"anon 1\n{dropped} {2 * GIB}\n")
    (inner / limit).write_text("9223372036854771712\n" if version == 1 else "max\n")
    line = b"4:memory:/pod/engine\n" if version == 1 else b"0::/pod/engine\n"
    assert read_limits(line, str(tmp_path)) == Limits(None, 8 * GIB, 3 * GIB)


def test_a_process_that_ended_is_absent() -> None:
    reading = ProcessFiles(1 << 30).read(0)
    assert (reading.status, reading.message) == ("absent", f"process {1 << 30} has ended")
