"""What being observed costs the engine a step: time inside the observer, and stores to a mapped file, not memory.

Counted directly, on the real scheduler with made-up tokens. Three engines with the same seed do the same work step by
step in turns: nobody watches the first; the second has its columns in a box and an observer that does nothing; the
third has the whole black box, and a clock around every call of it (whose own cost is measured and subtracted).

    counted    calls a step times the mean time of a call, for each method; the longest 2 % of its calls are left out,
               in which something else had the processor
    columns    median over the steps of what the second engine takes longer than the first, or nothing

Beside it, tokens a second of the real engine with and without observation, steps in turns as well.

    python -m benchmarks.observation_cost
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.update(OMP_NUM_THREADS="2", TOKENIZERS_PARALLELISM="false")

from benchmarks.synthetic import SyntheticEngine, limits_for
from inferdbg.engine.hooks import EngineFacts, EventKind, Observer, Operation, StepPlan, StepTimes
from inferdbg.engine.state import Column, ColumnSpec
from inferdbg.probes.engine_observer import BlackBoxObserver

FIXED_US, PER_REQUEST_US = 50.0, 0.2
REQUESTS = (1, 16, 64, 256)
WARM_UP = 40
STEPS = 400
LONGEST_S = 30.0  # of real steps with one model


class ColumnsOnly(Observer):
    """A box whose writer says nothing: only the columns lie in it."""

    def __init__(self, folder: str) -> None:
        self._box = BlackBoxObserver(folder)

    def allocate(self, specs: list[ColumnSpec]) -> dict[str, Column]:
        return self._box.allocate(specs)


class Clocked(Observer):
    """Passes everything on and notes how long that takes, in ns for each method."""

    def __init__(self, watched: Observer) -> None:
        self._watched = watched
        self.taken: dict[str, list[int]] = {}

    def allocate(self, specs: list[ColumnSpec]) -> dict[str, Column]:
        return self._watched.allocate(specs)

    def started(self, facts: EngineFacts) -> None:
        self._watched.started(facts)

    def _clock(self, call: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        begun = time.perf_counter_ns()
        call(*arguments)
        ended = time.perf_counter_ns()
        self.taken.setdefault(call.__name__, []).append(ended - begun)

    def mutating(self, operation: Operation, block: int = -1, request: int = 0) -> None:
        self._clock(self._watched.mutating, operation, block, request)

    def settled(self) -> None:
        self._clock(self._watched.settled)

    def step_planned(self, plan: StepPlan) -> None:
        self._clock(self._watched.step_planned, plan)

    def step_finished(self, plan: StepPlan, times: StepTimes) -> None:
        self._clock(self._watched.step_finished, plan, times)

    def event(
        self, kind: EventKind, request: int = 0, other: int = 0, block: int = -1, tokens: int = 0, text: str = ""
    ) -> None:
        self._clock(self._watched.event, kind, request, other, block, tokens, text)


def main() -> int:
    folder = tempfile.mkdtemp(prefix="observation-", dir="/dev/shm")
    try:
        print(
            f"{'requests':>8} {'calls':>6} {'counted':>9} {'columns':>9} {'together':>9} {'budget':>8}   step without"
        )
        held = [row(requests, folder) for requests in REQUESTS]
        print()
        tokens_per_second(folder)
    finally:
        shutil.rmtree(folder)
    return 0 if all(held) else 1


def row(requests: int, folder: str) -> bool:
    """Prints a line; true when the budget holds."""
    clocked = Clocked(BlackBoxObserver(folder))
    limits = limits_for(max(64, requests * 40), requests, token_budget=max(512, requests))
    engines = [
        SyntheticEngine(limits, observer, seed=requests) for observer in (Observer(), ColumnsOnly(folder), clocked)
    ]
    for _ in range(WARM_UP):
        for engine in engines:
            advance(engine, requests)
    clocked.taken.clear()
    taken: list[list[int]] = [[] for _ in engines]
    for turn in range(STEPS):
        for place in range(len(engines)):
            which = (turn + place) % len(engines)
            taken[which].append(advance(engines[which], requests))
    clock_ns = clock_cost_ns()
    own_us = sum(len(times) * (usual(times) - clock_ns) for times in clocked.taken.values()) / STEPS / 1e3
    calls = sum(map(len, clocked.taken.values())) / STEPS
    columns_us = max(0.0, statistics.median(b - a for a, b in zip(taken[0], taken[1], strict=True)) / 1e3)
    plain_us = statistics.median(taken[0]) / 1e3
    total, budget = own_us + columns_us, FIXED_US + PER_REQUEST_US * requests
    verdict = "" if total <= budget else "   TOO MUCH"
    print(
        f"{requests:8} {calls:6.1f} {own_us:6.1f} us {columns_us:6.1f} us {total:6.1f} us {budget:5.1f} us"
        f"   {plain_us:8.0f} us{verdict}"
    )
    return total <= budget


def advance(engine: SyntheticEngine, requests: int) -> int:
    """A step under a load that ends and begins all the time; ns of processor time, without the making of prompts."""
    engine.fill(requests, range(1, 200), range(20, 200))
    begun = time.thread_time_ns()
    engine.step()
    return time.thread_time_ns() - begun


def usual(times: list[int]) -> float:
    """Mean without the longest 2 %."""
    return statistics.fmean(sorted(times)[: max(1, len(times) * 98 // 100)])


def clock_cost_ns() -> float:
    """What the clock adds to the time of a call, and the call that an unwatched engine makes too."""
    clocked = Clocked(Observer())
    for _ in range(20_000):
        clocked.settled()
    return statistics.median(clocked.taken["settled"])


def tokens_per_second(folder: str, streams: int = 16, steps: int = 40) -> None:
    from inferdbg.engine.config import EngineConfig
    from inferdbg.engine.engine import Engine
    from inferdbg.engine.loading import load
    from inferdbg.engine.sampling_params import SamplingParams

    for name, dtype in (("tiny", "fp32"), (None, "bf16")):
        model = load(name, dtype)
        config = EngineConfig(num_blocks=512, max_model_len=512)
        engines = [Engine(model, config, observer) for observer in (Observer(), BlackBoxObserver(folder))]
        for engine in engines:
            for stream in range(streams):
                engine.add_request(str(stream), [10 + stream] * 32, SamplingParams(max_tokens=400, ignore_eos=True))
            for _ in range(4):
                engine.step()
        taken: list[list[float]] = [[], []]
        until = time.perf_counter() + LONGEST_S
        for turn in range(steps):
            if time.perf_counter() > until:
                break
            for which in (turn % 2, 1 - turn % 2):
                begun = time.perf_counter()
                engines[which].step()
                taken[which].append(time.perf_counter() - begun)
        without, observed = (streams / statistics.median(times) for times in taken)
        print(
            f"{model.name}, {streams} streams: {without:,.0f} tokens/s without, {observed:,.0f} with observation"
            f" ({observed / without:.3f} of it)"
        )


if __name__ == "__main__":
    sys.exit(main())
