"""What recording costs: time a Snapshot, bytes a step, and the wait for a random moment of ten minutes.

python -m benchmarks.recording_cost [--minutes 10]

Engines are made up (tests/support/snapshots.py), so reading them is not in the figures. The large one is 60 Snapshots
(100,000 blocks, 256 requests, eight steps each) played forwards and backwards, as ten minutes of it would not fit in
memory (backwards, block tables shrink and are written whole: dearer than life); the others are simulated throughout. A
seek opens the file anew, reads the index and builds the whole Window of that moment (two minutes of the past), as a
screen would. Times are processor time of the thread, which other work on the machine disturbs least; nothing here waits
for anything but the page cache.
"""

import argparse
import gc
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from inferdbg.facts.snapshot import Snapshot
from inferdbg.record.codec import work_count
from inferdbg.record.history import History
from inferdbg.record.past import step_count
from inferdbg.record.reader import Recording
from inferdbg.record.replay import ReplaySource
from inferdbg.record.writer import RecordingWriter
from tests.support.snapshots import START_MONO_NS, START_WALL_NS, Workload

STEP_BYTES, REQUEST_BYTES = 200, 40
WRITE_LIMIT_MS, SEEK_LIMIT_MS, HISTORY_AIM_MS = 3.0, 100.0, 2.0
SEEKS = 50


class Case(NamedTuple):
    """``looks_per_s``: Snapshots a second. ``held``: Snapshots played forwards and backwards (None: all simulated).
    ``judged``: the file's size is held against the budget; an engine that does next to nothing has none."""

    name: str
    looks_per_s: int
    blocks: int
    requests: int
    waiting: int
    steps_per_look: int
    prompt_tokens: int = 400
    output_tokens: int = 200
    budget: int = 512
    warm_steps: int = 300
    held: int | None = None
    judged: bool = True


CASES = (
    Case("100,000 blocks, 256 requests, 4/s", 4, 100_000, 256, 20, 8, 800, 400, 2048, 2000, 60),
    Case("2,048 blocks, 16 requests, 4/s", 4, 2048, 16, 6, 8),
    Case("2,048 blocks, 16 requests, 20/s", 20, 2048, 16, 6, 2),
    Case("2,048 blocks, 1 request, 4/s", 4, 2048, 1, 0, 8),
    Case("2,048 blocks, 1 request, 20/s, 1 step a look", 20, 2048, 1, 0, 1, judged=False),
)


def stretch(case: Case, minutes: float) -> Iterator[Snapshot]:
    """``minutes`` of the case, at its pace."""
    interval_ns = 1_000_000_000 // case.looks_per_s
    engine = Workload(
        blocks=case.blocks,
        requests=case.requests,
        waiting=case.waiting,
        steps_per_snapshot=case.steps_per_look,
        step_ms=interval_ns / case.steps_per_look / 1.05e6,
        prompt_tokens=case.prompt_tokens,
        output_tokens=case.output_tokens,
        budget=case.budget,
    )
    for _ in range(case.warm_steps):
        engine.run_step()
    engine.steps, engine.events = [], []
    count = round(minutes * 60 * case.looks_per_s)
    held = [engine.snapshot() for _ in range(min(count, case.held or 0))]
    turn = max(1, 2 * len(held) - 2)
    for seq in range(count):
        if held:
            place = seq % turn
            snapshot = held[place if place < len(held) else turn - place]
        else:
            snapshot = engine.snapshot()
        passed = seq * interval_ns
        yield replace(snapshot, seq=seq + 1, mono_ns=START_MONO_NS + passed, wall_ns=START_WALL_NS + passed)


class Figures(NamedTuple):
    write_ms: list[float]
    history_ms: list[float]
    budget_bytes: int
    snapshots: int


def record(case: Case, minutes: float, path: Path) -> Figures:
    """Writes the file and fills a history, a time for each Snapshot."""
    writer, history = RecordingWriter(path), History()
    write_ms, history_ms = [], []
    budget = 0
    for snapshot in stretch(case, minutes):
        start = time.thread_time_ns()
        writer.write(snapshot)
        middle = time.thread_time_ns()
        history.append(snapshot)
        history_ms.append((time.thread_time_ns() - middle) / 1e6)
        write_ms.append((middle - start) / 1e6)
        budget += STEP_BYTES * step_count(snapshot) + REQUEST_BYTES * work_count(snapshot)
    writer.close()
    first, last = history.pages[0].first_ns, history.pages[-1].last_ns
    print(f"  live memory of the past: {(last - first) / 60e9:.1f} min in {history.bytes_held / 2**20:.1f} MiB")
    return Figures(write_ms, history_ms, budget, len(write_ms))


def seek_ms(path: Path) -> list[float]:
    """Opening the file and showing a random moment of it, each from scratch."""
    recording = Recording(path)
    first, last = recording.pages[0].first_ns, recording.pages[-1].last_ns
    recording.close()
    gc.collect()
    gc.freeze()  # no reader has the made-up engines in its heap, which a collection would walk through
    chance = random.Random(0)
    found = []
    for _ in range(SEEKS):
        at_ns = chance.randint(first, last)
        start = time.thread_time_ns()
        source = ReplaySource(path)
        source.window(at_ns)
        found.append((time.thread_time_ns() - start) / 1e6)
        source.close()
    return found


def spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.2f}  mean {statistics.fmean(values):.2f}  max {max(values):.1f} ms"


def measure(case: Case, minutes: float, folder: Path) -> bool:
    print(f"{case.name}, {minutes:g} min")
    path = folder / "run.idbg"
    path.unlink(missing_ok=True)
    figures = record(case, minutes, path)
    seeks = seek_ms(path)
    size = path.stat().st_size
    share = size / figures.budget_bytes
    print(f"  encode + write           {spread(figures.write_ms)}   (mean at most {WRITE_LIMIT_MS:g})")
    print(f"  history                  {spread(figures.history_ms)}   (aim: mean {HISTORY_AIM_MS:g})")
    print(
        f"  file                     {size / 2**20:.1f} MiB, {size / figures.snapshots:.0f} B a Snapshot: "
        f"{share:.2f} of 200 B a step + 40 B a scheduled request" + ("" if case.judged else "   (not judged)")
    )
    print(f"  open + seek + Window     {spread(seeks)}   (max at most {SEEK_LIMIT_MS:g})")
    return (
        statistics.fmean(figures.write_ms) <= WRITE_LIMIT_MS
        and max(seeks) <= SEEK_LIMIT_MS
        and (share <= 1 or not case.judged)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    import numpy as np  # once a process, 50 ms and more: not part of any Snapshot

    print(f"{os.cpu_count()} processors, numpy {np.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        holds = [measure(case, options.minutes, Path(folder)) for case in CASES if options.only in case.name]
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, made-up engines included")
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
