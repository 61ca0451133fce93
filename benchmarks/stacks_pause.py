"""Stacks' pause: how long a target stands still for one dump, as it feels that itself: median and worst of 100.

The target is a Python program that reads the clock in a loop and keeps the longest time between two readings. What it
feels while *another* process is dumped is the scheduler of this machine and the processor that py-spy takes; what is
above that is the dump of itself. Beside it stands what `inferdbg stacks` says of the pause, which looks at the target's
state from outside.

    python -m benchmarks.stacks_pause [--dumps 100]
"""

import argparse
import mmap
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from inferdbg.facts.sections.stacks import ProcessStacks
from inferdbg.probes.stack_chain import How, look_at

_TARGET = """
import mmap, struct, sys, time
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 16)
longest, round_, last = 0, 0, time.monotonic_ns()
while True:
    now = time.monotonic_ns()
    if now - last > longest:
        longest = now - last
        shared[8:16] = struct.pack("<q", longest)
    last = now
    if shared[0] != round_:
        longest, round_ = 0, shared[0]
        shared[8:16] = bytes(8)
        last = time.monotonic_ns()
"""
_ANOTHER = "a live dump of another process"
_LIVE = "live (py-spy --nonblocking)"
WAYS: tuple[tuple[str, How], ...] = (
    (_ANOTHER, How()),
    (_LIVE, How()),
    ("--stop (py-spy)", How(stop=True)),
    ("--native (py-spy --native)", How(native=True)),
)
MOST_MS = 3.0
"""That a live dump may add to the median: nothing that stops, on a busy machine."""


def felt_ms(shared: mmap.mmap, pid: int, how: How, dumps: int) -> tuple[list[float], list[float], int]:
    """What the target felt in each round, what we measured from outside, and how many dumps showed calls."""
    felt: list[float] = []
    said: list[float] = []
    read = 0
    for number in range(dumps):
        shared[0] = (number % 250) + 1
        time.sleep(0.01)
        found = look_at(ProcessStacks(pid), how)
        read += found.tool == "py-spy"
        said.append((found.paused_ns or 0) / 1e6)
        felt.append(struct.unpack("<q", shared[8:16])[0] / 1e6)
    return felt, said, read


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dumps", type=int, default=100)
    dumps = arguments.parse_args().dumps
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.truncate(file.name, 16)
        target = subprocess.Popen([sys.executable, "-c", _TARGET, file.name])
        another = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        try:
            time.sleep(0.5)
            with open(file.name, "r+b") as opened, mmap.mmap(opened.fileno(), 16) as shared:
                return _compare(shared, target.pid, another.pid, dumps)
        finally:
            target.kill()
            another.kill()


def _compare(shared: mmap.mmap, pid: int, another: int, dumps: int) -> int:
    medians: dict[str, float] = {}
    print(f"{'way':32} {'felt: median':>12} {'worst':>11} {'said: median':>14} {'worst':>11}   with calls")
    for name, how in WAYS:
        felt, said, read = felt_ms(shared, another if name == _ANOTHER else pid, how, dumps)
        medians[name] = statistics.median(felt)
        outside = f"{statistics.median(said):11.2f} ms {max(said):8.2f} ms" if how.stops else " " * 26
        print(f"{name:32} {medians[name]:9.2f} ms {max(felt):8.2f} ms {outside}   {read}/{dumps}")
    added = medians[_LIVE] - medians[_ANOTHER]
    print(f"a live dump adds {added:.2f} ms to the longest wait of the target, in the median")
    return 0 if added <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
