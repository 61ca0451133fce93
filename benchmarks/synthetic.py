"""The real scheduler and block pool under a made-up load, without a model: tokens come from a random number generator.

python -m benchmarks.synthetic FOLDER [BLOCKS RUNNING REQUESTS STEPS_A_SECOND STEPS_BEFORE]

keeps one running in a black box until stdin closes; prints the box's path.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from inferdbg.engine.config import Limits
from inferdbg.engine.faults import Faults
from inferdbg.engine.hooks import EngineFacts, Observer, StepTimes
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.scheduled_step import ScheduledStep
from inferdbg.engine.scheduler import Scheduler
from inferdbg.engine.state import KERNELS, Phase, Pulse, column_specs
from inferdbg.probes.engine_observer import BlackBoxObserver

VOCABULARY = 50_000


def limits_for(
    num_blocks: int, max_running: int, *, block_size: int = 16, token_budget: int = 2048, max_model_len: int = 4096
) -> Limits:
    return Limits(
        block_size=block_size,
        num_blocks=num_blocks,
        token_budget=token_budget,
        max_running=max_running,
        max_waiting=256,
        max_model_len=min(max_model_len, num_blocks * block_size),
        max_chunk=token_budget,
    )


class SyntheticEngine:
    """What engine.Engine does around its scheduler, with random tokens in place of a forward pass."""

    def __init__(self, limits: Limits, observer: Observer, seed: int = 0, faults: Sequence[str] = ()) -> None:
        self.limits = limits
        self.random = random.Random(seed)
        self.columns = observer.allocate(
            column_specs(
                num_blocks=limits.num_blocks,
                slots=limits.slots,
                rows=limits.max_running,
                blocks_per_row=limits.blocks_per_row,
            )
        )
        self._faults = Faults.parse(faults)
        columns, watching = self._faults.attach(self.columns, observer)
        self.scheduler = Scheduler(columns, limits, watching)
        self._pulse = self.columns["pulse"]
        self._observer = observer
        self._names = 0
        self._prefixes = [self._tokens(8 * limits.block_size) for _ in range(4)]
        observer.started(
            EngineFacts(
                version="synthetic",
                model={"name": "no model", "layers": 4, "vocabulary": VOCABULARY, "kv_bytes_per_token": 1024},
                config={
                    "block_size": limits.block_size,
                    "num_blocks": limits.num_blocks,
                    "token_budget": limits.token_budget,
                    "max_running": limits.max_running,
                    "max_waiting": limits.max_waiting,
                    "max_model_len": limits.max_model_len,
                    "prefix_caching": limits.prefix_caching,
                    "policy": "fcfs",
                    "backend": "synthetic",
                },
                kernels=KERNELS,
                blocks_per_row=limits.blocks_per_row,
                started_wall_ns=time.time_ns(),
                started_mono_ns=time.monotonic_ns(),
            )
        )

    @property
    def in_flight(self) -> int:
        return len(self.scheduler.requests())

    def offer(self, prompt_tokens: int, output_tokens: int, *, samples: int = 1, shared: bool = False) -> None:
        """A request; ``shared``: its prompt begins with one of four common prefixes."""
        prompt = self._tokens(prompt_tokens)
        if shared:
            prompt = (self.random.choice(self._prefixes) + prompt)[: max(prompt_tokens, 1)]
        self._names += 1
        params = SamplingParams(max_tokens=output_tokens, n=samples)
        self.scheduler.add(f"synthetic-{self._names}", prompt, params, time.monotonic_ns())

    def fill(self, requests: int, prompt_tokens: Sequence[int], output_tokens: Sequence[int]) -> None:
        """Offers until so many are in flight; lengths are drawn from the two ranges, every fifth asks for two
        continuations."""
        while self.in_flight < requests:
            self.offer(
                self.random.choice(prompt_tokens),
                self.random.choice(output_tokens),
                samples=2 if self.random.random() < 0.2 and self.limits.max_running > 1 else 1,
                shared=self.random.random() < 0.5,
            )

    def step(self) -> ScheduledStep:
        """Plans, makes up tokens, commits; tells the observer all that an engine tells."""
        start = time.monotonic_ns()
        self._pulse[Pulse.STEP] += 1
        self._enter(Phase.SCHEDULE, start)
        self._faults.begin_step(self._pulse[Pulse.STEP])
        step = self.scheduler.plan(self._pulse[Pulse.STEP], start)
        self._observer.step_planned(step.plan)
        planned = time.monotonic_ns()
        self._enter(Phase.FORWARD, planned)
        tokens = [self.random.randrange(VOCABULARY) for _ in step.samples]
        computed = time.monotonic_ns()
        self._enter(Phase.COMMIT, computed)
        self.scheduler.commit(step, tokens, computed)
        done = time.monotonic_ns()
        times = StepTimes(
            start_ns=start, schedule_ns=planned - start, forward_ns=computed - planned, commit_ns=done - computed
        )
        self._observer.step_finished(step.plan, times)
        self._enter(Phase.IDLE, done)
        return step

    def _enter(self, phase: Phase, now_ns: int) -> None:
        self._pulse[Pulse.HEARTBEAT_NS] = now_ns
        self._pulse[Pulse.PHASE] = phase
        self._pulse[Pulse.PHASE_SINCE_NS] = now_ns

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(count)]


def main(
    folder: str, blocks: str = "512", running: str = "16", requests: str = "24", pace: str = "200", before: str = "0"
) -> int:
    """``pace``: steps a second, at most, after ``before`` steps as fast as they go."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    observer = BlackBoxObserver(folder)
    lengths = range(1, min(8_000, int(blocks) * 16 // int(requests)))  # of prompts and outputs, in tokens
    engine = SyntheticEngine(limits_for(int(blocks), int(running), max_model_len=16_384), observer)
    engine.fill(int(requests), lengths, lengths)
    while engine.step().plan.prefill_tokens > int(running):
        pass  # until it runs as many as it can
    for _ in range(int(before)):
        engine.fill(int(requests), lengths, lengths)
        engine.step()
    asked_to_stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), asked_to_stop.set()), name="stdin", daemon=True).start()
    print(observer.path, flush=True)
    due_s = time.monotonic()
    while not asked_to_stop.is_set():
        engine.fill(int(requests), lengths, lengths)
        engine.step()
        due_s = max(due_s + 1 / int(pace), time.monotonic())
        time.sleep(max(0.0, due_s - time.monotonic()))
    observer.stopped(requests_in_flight=0)
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
