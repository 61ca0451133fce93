"""Black boxes for tests: a dead one made on the spot, and one of a process that lives as long as the test."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.synthetic import SyntheticEngine, limits_for
from inferdbg.probes.engine_observer import BlackBoxObserver


def make_box(
    folder: Path | str,
    *,
    num_blocks: int = 256,
    requests: int = 12,
    steps: int = 60,
    max_running: int = 8,
    seed: int = 0,
) -> str:
    """Path of the box that an engine left which died (that is, released its lock) after ``steps`` steps with
    ``requests`` in flight. Small pools preempt, evict, share and copy."""
    observer = BlackBoxObserver(str(folder))
    engine = SyntheticEngine(limits_for(num_blocks, max_running, token_budget=256), observer, seed)
    most = min(num_blocks * 16 // 4, 400)
    for _ in range(steps):
        engine.fill(requests, range(1, most), range(1, 100))
        engine.step()
    observer.abandon()
    assert observer.path is not None
    return observer.path


class LivingEngine(NamedTuple):
    path: str
    process: "subprocess.Popen[str]"


@contextmanager
def living_engine(folder: Path | str, *size: int) -> Iterator[LivingEngine]:
    """A process that runs a synthetic engine in a box under ``folder``; ended when the block is left. Closing its
    stdin stops it cleanly. ``size``: as benchmarks.synthetic takes it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.synthetic", str(folder), *map(str, size)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield LivingEngine(process.stdout.readline().strip(), process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()
