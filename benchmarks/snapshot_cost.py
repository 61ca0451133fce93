"""What one look at a large engine costs the looker: 100,000 blocks, 256 running requests, every section, from its box;
and what it costs to remember it, so that one can scrub back.

The box is that of the real scheduler with made-up tokens. Ten new steps lie between two looks, as when a screen looks
four times a second at an engine whose steps take 25 ms. A look is mostly the reading of 4 MB that are not at hand, so
it is judged in windows in which the machine's memory was calm (`benchmarks.calm`).

    python -m benchmarks.snapshot_cost
"""

import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping

from benchmarks.calm import Windows, answer_ns
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
HISTORY_AIM_MS = 2.0
START_NS = 10**18
LOOKS = 100
STEPS_BETWEEN = 10
LOOKS_A_WINDOW = 20
CALM_WINDOWS, MOST_WINDOWS = 5, 60


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
    first_ms, sections = timed(probe)
    cache, requests = sections["kvcache"], sections["requests"]
    assert isinstance(cache, KVCache)
    assert isinstance(requests, Requests)
    print(f"{cache.num_blocks:,} blocks ({cache.used_blocks:,} used), {len(requests.items)} requests")
    print(f"first look (512 steps and events of history)  {first_ms:6.2f} ms")
    quiet = [timed(probe)[0] for _ in range(LOOKS)]
    print(f"look, nothing new since                       {describe(quiet)}")
    busy, remembered = Windows(), Windows()
    history = History()
    history.append(snapshot(sections, 0))
    number = 0
    while busy.calm_count < CALM_WINDOWS and number < MOST_WINDOWS * LOOKS_A_WINDOW:
        looks_ms, appends_ms, answers_ns = [], [], []
        for _ in range(LOOKS_A_WINDOW):
            for _ in range(STEPS_BETWEEN):
                engine.step()
            look_ms, sections = timed(probe)
            looks_ms.append(look_ms)
            number += 1
            seen = snapshot(sections, number)
            before = time.thread_time()
            history.append(seen)
            appends_ms.append((time.thread_time() - before) * 1e3)
            answers_ns.append(answer_ns())
        busy.add(looks_ms, answers_ns)
        remembered.add(appends_ms, answers_ns)
    kib = history.bytes_held / 1024 / number
    print(f"{STEPS_BETWEEN} new steps of {REQUESTS} requests between two looks: {busy.in_words()}")
    for calm in (False, True):
        when = "calm" if calm else "all "
        looks_ms, appends_ms = busy.costs_ms(calm=calm), remembered.costs_ms(calm=calm)
        if looks_ms:
            print(
                f"  {when} look                                    {describe(looks_ms)}   (median at most {BUDGET_MS})"
            )
            print(
                f"  {when} remembering it                          {describe(appends_ms)}, mean "
                f"{statistics.fmean(appends_ms):.2f} (aim: {HISTORY_AIM_MS}), {kib:.0f} KiB"
            )
    tracemalloc.start()
    timed(probe)
    print(f"memory of one look, at its peak               {tracemalloc.get_traced_memory()[1] / 2**20:6.1f} MiB")
    if busy.calm_count < CALM_WINDOWS:
        print("not judged: memory was too slow for too long")
        return 1
    return 0 if statistics.median(looks_ms) <= BUDGET_MS else 1


def snapshot(sections: Mapping[str, object], number: int) -> Snapshot:
    """As if they were seen four times a second."""
    made: Callable[..., Snapshot] = Snapshot
    at_ns = START_NS + number * 250_000_000
    return made(number + 1, at_ns, at_ns, Target("box", "synthetic"), **sections)


def timed(probe: EngineBox) -> tuple[float, dict[str, object]]:
    """Its ms: nothing in a look waits, so its processor time is what it takes."""
    begun = time.thread_time()
    reading = probe.read(time.monotonic_ns())
    return (time.thread_time() - begun) * 1e3, dict(reading.sections)


def describe(costs_ms: list[float]) -> str:
    found = sorted(costs_ms)
    return f"{statistics.median(found):6.2f} ms  (p95 {found[len(found) * 95 // 100]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
