"""A made-up busy engine, and the screen over it in a process that benchmarks.screen_cost starts and measures.

python -m benchmarks.made_up    shows it; ends with q
"""

import os
import random
import signal
import struct
import time
from array import array
from typing import TYPE_CHECKING, cast

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


def screen() -> None:
    """The way of `inferdbg attach`, but for the probes. To SCREEN_COST_FD it writes what making the engine took, and on
    SIGUSR1 what its Snapshots took: neither is a cost of the screen."""
    from inferdbg.cli import main, target  # noqa: F401  what attach loads before there is a screen
    from inferdbg.cli.looking import on_screen
    from inferdbg.cli.verbs import attach  # noqa: F401
    from inferdbg.collect.live import LiveSource
    from inferdbg.probes import engine_box, processes  # noqa: F401

    report = int(os.environ.get("SCREEN_COST_FD", os.open(os.devnull, os.O_WRONLY)))
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    collector = MadeUp()
    os.write(report, struct.pack("dd", time.monotonic() - begun_s, time.process_time() - begun_cpu_s))
    signal.signal(signal.SIGUSR1, lambda *_: os.write(report, struct.pack("qq", collector.spent_ns, collector.made)))
    on_screen(LiveSource(cast("Collector", collector)), round(INTERVAL_S * SECOND))


if __name__ == "__main__":
    screen()
