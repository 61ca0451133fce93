"""Kernel logs in, events out: captures of known causes, every way of printing, what is cut, and the real one."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.sections.kernel_log import KernelEvent
from inferdbg.facts.sections.kernel_log import KernelLog as Section
from inferdbg.probes.kernel_log.events import access_in_words, events
from inferdbg.probes.kernel_log.lines import entries
from inferdbg.probes.kernel_log.probe import KEPT, KernelLog

FOLDER = Path(__file__).parents[2] / "fixtures/kernel_log"
SECOND = 10**9
SEGFAULT = (
    "python3[5481]: segfault at 10 ip 00007f1e0c2b8e10 sp 00007ffd0f4a5b90 error 6 in libcuda.so.580.82.07"
    "[7f1e0c000000+8d2000]"
)


def of(name: str) -> list[KernelEvent]:
    now_ns = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * SECOND)
    return list(events(entries((FOLDER / f"{name}.txt").read_bytes(), now_ns)))


def only(text: str) -> KernelEvent:
    (event,) = events(entries(text.encode()))
    return event


# what captures of known causes tell


def test_a_healthy_host_has_nothing_to_tell() -> None:
    assert of("healthy-dmesg-gpu-host") == []


def test_an_instruction_that_the_processor_lacks_is_named_with_its_library() -> None:
    (event,) = of("61-tgi-sigill-no-avx")
    assert (event.kind, event.line, event.pid, event.process) == ("trap", 8, 3177, "python3.10")
    assert (event.library, event.offset) == ("rotary_emb.cpython-310-x86_64-linux-gnu.so", 0xD9E62)
    assert "SIGILL" in event.what
    assert event.mono_ns == 912_340_771_000


def test_xids_have_device_number_process_meaning_and_whose_fault_they_tell_of() -> None:
    found = of("84-flashinfer-xid31-unrecognized-client")
    assert [(event.line, event.code) for event in found[:4]] == [(8, 13), (9, 13), (10, 43), (12, 31)]
    assert found[0].device == "0000:1b:00"
    assert (found[0].blame, found[2].blame) == ("program", "consequence")
    assert (found[3].pid, found[3].process, found[3].device) == (5126, "python3", "0000:9d:00")
    assert [event.code for event in found if event.kind == "xid"].count(154) == 3
    (crash,) = [event for event in found if event.kind == "segfault"]
    assert (crash.pid, crash.library) == (5481, "libcuda.so.580.82.07")
    local = datetime.fromtimestamp(found[0].wall_ns / SECOND) if found[0].wall_ns is not None else None
    assert local == datetime(2026, 6, 3, 9, 20, 11)


def test_identical_faults_are_counted_each_with_its_line() -> None:
    found = of("64-trtllm-xid13-identical-address")
    assert [event.line for event in found] == [*range(8, 21), *range(23, 29)]
    assert {event.device for event in found} == {"0000:8b:00", "0000:8e:00"}


def test_what_an_xid_was_caused_by_is_told_and_the_journals_own_lines_are_passed_over() -> None:
    found = of("86-xid45-cascade-from-145-149")
    xids = [event for event in found if event.kind == "xid"]
    assert (xids[0].line, xids[0].code, xids[0].device) == (11, 45, "0000:cb:00")
    assert "because of Xid 149" in xids[0].what
    assert xids[-1].code == 154
    assert [event.line for event in found if event.kind == "file server"] == [4]
    assert [event.kind for event in found].count("segfault") == 1
    local = datetime.fromtimestamp(xids[0].wall_ns / SECOND) if xids[0].wall_ns is not None else None
    assert local == datetime(2026, 2, 24, 3, 5, 18), "the year is that of the last such day"


def test_a_message_of_three_lines_is_one_event() -> None:
    (event,) = of("88-gpu-fell-off-bus-no-xid")
    assert (event.kind, event.line, event.device) == ("gpu lost", 31, "0000:84:00.0")
    (mismatch,) = of("92-nvml-mismatch-after-unattended-upgrade")
    assert (mismatch.kind, mismatch.line) == ("driver mismatch", 2)
    assert mismatch.what == "the library of the NVIDIA driver is 470.82.01, its kernel module 470.57.02"


def test_old_drivers_name_no_process() -> None:
    found = of("89-pytorch-xid43-31-two-gpus")
    assert [(event.code, event.pid) for event in found][:4] == [(43, 28412), (43, 28977), (43, 31240), (31, 6641)]


def test_an_oom_report_of_many_lines_is_one_kill() -> None:
    (event,) = of("oom-in-a-container")
    assert (event.kind, event.line, event.pid, event.process) == ("oom kill", 15, 6071, "VLLM::Worker_TP")
    assert event.rss_bytes == (21400312 + 280128) * 1024
    assert (event.group, event.asked_by) == ("/kubepods/burstable/pod1c2d", "VLLM::Worker_TP")


@pytest.mark.parametrize(
    ("line", "pid", "group"),
    [
        ("Out of memory: Killed process 12 (a (b)) total-vm:9kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB", 12, None),
        ("Killed process 12 (python3) total-vm:9kB, anon-rss:4kB, file-rss:0kB", 12, None),
        ("Memory cgroup out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:4kB", 7, "its memory group"),
    ],
)
def test_kills_as_kernels_of_all_ages_tell_them(line: str, pid: int, group: str | None) -> None:
    event = only(f"[  1.000000] {line}")
    assert (event.kind, event.pid, event.rss_bytes, event.group) == ("oom kill", pid, 4096, group)


@pytest.mark.parametrize(
    ("line", "kind", "what"),
    [
        ("INFO: task kworker/3:1:512 blocked for more than 122 seconds.", "hung task", "kworker/3:1 could not be"),
        ("INFO: task python:77 <blocker> blocked for more than 241 seconds.", "hung task", "more than 241 s"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python:1234]", "lockup", "processor 3 was stuck for 26 s"),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", "lockup", "a processor hangs"),
        ("mce: [Hardware Error]: Machine check events logged", "memory error", "Machine check events logged"),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "memory error", "CE memory read error"),
        ("pcieport 0000:15:01.0: AER: Corrected error received: 0000:17:00.0", "pcie error", "Corrected error"),
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
         "pcie error", "Uncorrected (Fatal), Transaction Layer"),
        ("I/O error, dev nvme0n1, sector 4096 op 0x0:(READ)", "disk error", "nvme0n1"),
        ("EXT4-fs error (device vda1): ext4_lookup:1609", "disk error", "EXT4 on vda1"),
        ("nvme nvme0: I/O tag 12 (000c) QID 3 timeout, aborting", "disk error", "nvme0"),
        ("nfs: server 10.0.0.2 not responding, still trying", "file server", "10.0.0.2"),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 36 egress", "sxid", "Link 36"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "driver failed", "(0x26:0x56:1474)"),
        ("NVRM: Xid (PCI:0000:c6:00): 79, pid=1101234, name=nvc:[driver], GPU has fallen off the bus.", "xid",
         "fallen off the bus"),
        ("NVRM: Xid (PCI:0000:c6:00): 9999, something new", "xid", ""),
    ],
)  # fmt: skip
def test_each_kind_of_trouble_in_its_words(line: str, kind: str, what: str) -> None:
    event = only(f"[   12.000001] {line}")
    assert event.kind == kind
    assert what in event.what
    assert event.mono_ns == 12_000_001_000


def test_a_crash_has_the_place_and_what_it_did() -> None:
    event = only(f"[   12.000001] {SEGFAULT}")
    assert (event.address, event.access) == (0x10, "wrote to memory that is not there")
    assert (event.library, event.offset) == ("libcuda.so.580.82.07", 0x2B8E10)
    newer = only("[ 1.000000] python[9]: segfault at 0 ip 00007f17a0385ad8 sp 00 error 4 in libc.so.6"
                 "[167ad8,7f17a0244000+156000] likely on CPU 1 (core 1, socket 0)")  # fmt: skip
    assert (newer.library, newer.offset, newer.access) == ("libc.so.6", 0x167AD8, "read memory that is not there")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (4, "read memory that is not there"),
        (7, "wrote to memory that it may not"),
        (0x15, "executed memory that it may not"),
        (0, "read memory that is not there, in the kernel"),
    ],
)
def test_the_bits_of_a_page_fault(error: int, words: str) -> None:
    assert access_in_words(error) == words


# however it was printed


@pytest.mark.parametrize("form", ["dmesg_T", "dmesg_iso", "dmesg_plain", "dmesg_raw", "dmesg_x", "kmsg"])
def test_one_real_log_tells_the_same_in_every_form(form: str) -> None:
    found = [event for event in of(f"real/{form}") if event.pid != 20138]  # which only the ring itself goes back to
    assert [event.pid for event in found] == [20398, 20498, 20972, 21013, 21054, 21095, 21136, 21177, 21272]
    kill = found[1]
    assert (kill.kind, kill.process, kill.asked_by) == ("oom kill", "python3", "python3")
    assert kill.group is not None
    assert kill.rss_bytes is not None
    assert kill.rss_bytes > 10 << 20
    times = [event.wall_ns or event.mono_ns or 0 for event in found]
    assert times == sorted(times)
    assert 0 < times[0] < times[-1]


@pytest.mark.parametrize(
    "line",
    [
        f"[ 5121.402290] {SEGFAULT}",
        f"<6>[ 5121.402290] {SEGFAULT}",
        f"kern  :info  : [ 5121.402290] {SEGFAULT}",
        f"[ 5121.402290] [  T5481] {SEGFAULT}",
        f"6,812,5121402290,-;{SEGFAULT}",
        f"Feb 24 03:05:22 node7 kernel: [ 5121.402290] {SEGFAULT}",
        f'{{"MESSAGE": "{SEGFAULT}", "_TRANSPORT": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": "5121402290"}}',
    ],
)
def test_the_time_since_boot(line: str) -> None:
    event = only(line)
    assert (event.mono_ns, event.pid) == (5_121_402_290_000, 5481)


@pytest.mark.parametrize(
    "line",
    [
        f"2026-02-24T03:05:22,250000+01:00 {SEGFAULT}",
        f"2026-02-24T03:05:22.250000+0100 node7 kernel: {SEGFAULT}",
        f'{{"MESSAGE": "{SEGFAULT}", "__REALTIME_TIMESTAMP": "1771898722250000"}}',
    ],
)
def test_the_time_of_day(line: str) -> None:
    event = only(line)
    assert event.wall_ns == 1_771_898_722_250_000_000
    assert event.mono_ns is None


def test_others_than_the_kernel_are_passed_over_whatever_they_say() -> None:
    assert not list(events(entries(f"Feb 24 03:05:22 node7 app[12]: {SEGFAULT}".encode(), 1)))
    assert not list(events(entries(f'{{"MESSAGE": "{SEGFAULT}", "_TRANSPORT": "stdout"}}'.encode())))


def test_control_characters_reach_nobody() -> None:
    event = only("[ 1.000000] a\x1b[31mb[9]: segfault at 0 ip 00 sp 00 error 4")
    assert "\x1b" not in f"{event.text}{event.process}"


@given(st.binary(max_size=400), st.integers(0, 300))
def test_cut_mixed_and_binary_logs_are_survived(noise: bytes, cut: int) -> None:
    whole = (FOLDER / "oom-in-a-container.txt").read_bytes()
    list(events(entries(whole[:cut] + noise + whole[cut * 3 :], 10**18)))


# the real one


def test_a_real_crash_is_read_from_the_kernel_itself() -> None:
    probe = KernelLog()
    try:
        before = probe.read(time.monotonic_ns())
        if before.status != "ok":
            pytest.skip(before.message)
        child = subprocess.run([sys.executable, "-c", "import ctypes as c; c.string_at(0)"], check=False)
        assert child.returncode == -signal.SIGSEGV
        asked_ns = time.monotonic_ns()
        section = probe.read(asked_ns).sections["kernel_log"]
        assert isinstance(section, Section)
        events = [event for event in section.items if event.kind == "segfault"]
        if not events and Path("/proc/sys/debug/exception-trace").read_text().strip() == "0":
            pytest.skip("this kernel does not log crashes")
        last = events[-1]
        assert last.address == 0
        assert last.mono_ns is not None
        assert last.mono_ns <= asked_ns
        assert section.source == "/dev/kmsg"
    finally:
        probe.close()


def test_what_is_new_is_added_and_the_last_are_kept(tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    line = b"4,%d,%d000000,-;python[%d]: segfault at 0 ip 00 sp 00 error 4\n"
    device.write_bytes(b"".join(line % (n, n, n) for n in range(100)))
    probe = KernelLog(str(device))
    first = probe.read(200 * SECOND).sections["kernel_log"]
    assert isinstance(first, Section)
    assert [event.pid for event in first.items] == list(range(100 - KEPT, 100))
    with device.open("ab") as file:
        file.write(line % (900, 199, 900))
    second = probe.read(201 * SECOND).sections["kernel_log"]
    assert isinstance(second, Section)
    assert (second.items[-1].pid, second.items[-1].mono_ns) == (900, 200 * SECOND), (
        "it was not there at the look before"
    )
    probe.close()


def test_where_it_may_not_be_read_it_says_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no journalctl
    absent = KernelLog(str(tmp_path / "none")).read(1)
    assert (absent.status, absent.hint) == ("absent", "on the host: dmesg -T")

    def denied(path: str, flags: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", denied)
    reading = KernelLog().read(1)
    assert reading.status == "denied"
    assert "sudo dmesg -T" in reading.hint
