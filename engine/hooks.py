"""What a stranger may watch: subclass Observer, override what you need, pass it to Engine(observer=...).

The whole of an instrument that counts what preemption costs:

    class LostWork(Observer):
        lost = 0

        def event(self, kind, request=0, other=0, block=0, tokens=0, text=""):
            if kind is EventKind.PREEMPTED:
                self.lost += tokens

    observer = LostWork()
    engine = Engine(model, config, observer=observer)

Every method is called on the engine's thread, between two changes of its state, and must be quick: the engine waits.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum

from .state import Column, ColumnSpec, plain_memory


class EventKind(IntEnum):
    """What can befall a request or a block; the arguments of Observer.event that each kind fills."""

    REJECTED = 1  # request, text: why
    SCHEDULED = 2  # request, tokens: found in the prefix cache
    FIRST_TOKEN = 3  # request
    PREEMPTED = 4  # request, other: whom it made room for, tokens: computed tokens lost
    EVICTED = 5  # request: whose content it was, other: for whom, block
    COPIED = 6  # request: who wrote, other: block copied from, block: copied to
    FINISHED = 7  # request, tokens: generated, text: stop or length
    ABORTED = 8  # request, tokens: generated, text: why
    FAILED = 9  # request, text: the error
    FAULT = 10  # text: which planted fault fired
    LOGGED = 11  # text: a log line


class Operation(IntEnum):
    """A change of pool and tables that takes more than one store."""

    ALLOCATE = 1
    TOUCH = 2  # take a cached block out of the free list
    FREE = 3
    EVICT = 4
    CACHE = 5  # enter a full block into the prefix table
    COPY = 6
    ADMIT = 7  # give a slot or a row to a request
    RELEASE = 8  # take them back


class WorkKind(IntEnum):
    PREFILL = 1
    DECODE = 2


@dataclass(slots=True)
class StepPlan:
    """What one step runs: parallel arrays with an entry a scheduled request, so that an observer copies them whole.

    ``numbers``: request numbers (u32). ``kinds``: WorkKind (u8). ``tokens``: tokens to compute (u32).
    ``contexts``: tokens of it already in the cache (u32).
    """

    step: int
    budget: int
    numbers: array[int] = field(default_factory=lambda: array("I"))
    kinds: array[int] = field(default_factory=lambda: array("B"))
    tokens: array[int] = field(default_factory=lambda: array("I"))
    contexts: array[int] = field(default_factory=lambda: array("I"))
    prefill_tokens: int = 0
    decode_tokens: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(slots=True)
class StepTimes:
    """time.monotonic_ns() at the start of a step and ns spent in each phase; ``idle_ns``: since the step before."""

    start_ns: int = 0
    schedule_ns: int = 0
    prepare_ns: int = 0
    forward_ns: int = 0
    sample_ns: int = 0
    commit_ns: int = 0
    idle_ns: int = 0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What never changes while the engine runs; plain values that can be written as JSON.

    ``model``: name, architecture, layers, heads, kv_heads, head_size, hidden_size, intermediate_size, vocabulary,
    parameters, weight_bytes, weight_dtype, kv_dtype, kv_bytes_per_token. ``config``: block_size, num_blocks,
    token_budget, max_running, max_waiting, max_model_len, prefix_caching, policy, backend. ``kernels``: names in order
    of the columns ``kernels.*``. ``blocks_per_row``: width of a row of ``tables``.
    """

    version: str
    model: dict[str, str | int | bool | None]
    config: dict[str, str | int | bool | None]
    kernels: tuple[str, ...]
    blocks_per_row: int
    started_wall_ns: int
    started_mono_ns: int


class Observer:
    """Does nothing. Numbers of requests count from 1; 0 means none."""

    def allocate(self, specs: list[ColumnSpec]) -> dict[str, Column]:
        """Memory for the engine's columns, zeroed; called once, before anything else."""
        return plain_memory(specs)

    def started(self, facts: EngineFacts) -> None:
        """The engine is ready to take requests."""

    def serving(self, url: str) -> None:
        """A server listens at ``url`` for this engine."""

    def mutating(self, operation: Operation, block: int = -1, request: int = 0) -> None:
        """Pool or tables are about to change; until ``settled`` they may disagree about this block and request."""

    def settled(self) -> None:
        """The change is complete. Changes follow each other and never nest."""

    def step_planned(self, plan: StepPlan) -> None:
        """The scheduler has chosen; nothing has been computed yet."""

    def step_finished(self, plan: StepPlan, times: StepTimes) -> None:
        """Tokens are stored, finished requests are gone."""

    def event(
        self, kind: EventKind, request: int = 0, other: int = 0, block: int = -1, tokens: int = 0, text: str = ""
    ) -> None:
        """Something befell a request, see EventKind."""

    def stopped(self, *, requests_in_flight: int) -> None:
        """The engine's last word on a clean stop."""
