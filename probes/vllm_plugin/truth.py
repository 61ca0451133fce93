"""A debugging aid: what vLLM's scheduler really holds, line by line, so that whatever reads it can be checked.

    INFERDBG=1 INFERDBG_TRUTH=/dev/shm/truth.jsonl vllm serve ...

Each line is a JSON object. Between a line and the next one with another ``step`` or ``at`` the scheduler changes only
by requests that arrive or are aborted:

    at          "scheduled": schedule() has returned; "updated": update_from_output() has
    step        scheduler.current_step, or our count where it has none
    mono_ns     CLOCK_MONOTONIC
    requests    id to [status, computed tokens, tokens in flight, prompt, output, preemptions, [blocks of group 0]]
    running     ids in order;  waiting: ids in order (of kv_holding_waiting first)
    scheduled   id to tokens of this step (on "scheduled" lines)
    free        blocks in the free list;  free_head: the first 16 of them, next to be given first
    refcounts   CRC-32 of every block's count, in order, as u16;  hashed: blocks that have a hash

It costs a walk over the whole pool twice a step. No token and no prompt is written.
"""

import json
import os
import time
import zlib
from array import array
from itertools import chain

from .hooking import Foreign

_HEAD = 16


class Truth:
    """Raises OSError when the file cannot be written."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, scheduler: Foreign, at: str, step: int, scheduled: "dict[str, int] | None" = None) -> None:
        line = state_of(scheduler, at, step)
        if scheduled is not None:
            line["scheduled"] = dict(scheduled)
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")  # in one piece: survives a kill


def state_of(scheduler: Foreign, at: str, step: int) -> "dict[str, object]":
    manager = scheduler.kv_cache_manager
    tables = manager.coordinator.single_type_managers[0].req_to_blocks
    pool = manager.block_pool
    head: list[int] = []
    block = pool.free_block_queue.fake_free_list_head.next_free_block
    while block is not None and block.block_id >= 0 and len(head) < _HEAD:
        head.append(block.block_id)
        block = block.next_free_block
    return {
        "at": at,
        "step": step,
        "mono_ns": time.monotonic_ns(),
        "requests": {
            name: [
                getattr(request.status, "name", str(request.status)),
                request.num_computed_tokens,
                getattr(request, "num_in_flight_tokens", None),
                request.num_prompt_tokens,
                request.num_output_tokens,
                getattr(request, "num_preemptions", None),
                [block.block_id for block in tables.get(name, ())],
            ]
            for name, request in scheduler.requests.items()
        },
        "running": [request.request_id for request in scheduler.running],
        "waiting": [
            request.request_id for request in chain(getattr(scheduler, "kv_holding_waiting", ()), scheduler.waiting)
        ],
        "free": pool.free_block_queue.num_free_blocks,
        "free_head": head,
        "refcounts": zlib.crc32(array("H", [min(block.ref_cnt, 0xFFFF) for block in pool.blocks]).tobytes()),
        "hashed": sum(block.block_hash is not None for block in pool.blocks),
    }
