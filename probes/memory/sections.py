"""From one look at an engine's objects to sections: pure, and without a Python loop over blocks.

Why a request waits is no object of the engine's: it follows from queue, pool and limits, and is inferred.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import CACHED, FREE, RESERVED, USED, KVCache
from inferdbg.facts.sections.requests import Request, Requests, Stage, Wait
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts, Server
from inferdbg.facts.sections.steps import Shares, Step, Work

from ..engine_blocks import filled_column, more_than_one, unfilled_blocks
from .found import Fact
from .front import FrontRequest
from .look import Look, PoolSeen, Row
from .reuse import Told

_UNTOLD = Told(None, None)
_MOST_HOLDERS = 0xFFFF
_NS = 1_000_000_000


def requests(
    look: Look,
    numbers: Mapping[str, int],
    front: Mapping[str, FrontRequest],
    facts: Mapping[str, Fact],
    statuses: Mapping[str, str],
    wall_to_mono_ns: int,
    origin: Origin,
    told: Mapping[str, Told],
) -> Requests:
    """``numbers``: of each request by its id. ``wall_to_mono_ns``: what to add to a wall clock time."""
    waits = waiting_reasons(look, numbers, facts, statuses)
    found = [
        _request(row, numbers[row.id], front.get(row.id), waits.get(row.id), statuses, wall_to_mono_ns, told)
        for row in look.rows
    ]
    found.sort(key=lambda request: request.number)
    return Requests(origin=origin, items=tuple(found))


def _request(
    row: Row,
    number: int,
    front: FrontRequest | None,
    wait: Wait | None,
    statuses: Mapping[str, str],
    wall_to_mono_ns: int,
    told: Mapping[str, Told],
) -> Request:
    found = told.get(row.id, _UNTOLD)
    return Request(
        number=number,
        id=row.id,
        stage=stage_of(row, statuses),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.outputs,
        max_output_tokens=row.max_output_tokens,
        computed_tokens=computed(row),
        cached_tokens=front.cached_tokens if front is not None and front.first_token_ns is not None else None,
        preemptions=row.preemptions,
        arrived_ns=int(row.arrival * _NS) + wall_to_mono_ns if row.arrival is not None else None,
        scheduled_ns=front.scheduled_ns if front is not None else None,
        first_token_ns=front.first_token_ns if front is not None else None,
        last_token_ns=front.last_token_ns if front is not None else None,
        wait=wait,
        blocks=row.blocks,
        priority=row.priority,
        reuse=found.reuse,
        adapter=found.adapter,
        client=row.client,
    )


def computed(row: Row) -> int | None:
    """The engine counts tokens as computed once they are scheduled: without those whose step is not over."""
    return None if row.computed_tokens is None else max(0, row.computed_tokens - (row.in_flight or 0))


def stage_of(row: Row, statuses: Mapping[str, str]) -> Stage:
    """A request decodes when all its tokens but the newest are computed; after a preemption it prefills again."""
    said = statuses.get(row.status)
    if row.status.startswith("FINISHED"):
        return "finished"
    if said == "preempted":
        return "preempted"
    if said != "running":
        return "waiting"
    have = (row.prompt_tokens or 0) + (row.outputs or 0)
    done = computed(row) or 0
    return "decode" if row.outputs and done >= have - 1 else "prefill"


def waiting_reasons(
    look: Look, numbers: Mapping[str, int], facts: Mapping[str, Fact], statuses: Mapping[str, str]
) -> dict[str, Wait]:
    """First come, first served, or by priority: whoever is next waits for something, the others for those before."""
    found: dict[str, Wait] = {}
    rows = {row.id: row for row in look.rows}
    before: str | None = None
    for name in look.waiting:
        wait = Wait("behind", behind=numbers[before]) if before is not None else _reason(rows[name], look, facts)
        if wait is not None:
            found[name] = wait
        before = name
    return found


def _reason(row: Row, look: Look, facts: Mapping[str, Fact]) -> Wait | None:
    limit, size, budget = (_number(facts, f"config.{name}") for name in ("max_running", "block_size", "token_budget"))
    if limit is not None and look.running >= limit:
        return Wait("max running", look.running, limit)
    tokens = (row.prompt_tokens or 0) + (row.outputs or 0)
    if size and look.free_blocks is not None:
        needs = -(-tokens // size) + (_number(facts, "watermark") or 0)
        if needs > look.free_blocks:
            return Wait("blocks", needs, look.free_blocks)
    if look.scheduled is not None and budget is not None and sum(look.scheduled.values()) >= budget:
        return Wait("token budget", tokens - (row.computed_tokens or 0), 0)
    return None


def scheduler(look: Look, step: int | None, statuses: Mapping[str, str], origin: Origin) -> Scheduler:
    return Scheduler(
        origin=origin,
        running=look.running,
        waiting=look.waiting_total,
        preempted=sum(statuses.get(row.status) == "preempted" for row in look.rows),
        steps_total=step,
    )


def kvcache(
    look: Look, pool: PoolSeen, owner: bytes, block_size: int, origin: Origin, *, columns_ns: int | None
) -> KVCache:
    """``owner``: as in KVCache. Block 0 is a placeholder that nobody ever gets: it is neither free nor used."""
    held, hashed = pool.references > 0, pool.hash != 0
    state = np.where(held, USED, np.where(hashed, CACHED, FREE)).astype(np.uint8)
    state[0] = RESERVED
    column = state.tobytes()
    refcount = np.minimum(pool.references, _MOST_HOLDERS).astype(np.uint16)
    refcount[0] = 0
    tables = [(row.blocks, computed(row) or 0) for row in look.rows if row.blocks]
    hashes = pool.hash.tobytes()
    unfilled = unfilled_blocks(column, hashes, block_size, tables)
    used, cached = column.count(USED), column.count(CACHED)
    following = pool.next
    following[held] = -1
    following[0] = -1
    references = refcount.tobytes()
    return KVCache(
        origin=origin,
        num_blocks=len(column),
        block_size=block_size,
        free_blocks=len(column) - 1 - used - cached,
        cached_blocks=cached,
        used_blocks=used,
        shared_blocks=more_than_one(references),
        tokens=used * block_size - sum(block_size - tokens for tokens in unfilled.values()),
        first_free=pool.first_free if pool.first_free >= 0 else None,
        state=column,
        refcount=references,
        filled=filled_column(column, unfilled, block_size),
        owner=owner,
        hash=hashes,
        next_free=following.tobytes(),
        columns_ns=columns_ns,
    )


def counted_again(cache: KVCache, available: int, origin: Origin) -> KVCache:
    """The pool as its count is now, over block columns of before: ``available`` blocks can be given away. As many of
    them are taken to be cached as were then, and as much of the used ones to be unfilled."""
    used = max(0, cache.num_blocks - 1 - available)
    cached = min(cache.cached_blocks or 0, available)
    unfilled = (cache.used_blocks or 0) * cache.block_size - (cache.tokens or 0)
    return replace(
        cache,
        origin=origin,
        free_blocks=available - cached,
        cached_blocks=cached,
        used_blocks=used,
        tokens=max(0, used * cache.block_size - unfilled),
    )


def owners(look: Look, numbers: Mapping[str, int], pool: PoolSeen, known: np.ndarray | None) -> np.ndarray:
    """Who holds each block, of several the one that came first; of cached ones who was seen to hold it last."""
    found = np.zeros(len(pool.hash), np.uint32) if known is None or len(known) != len(pool.hash) else known.copy()
    found[(pool.references <= 0) & (pool.hash == 0)] = 0
    for row in reversed(look.rows):
        found[np.frombuffer(row.blocks, np.int32)] = numbers[row.id]
    return found


def running_step(
    look: Look, step: int, start_ns: int, numbers: Mapping[str, int], facts: Mapping[str, Fact]
) -> Step | None:
    """The step under way, and None when none is, or it computes nothing."""
    if not look.scheduled:
        return None
    rows = {row.id: row for row in look.rows}
    work = [_work(rows[name], numbers[name], tokens) for name, tokens in look.scheduled.items() if name in rows]
    prefill = sum(share.tokens for share in work if share.kind == "prefill")
    return Step(
        step=step,
        start_ns=start_ns,
        schedule_ns=None,
        prepare_ns=None,
        forward_ns=None,
        sample_ns=None,
        commit_ns=None,
        idle_ns=None,
        budget=_number(facts, "config.token_budget"),
        prefill_tokens=prefill,
        decode_tokens=sum(look.scheduled.values()) - prefill,
        running=look.running,
        waiting=look.waiting_total,
        shares=Shares.of(work),
        work_lost=len(work) < len(look.scheduled),
    )


def _work(row: Row, number: int, tokens: int) -> Work:
    """A decode continues behind the newest token, with as many more as were drafted; whatever begins before it is
    prefill, also of what a preemption threw away."""
    context = max(0, (row.computed_tokens or 0) - tokens)
    prompt = row.prompt_tokens or 0
    prefill = context < max(prompt, prompt + (row.outputs or 0) - 1)
    return Work(number, "prefill" if prefill else "decode", tokens, context)


def server(facts: Mapping[str, Fact], engine: str, version: str | None, pid: int | None, origin: Origin) -> Server:
    """``pid``: of the engine core, whose stack tells where it hangs."""
    told: dict[str, dict[str, Fact]] = {"model": {"name": "unknown"}, "config": {}}
    for name, value in facts.items():
        part, _, field = name.partition(".")
        if part in told and value is not None:
            told[part][field] = value
    model = told["model"]
    heads, hidden = model.get("heads"), model.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden, int) and heads:
        model.setdefault("head_size", hidden // heads)
    return Server(
        origin=origin,
        engine=engine,
        version=version,
        pid=pid,
        model=_converted(ModelFacts, model),
        config=_converted(EngineConfig, told["config"]),
    )


S = TypeVar("S", bound=Struct)


def _converted(kind: type[S], values: dict[str, Fact]) -> S | None:
    """None where something is not what its name says."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        return None


def _number(facts: Mapping[str, Fact], name: str) -> int | None:
    value = facts.get(name)
    return value if isinstance(value, int) else None
