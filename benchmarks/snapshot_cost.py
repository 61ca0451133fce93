"""What one look at a large engine costs the looker: 100,000 blocks, 256 running requests, every section, from its box;
and what it costs to remember it, so that one can scrub back.

The box is that of the real scheduler with made-up tokens. Ten new steps lie between two looks, as when a screen looks
four times a second at an engine whose steps take 25 ms.

    python -m benchmarks.snapshot_cost
"""

import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.synthetic import SyntheticEngine, limits_for
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.probes.engine_box import EngineBox
from inferdbg.probes.engine_observer import BlackBoxObserver
from inferdbg.record.history import History

BLOCKS = 100_000
REQUESTS = 256
BUDGET_MS = 3.0
HISTORY_BUDGET_MS = 2.0
START_NS = 10**18
LOOKS = 100
STEPS_BETWEEN = 10


def main() -> int:
    folder = tempfile.mkdtemp(prefix="snapshot-", dir="/dev/shm")
    try:
        return measure(folder)
    finally:
        shutil.rmtree(folder)


def measure(folder: str) -> int:
    observer = BlackBoxObserver(folder)
    engine = SyntheticEngine(limits_for(BLOCKS, REQUESTS, token_budget=65_536, max_model_len=16_384), observer)
    for _ in range(REQUESTS):
        engine.offer(engine.random.randrange(3_000, 6_000), 8_000)
    while engine.scheduler.waiting:
        engine.step()
    assert observer.path is not None
    probe = EngineBox(observer.path, whole=True)
    first, sections = timed(probe)
    cache, requests = sections["kvcache"], sections["requests"]
    assert isinstance(cache, KVCache)
    assert isinstance(requests, Requests)
    print(f"{cache.num_blocks:,} blocks ({cache.used_blocks:,} used), {len(requests.items)} requests")
    print(f"first look (512 steps and events of history)  {first.cpu_ms:6.2f} ms")
    quiet = [timed(probe)[0] for _ in range(LOOKS)]
    busy, remembered = [], []
    history = History()
    history.append(snapshot(sections, 0))
    for number in range(LOOKS):
        for _ in range(STEPS_BETWEEN):
            engine.step()
        cost, sections = timed(probe)
        busy.append(cost)
        seen = snapshot(sections, number + 1)
        before = time.thread_time()
        history.append(seen)
        remembered.append((time.thread_time() - before) * 1e3)
    print(f"look, nothing new since                       {describe(quiet)}")
    print(
        f"look, {STEPS_BETWEEN} new steps of {REQUESTS} requests            {describe(busy)}   at most {BUDGET_MS} ms"
    )
    mean_ms, median_ms = statistics.fmean(remembered), statistics.median(remembered)
    kib = history.bytes_held / 1024 / len(remembered)
    print(
        f"remembering it, on average                    {mean_ms:6.2f} ms  (median {median_ms:.2f}, {kib:.0f} KiB)"
        f"   at most {HISTORY_BUDGET_MS} ms"
    )
    tracemalloc.start()
    timed(probe)
    print(f"memory of one look, at its peak               {tracemalloc.get_traced_memory()[1] / 2**20:6.1f} MiB")
    return 0 if statistics.median(cost.cpu_ms for cost in busy) <= BUDGET_MS and mean_ms <= HISTORY_BUDGET_MS else 1


def snapshot(sections: Mapping[str, object], number: int) -> Snapshot:
    """As if they were seen four times a second."""
    made: Callable[..., Snapshot] = Snapshot
    at_ns = START_NS + number * 250_000_000
    return made(number + 1, at_ns, at_ns, Target("box", "synthetic"), **sections)


class Cost(NamedTuple):
    """Nothing in a look waits, so its processor time is what it takes; on a busy machine the clock says more."""

    cpu_ms: float
    wall_ms: float


def timed(probe: EngineBox) -> tuple[Cost, dict[str, object]]:
    cpu, wall = time.thread_time(), time.perf_counter()
    reading = probe.read(time.monotonic_ns())
    cost = Cost((time.thread_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3)
    return cost, dict(reading.sections)


def describe(costs: list[Cost]) -> str:
    cpu = sorted(cost.cpu_ms for cost in costs)
    wall = statistics.median(cost.wall_ms for cost in costs)
    return f"{statistics.median(cpu):6.2f} ms  (p95 {cpu[len(cpu) * 95 // 100]:.2f}, by the clock {wall:.2f})"


if __name__ == "__main__":
    sys.exit(main())
