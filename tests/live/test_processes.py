"""Real processes, as the kernel tells of them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from inferdbg.facts.sections.processes import Processes
from inferdbg.probes.processes import ProcessFiles

pytestmark = pytest.mark.live
PROGRAM = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
    "held = bytearray(64 << 20)\n"
    "files = [open('/dev/null') for _ in range(20)]\n"
    "print(child.pid, flush=True)\n"
    "sum(range(2 * 10**7))\n"
    "print('done', flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def engine() -> Iterator[tuple[int, int]]:
    """A process that holds 64 MiB and 20 files and burnt some processor time, and its child."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.stdout.readline() == "done\n"
        yield process.pid, child
        process.kill()


def test_a_process_and_its_child_are_seen_with_what_they_hold(engine: tuple[int, int]) -> None:
    pid, child = engine
    reading = ProcessFiles(pid).read(time.monotonic_ns())
    section = reading.sections["processes"]
    assert isinstance(section, Processes)
    first, second = section.items
    assert (first.pid, first.role, second.pid) == (pid, "engine", child)
    assert first.state in ("R", "S")
    assert first.rss_bytes is not None
    assert 64 << 20 < first.rss_bytes < 512 << 20
    assert first.cpu_ns is not None
    assert first.cpu_ns > 10_000_000
    assert first.open_files is not None
    assert first.open_files >= 23
    assert first.threads == 1
    assert section.cpus is not None
    assert 0 < section.cpus <= (os.cpu_count() or 1)
    assert section.memory_available_bytes is not None
    assert section.memory_bytes is not None
    assert 0 < section.memory_available_bytes < section.memory_bytes
