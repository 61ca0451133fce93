"""What the live screen costs: CPU, memory and the wait for the first picture, in a real terminal of its own.

python -m benchmarks.screen_cost [--seconds 20]

The screen runs in a process of its own on a pseudo terminal of 120 x 40 whose output is read and thrown away, over the
live Source that `top` has, with made-up Snapshots in place of probes: 100,000 blocks and 256 requests, four a second,
eight steps and 128 new blocks in each. Processor time is that of the kernel's clock of the process. Making a Snapshot
up costs about what reading one costs (benchmarks.snapshot_cost); it counts, and is told apart.
"""

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.made_up import BLOCKS, INTERVAL_S, REQUESTS

CPU_LIMIT_PERCENT, RSS_LIMIT_MB, FIRST_FRAME_LIMIT_S = 4.0, 100.0, 0.5
COLUMNS, LINES = 120, 40
WARM_UP_S = 4.0


class Cost(NamedTuple):
    first_frame_s: float
    first_frame_cpu_s: float
    cpu_percent: float
    source_percent: float
    per_second: float
    rss_mb: float
    peak_mb: float


def measure(view: str, seconds: float) -> Cost:
    """Starts the screen, changes to the view, waits until it is warm, and counts."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    reading, writing = os.pipe()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "SCREEN_COST_FD": str(writing)}
    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.made_up"],
        stdin=terminal, stdout=terminal, stderr=terminal, env=environment, pass_fds=(writing,), start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    first = threading.Event()
    threading.Thread(target=_swallow, args=(controller, b"verdict", first), name="terminal", daemon=True).start()
    made_s, made_cpu_s = struct.unpack("dd", os.read(reading, 16))
    if not first.wait(20):
        child.kill()
        raise SystemExit("the screen showed nothing within 20 s")
    first_frame_s, first_frame_cpu_s = time.monotonic() - begun - made_s, _cpu_s(child.pid) - made_cpu_s
    os.write(controller, view.encode())
    time.sleep(WARM_UP_S)
    before, (spent_before, made_before), at = _cpu_s(child.pid), _asked(child, reading), time.monotonic()
    time.sleep(seconds)
    after, (spent_after, made_after), elapsed = _cpu_s(child.pid), _asked(child, reading), time.monotonic() - at
    rss_mb, peak_mb = _status_mb(child.pid, "VmRSS"), _status_mb(child.pid, "VmHWM")
    os.write(controller, b"q")
    child.wait(10)
    source = (spent_after - spent_before) / 1e9
    return Cost(
        first_frame_s,
        first_frame_cpu_s,
        (after - before) / elapsed * 100,
        source / elapsed * 100,
        (made_after - made_before) / elapsed,
        rss_mb,
        peak_mb,
    )


def _swallow(controller: int, wanted: bytes, seen: threading.Event) -> None:
    tail = b""
    while True:
        ready, _, _ = select.select([controller], [], [], 1.0)
        if not ready:
            continue
        try:
            data = os.read(controller, 65536)
        except OSError:
            return
        if not seen.is_set():
            tail = tail[-100:] + data
            if wanted in tail:
                seen.set()


def _asked(child: "subprocess.Popen[bytes]", reading: int) -> tuple[int, int]:
    """Processor time (ns) that making Snapshots has taken, and how many were made."""
    child.send_signal(signal.SIGUSR1)
    spent_ns, made = struct.unpack("qq", os.read(reading, 16))
    return spent_ns, made


def _cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)  # the clock of its scheduled time: CPUCLOCK_SCHED of the Linux kernel


def _status_mb(pid: int, name: str) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


def main(arguments: Sequence[str]) -> int:
    seconds = float(arguments[arguments.index("--seconds") + 1]) if "--seconds" in arguments else 20.0
    print(f"{BLOCKS:,} blocks, {REQUESTS} requests, {1 / INTERVAL_S:.0f} Snapshots a second, {COLUMNS} x {LINES}")
    costs = {
        title: measure(key, seconds)
        for key, title in (("1", "overview"), ("2", "KV map"), ("3", "requests"), ("4", "batch"))
    }
    holds = True
    for title, cost in costs.items():
        print(
            f"{title:9} cpu {cost.cpu_percent:4.1f} % of a core "
            f"({cost.source_percent:.1f} % making {cost.per_second:.1f} Snapshots/s)   "
            f"rss {cost.rss_mb:.0f} MB, peak {cost.peak_mb:.0f} MB   "
            f"first picture {cost.first_frame_s * 1000:.0f} ms ({cost.first_frame_cpu_s * 1000:.0f} ms of processor)"
        )
        holds &= cost.cpu_percent <= CPU_LIMIT_PERCENT and cost.rss_mb <= RSS_LIMIT_MB
    first = statistics.median(cost.first_frame_s for cost in costs.values())
    holds &= first <= FIRST_FRAME_LIMIT_S
    print(
        f"bounds    cpu {CPU_LIMIT_PERCENT:.0f} %, rss {RSS_LIMIT_MB:.0f} MB, "
        f"first picture {FIRST_FRAME_LIMIT_S * 1000:.0f} ms (median {first * 1000:.0f} ms): "
        f"{'hold' if holds else 'do NOT hold'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
