"""What the live screen costs: CPU, memory and the wait for the first picture, in a real terminal of its own.

python -m benchmarks.screen_cost [--seconds 20]

The screen runs in a process of its own on a pseudo terminal of 120 x 40 whose output is read and thrown away, over the
live Source that `top` has, with made-up Snapshots in place of probes: 100,000 blocks and 256 requests, four a second,
eight steps and 128 new blocks in each. Processor time is that of /proc/PID/stat. Making a Snapshot up costs about what
reading one costs (benchmarks.snapshot_cost); it counts, and is told apart.
"""

import fcntl
import os
import pty
import random
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.kernels import Kernel, Kernels
from inferdbg.facts.sections.kvcache import CACHED, USED, KVCache
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Request, Requests, Wait
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts, Server
from inferdbg.facts.sections.steps import Shares, Step, Steps, Work
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND

if TYPE_CHECKING:
    from inferdbg.collect.collector import Collector

BLOCKS, REQUESTS, RUNNING = 100_000, 256, 240
INTERVAL_S = 0.25
STEPS = 8
CPU_LIMIT_PERCENT, RSS_LIMIT_MB, FIRST_FRAME_LIMIT_S = 4.0, 100.0, 0.5
COLUMNS, LINES = 120, 40
WARM_UP_S = 4.0


