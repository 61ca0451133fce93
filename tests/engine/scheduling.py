"""A scheduler over a cache that one can read: K and V of a token are its id, so that a wrong block shows at once."""

from collections.abc import Sequence
from zlib import crc32

from inferdbg.engine.config import EngineConfig, Limits
from inferdbg.engine.hooks import EventKind, Observer
from inferdbg.engine.request import Request
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.scheduled_step import ScheduledStep
from inferdbg.engine.scheduler import Scheduler
from inferdbg.engine.state import Column, column_specs

VOCABULARY = 50
STOP = frozenset({0})


def limits(**settings: int | bool) -> Limits:
    """Small ones, unless said otherwise."""
    small = {"block_size": 4, "num_blocks": 20, "token_budget": 16, "max_running": 6, "max_waiting": 20}
    config = EngineConfig(**{**small, "max_model_len": 64, **settings})  # type: ignore[arg-type]
    return config.limits(model_len=4096, kv_bytes_per_token=1)


def columns_for(sizes: Limits, observer: Observer | None = None) -> dict[str, Column]:
    return (observer or Observer()).allocate(
        column_specs(
            num_blocks=sizes.num_blocks,
            slots=sizes.slots,
            rows=sizes.max_running,
            blocks_per_row=sizes.blocks_per_row,
        )
    )


def next_token(tokens: Sequence[int], index: int) -> int:
    """What this model says after ``tokens`` in continuation ``index``."""
    return crc32(bytes(tokens) + bytes([index])) % VOCABULARY


def alone(prompt: Sequence[int], params: SamplingParams, index: int = 0) -> list[int]:
    """What a request gets that nobody shares the engine with."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < params.max_tokens:
        tokens.append(next_token(tokens, index))
        if tokens[-1] in STOP:
            break
    return tokens[len(prompt) :]


class Told(Observer):
    """Remembers the events."""

    def __init__(self) -> None:
        self.events: list[tuple[EventKind, int, int, int, int, str]] = []

    def event(
        self, kind: EventKind, request: int = 0, other: int = 0, block: int = -1, tokens: int = 0, text: str = ""
    ) -> None:
        self.events.append((kind, request, other, block, tokens, text))

    def kinds(self) -> list[EventKind]:
        return [event[0] for event in self.events]


class Bench:
    """Runs a scheduler step by step on a cache of token ids, and keeps every request by its id."""

    def __init__(
        self, sizes: Limits, observer: Observer | None = None, columns: dict[str, Column] | None = None
    ) -> None:
        self.limits = sizes
        self.columns = columns_for(sizes) if columns is None else columns
        self.scheduler = Scheduler(self.columns, sizes, observer or Observer())
        self.cache = [[-1] * sizes.block_size for _ in range(sizes.num_blocks)]
        self.requests: dict[str, list[Request]] = {}
        self.now_ns = 1_000
        self.step_number = 0

    def add(self, request_id: str, prompt: Sequence[int], max_tokens: int = 8, n: int = 1) -> list[Request]:
        params = SamplingParams(max_tokens=max_tokens, n=n)
        self.requests[request_id] = self.scheduler.add(request_id, prompt, params, self.now_ns, STOP)
        return self.requests[request_id]

    def abort(self, request_id: str) -> list[Request]:
        return self.scheduler.abort(request_id, "gone", self.now_ns)

    def plan(self) -> ScheduledStep:
        self.now_ns += 1_000
        self.step_number += 1
        return self.scheduler.plan(self.step_number, self.now_ns)

    def commit(self, step: ScheduledStep, failed: dict[int, str] | None = None) -> None:
        self.scheduler.commit(step, self.compute(step), self.now_ns + 500, failed=failed)

    def step(self) -> ScheduledStep:
        step = self.plan()
        self.commit(step)
        return step

    def finish(self, most: int = 5_000) -> int:
        """Steps until nobody is left; how many."""
        for taken in range(most):
            if not self.scheduler.has_work:
                return taken
            assert self.step().requests, "a step with work ran nothing"
        raise AssertionError(f"not finished after {most} steps")

    def compute(self, step: ScheduledStep) -> list[int]:
        """What a backend and a sampler do: copies, then writes, then what was read through the tables decides."""
        for source, target in step.copies:
            self.cache[target] = self.cache[source][:]
        for request, context, chunk in zip(step.requests, step.contexts, step.chunks, strict=True):
            for position in range(context, context + chunk):
                block, place = divmod(position, self.limits.block_size)
                self.cache[self.scheduler.pool.block_at(request, block)][place] = request.tokens[position]
        ends = [context + chunk for context, chunk in zip(step.contexts, step.chunks, strict=True)]
        tokens = []
        for request, row in zip(step.samples, step.logit_rows, strict=True):
            holder = step.requests[step.sampled[row]]
            table = self.scheduler.pool.table(holder)
            seen = [token for block in table for token in self.cache[block]][: ends[step.sampled[row]]]
            tokens.append(next_token([token % 256 for token in seen], request.index))
        return tokens

    def used(self) -> int:
        return self.limits.num_blocks - self.scheduler.pool.available

    def assert_sound(self) -> None:
        found = self.scheduler.check()
        assert not found, found
