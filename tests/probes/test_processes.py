"""A process is read from files that the kernel answers without asking it."""

import os
from pathlib import Path

import pytest

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.probes.processes import ProcessFiles, parse

STAT = (
    b"58 (a) R (b) T 57 58 57 34816 58 4194304 1234 0 5 0 250 50 0 0 20 0 7 0 81234 2147483648 512000 "
    b"18446744073709551615 1 1 0 0 0 0 0 16781312 17642 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
LIMITS = b"""Limit                     Soft Limit           Hard Limit           Units
Max processes             7823                 7823                 processes
Max open files            1024                 1048576              files
"""
MEMINFO = b"MemTotal:        8007860 kB\nMemFree:          123456 kB\nMemAvailable:    5004912 kB\n"
ORIGIN = Origin("processes", 7)


def parsed(stat: bytes = STAT, limits: bytes = LIMITS) -> Processes:
    files = {"stat": stat, "limits": limits, "meminfo": MEMINFO}
    return parse(files, ORIGIN, role="engine", open_files=31, cpus=2, ticks=100, page_bytes=4096)


def test_a_process_is_read_whatever_its_name_holds() -> None:
    assert parsed() == Processes(
        ORIGIN,
        (
            Process(
                pid=58,
                name="a) R (b",
                role="engine",
                state="T",
                cpu_ns=3_000_000_000,
                rss_bytes=512000 * 4096,
                threads=7,
                open_files=31,
                open_files_limit=1024,
            ),
        ),
        cpus=2,
        memory_bytes=8007860 * 1024,
        memory_available_bytes=5004912 * 1024,
    )


def test_no_limit_is_unknown_and_not_a_number() -> None:
    assert parsed(limits=LIMITS.replace(b"1024 ", b"unlimited ")).items[0].open_files_limit is None
    assert parsed(limits=b"").items[0].open_files_limit is None


@pytest.mark.parametrize("stat", [b"", b"58 (x) R 1", b"nonsense"])
def test_what_is_no_stat_is_refused(stat: bytes) -> None:
    with pytest.raises(ValueError, match="stat makes no sense"):
        parsed(stat=stat)


def test_this_process_is_seen_running() -> None:
    reading = ProcessFiles(os.getpid(), "tests").read(7)
    processes = reading.sections["processes"]
    assert isinstance(processes, Processes)
    seen = processes.items[0]
    assert (seen.pid, seen.role, seen.state) == (os.getpid(), "tests", "R")
    assert seen.rss_bytes is not None
    assert seen.rss_bytes > 1 << 20


def test_a_process_that_is_gone_is_absent_and_said_to_be(tmp_path: Path) -> None:
    reading = ProcessFiles(58, "engine", proc=str(tmp_path)).read(7)
    assert (reading.status, reading.message) == ("absent", "process 58 is gone")