class MadeUp:
    """In place of a Collector: a busy engine, most of a Snapshot of which is made before the measuring starts."""

    target = Target("process", "made-up engine", 58)

    def __init__(self) -> None:
        self._random = random.Random(0)
        self._seq = self._step = 0
        self._start_ns = time.monotonic_ns()
        self._state = bytearray(self._random.choices((0, 1, 2), weights=(1, 2, 7), k=BLOCKS))
        used = [block for block, state in enumerate(self._state) if state == USED]
        self._tables = [array("i", used[index::RUNNING]) for index in range(RUNNING)]
        owner, refcount = array("I", bytes(4 * BLOCKS)), array("H", bytes(2 * BLOCKS))
        for number, table in enumerate(self._tables, 1):
            for block in table:
                owner[block], refcount[block] = number, 1
        for table in self._tables[1::2]:  # every second one shares the beginning of the first
            for block in table[:20]:
                self._state[block], refcount[block] = CACHED, 0
            table[:20] = self._tables[0][:20]
        for table in self._tables[1::2]:
            for block in table[:20]:
                refcount[block] += 1
        self._owner, self._refcount = owner.tobytes(), refcount.tobytes()
        self._filled = array("H", [16]) * BLOCKS
        self._hash = self._random.randbytes(8 * BLOCKS)
        self._last_used = array("Q", [self._start_ns - 90 * SECOND]) * BLOCKS
        self._next_free = (array("i", [-1]) * BLOCKS).tobytes()
        self.spent_ns = self.made = 0

    def round(self) -> Snapshot:
        begun_ns = time.thread_time_ns()
        snapshot = self._snapshot()
        self.spent_ns += time.thread_time_ns() - begun_ns
        return snapshot

    def close(self) -> None:
        """There is nothing to end."""

    def _snapshot(self) -> Snapshot:
        now_ns = time.monotonic_ns()
        self._seq = self.made = self._seq + 1
        origin = Origin("engine box", now_ns)
        for block in self._random.choices(range(BLOCKS), k=128):
            self._last_used[block] = now_ns
        steps = tuple(self._one_step(now_ns) for _ in range(STEPS))
        total = self._seq * STEPS * RUNNING
        return Snapshot(
            self._seq,
            time.time_ns(),
            now_ns,
            self.target,
            server=_server(origin),
            pulse=Pulse(origin, now_ns, self._step, "forward", now_ns - 9_000_000, 12, "attention", 9, 8),
            scheduler=self._scheduler(origin, total),
            requests=Requests(origin, tuple(self._request(index, now_ns) for index in range(REQUESTS))),
            kvcache=self._kvcache(origin),
            steps=Steps(origin, steps),
            kernels=Kernels(
                origin, tuple(Kernel(n, total, total * 1000, total * 10**6, total * 10**5) for n in "abcd")
            ),
            events=Events(origin, tuple(self._event(now_ns, index) for index in range(8))),
            processes=Processes(origin, (Process(58, "python", "engine", "R", total * 10**5, 2**31, 9, 31, 1024),), 2),
            probes=(ProbeReport("engine box", "ok", ("server", "pulse"), 2_000_000, now_ns),),
        )

    def _one_step(self, now_ns: int) -> Step:
        self._step += 1
        chunk = self._random.randrange(0, 256)
        work = (Work(RUNNING, "prefill", chunk, 512), *(Work(n, "decode", 1, 900) for n in range(1, RUNNING)))
        forward_ns = self._random.randrange(20_000_000, 30_000_000)
        return Step(
            *(self._step, now_ns, 900_000, 400_000, forward_ns, 2_000_000, 500_000, 90_000),
            *(512, chunk, RUNNING - 1, RUNNING, REQUESTS - RUNNING),
            Shares.of(work),
        )

    def _event(self, now_ns: int, index: int) -> Event:
        victim, winner = self._random.randrange(1, RUNNING), self._random.randrange(1, RUNNING)
        return Event(self._seq * 8 + index, now_ns, self._step, "preempted", victim, winner, tokens=912)

    def _scheduler(self, origin: Origin, total: int) -> Scheduler:
        bounds = tuple(mantissa * 10**power for power in range(5, 10) for mantissa in (1, 2, 5))
        buckets = Histogram(bounds, tuple(total * (index % 5) for index in range(len(bounds) + 1)), total * 10**7)
        return Scheduler(
            *(
                origin,
                RUNNING,
                REQUESTS - RUNNING,
                3,
                total,
                total * 3,
                total,
                total // 9,
                total,
                total // 3,
                total // 99,
            ),
            *(total // 50, 0, total // 100, total // 100, 0, 0, 0),
            *(buckets, buckets, buckets, buckets),
        )

    def _request(self, index: int, now_ns: int) -> Request:
        waits = index >= RUNNING
        return Request(
            index + 1,
            f"cmpl-{index:08x}",
            "waiting" if waits else "decode",
            912,
            0 if waits else self._seq,
            512,
            912,
            768,
            0,
            0,
            now_ns - index * SECOND // 8,
            None if waits else now_ns - SECOND // 9,
            None if waits else now_ns - SECOND // 9,
            now_ns,
            90_000_000,
            Wait("behind", behind=index) if waits else None,
            b"" if waits else self._tables[index].tobytes(),
        )

    def _kvcache(self, origin: Origin) -> KVCache:
        return KVCache(
            *(origin, BLOCKS, 16, 10_000, 20_000, 70_000, 7_777, 1_100_000, -1),
            bytes(self._state),
            self._refcount,
            self._filled.tobytes(),
            self._owner,
            self._hash,
            self._last_used.tobytes(),
            self._next_free,
        )


def _server(origin: Origin) -> Server:
    config = EngineConfig(16, BLOCKS, 512, RUNNING, 1024, 8192, True, "fcfs", "synthetic")
    return Server(origin, "inferdbg", "0.1.0", 58, model=ModelFacts("SmolLM2-135M-Instruct"), config=config)


class Cost(NamedTuple):
    first_frame_s: float
    first_frame_cpu_s: float
    cpu_percent: float
    source_percent: float
    per_second: float
    rss_mb: float
    peak_mb: float


def screen() -> None:
    """In the child: the screen itself. It says what making the Source took, and on SIGUSR1 what the Source spent."""
    report = int(os.environ["SCREEN_COST_FD"])
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    collector = MadeUp()  # no part of the screen: its time is taken off
    os.write(report, struct.pack("dd", time.monotonic() - begun_s, time.process_time() - begun_cpu_s))
    signal.signal(signal.SIGUSR1, lambda *_: os.write(report, struct.pack("qq", collector.spent_ns, collector.made)))
    from inferdbg.collect.live import LiveSource
    from inferdbg.diagnosis.diagnose import diagnose
    from inferdbg.tui.app import run

    run(LiveSource(cast("Collector", collector)), diagnose, INTERVAL_S)


def measure(view: str, seconds: float) -> Cost:
    """Starts the screen, changes to the view, waits until it is warm, and counts."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    reading, writing = os.pipe()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "SCREEN_COST_FD": str(writing)}
    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.screen_cost", "--child"],
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
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status_mb(pid: int, name: str) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


def main(arguments: Sequence[str]) -> int:
    if "--child" in arguments:
        screen()
        return 0
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
