"""The engine's numbers live in flat columns, so that whoever provides their memory can watch them without asking.

The engine asks its Observer for the memory of these columns once, at start. By default that is plain memory; under
observation it is a mapped file, and then the file *is* the engine's state, readable while the engine hangs and after
it died. A store to a column costs 27 ns against 17 ns for a list.

    blocks.*     one entry a physical block         requests.*   one entry a request slot
    tables       one row of block numbers a running request (row: requests.row)
    pulse        single aligned words: what the engine does now
    counters     cumulative since the start         histograms.* counts by bucket
    kernels.*    one entry a kernel
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

Column: TypeAlias = "memoryview[int]"
Typecode = Literal["B", "H", "I", "i", "Q", "q"]


class ColumnSpec(NamedTuple):
    """``typecode`` as in struct and memoryview.cast; ``length`` items, all zero at start, 8-byte aligned."""

    name: str
    typecode: Typecode
    length: int


class BlockState(IntEnum):
    """FREE: nothing in it. CACHED: no request holds it, its content can be reused or evicted. USED: held."""

    FREE = 0
    CACHED = 1
    USED = 2


class Stage(IntEnum):
    """Where a request stands. EMPTY: the slot is nobody's."""

    EMPTY = 0
    WAITING = 1
    PREFILL = 2
    DECODE = 3
    PREEMPTED = 4
    FINISHED = 5


class WaitReason(IntEnum):
    """Why a request is not in the step. BLOCKS: needs/available blocks. BEHIND: needs = number of the request before
    it. MAX_RUNNING: running/limit. TOKEN_BUDGET: needs/left tokens."""

    NONE = 0
    BLOCKS = 1
    BEHIND = 2
    MAX_RUNNING = 3
    TOKEN_BUDGET = 4


class Phase(IntEnum):
    """What a step is doing. PREPARE builds inputs, COMMIT stores tokens, frees blocks and answers clients."""

    STARTING = 0
    IDLE = 1
    SCHEDULE = 2
    PREPARE = 3
    FORWARD = 4
    SAMPLE = 5
    COMMIT = 6
    STOPPING = 7


class Pulse(IntEnum):
    """Words (u64) of the column ``pulse``. Times are time.monotonic_ns(). LAYER and KERNEL are one more than the
    index, 0 when none. LAUNCHED ahead of COMPLETED: that kernel has not returned."""

    HEARTBEAT_NS = 0  # stored at every phase, and at least every 200 ms while idle
    STEP = 1  # steps begun since the start
    PHASE = 2
    PHASE_SINCE_NS = 3
    LAYER = 4
    KERNEL = 5
    LAUNCHED = 6
    COMPLETED = 7


class Counter(IntEnum):
    """Words (u64) of the column ``counters``; all only rise, but for RUNNING, WAITING and PREEMPTED_NOW."""

    RUNNING = 0
    WAITING = 1
    PREEMPTED_NOW = 2
    STEPS = 3
    PREFILLED_TOKENS = 4
    GENERATED_TOKENS = 5
    RECOMPUTED_TOKENS = 6
    PREFIX_QUERIED_TOKENS = 7
    PREFIX_HIT_TOKENS = 8
    PREEMPTED = 9
    EVICTED_BLOCKS = 10
    COPIED_BLOCKS = 11
    ADDED = 12
    FINISHED = 13
    ABORTED = 14
    REJECTED = 15
    FAILED = 16


class PoolWord(IntEnum):
    """Words (i64) of the column ``pool``. FIRST_FREE: block that is given or evicted next, -1 when none."""

    FREE = 0
    CACHED = 1
    USED = 2
    FIRST_FREE = 3
    LAST_FREE = 4


KERNELS: tuple[str, ...] = ("embed", "attention", "mlp", "lm head", "sample")
"""Indices of ``kernels.*``. A backend with finer kernels names its own through EngineFacts.kernels."""

HISTOGRAMS: tuple[str, ...] = ("ttft", "itl", "queue_time", "e2e")

_MANTISSAS = (10, 15, 20, 30, 40, 50, 70)
BUCKETS_NS: tuple[int, ...] = (
    *(mantissa * 10**power for power in range(4, 10) for mantissa in _MANTISSAS),
    100 * 10**9,
    200 * 10**9,
    400 * 10**9,
)
"""Upper edges of every histogram, 0.1 ms to 400 s; one bucket more lies above."""

REQUEST_ID_BYTES = 48

BLOCK_COLUMNS: Mapping[str, Typecode] = {
    "state": "B",  # BlockState
    "refcount": "H",  # requests that hold it
    "owner": "I",  # number of the request that it was last allocated for, 0: nobody yet
    "hash": "Q",  # first 8 bytes of the chained prefix hash, 0: not hashed
    "last_used": "Q",  # monotonic ns of the last allocate, touch or free
    "next_free": "i",  # free list, doubly linked, in order of eviction; -1: end, or not in it
    "previous_free": "i",
}

REQUEST_COLUMNS: Mapping[str, Typecode] = {
    "number": "I",  # counts requests since the start from 1, never used twice: tells a slot's generations apart
    "stage": "B",
    "row": "i",  # row of ``tables``, -1: holds no blocks
    "blocks": "i",  # entries of that row in use
    "prompt_tokens": "I",
    "output_tokens": "I",
    "max_output_tokens": "I",
    "computed_tokens": "I",  # tokens whose KV is in the cache
    "cached_tokens": "I",  # of them, found in the prefix cache when last scheduled
    "recomputed_tokens": "I",
    "preemptions": "I",
    "wait_reason": "B",
    "wait_needs": "I",
    "wait_available": "I",
    "arrived_ns": "Q",
    "scheduled_ns": "Q",  # 0: not yet; so too below
    "first_token_ns": "Q",
    "last_token_ns": "Q",
    "worst_itl_ns": "Q",
}


def column_specs(
    *, num_blocks: int, slots: int, rows: int, blocks_per_row: int, kernels: int = len(KERNELS)
) -> list[ColumnSpec]:
    """Every column of an engine of that size. ``rows``: most requests that hold blocks at a time;
    ``blocks_per_row``: blocks of the longest sequence."""
    return [
        ColumnSpec("pulse", "Q", len(Pulse)),
        ColumnSpec("counters", "Q", len(Counter)),
        ColumnSpec("pool", "q", len(PoolWord)),
        *(ColumnSpec(f"histograms.{name}", "Q", len(BUCKETS_NS) + 2) for name in HISTOGRAMS),  # counts, then sum_ns
        *(ColumnSpec(f"kernels.{name}", "Q", kernels) for name in ("calls", "busy_ns", "flops", "moved_bytes")),
        *(ColumnSpec(f"blocks.{name}", code, num_blocks) for name, code in BLOCK_COLUMNS.items()),
        ColumnSpec("requests.id", "B", slots * REQUEST_ID_BYTES),  # UTF-8, cut, zero-filled
        *(ColumnSpec(f"requests.{name}", code, slots) for name, code in REQUEST_COLUMNS.items()),
        ColumnSpec("tables", "i", rows * blocks_per_row),
    ]


def plain_memory(specs: list[ColumnSpec]) -> dict[str, Column]:
    """The columns in memory of the process's own, for an engine that nobody observes."""
    sizes: dict[Typecode, int] = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8, "q": 8}
    return {spec.name: memoryview(bytearray(spec.length * sizes[spec.typecode])).cast(spec.typecode) for spec in specs}
