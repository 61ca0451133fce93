"""Why requests of vLLM wait: what the head of the queue lacks, and whom the others are behind."""

from collections import deque
from itertools import islice

from inferdbg.engine.state import WaitReason

from .hooking import Foreign
from .requests import PREEMPTED, Kept, Requests
from .steps import Plan

_FIRST = 16
"""Of the queue, whose reasons are looked at in each step."""


class Queue:
    """``budget``: most tokens of a step; ``most_running``: most requests at a time. ``starved``: who got no blocks in
    the present step, how many it needs (0: not known) and how many were free."""

    def __init__(
        self, scheduler: Foreign, requests: Requests, *, budget: int, most_running: int, block_size: int
    ) -> None:
        self._scheduler = scheduler
        self._free_queue = scheduler.kv_cache_manager.block_pool.free_block_queue
        self._requests = requests
        self._budget = budget
        self._most_running = most_running
        self._block_size = block_size
        self.starved: tuple[Foreign, int, int] | None = None

    def __len__(self) -> int:
        scheduler = self._scheduler
        return len(scheduler.waiting) + len(getattr(scheduler, "kv_holding_waiting", ()))

    def before(self, request: Foreign) -> "Kept | None":
        """The one that a request which just came is behind."""
        waiting = self._scheduler.waiting
        if isinstance(waiting, deque) and len(waiting) > 1:
            before = waiting[-2] if waiting[-1] is request else waiting[-1]
            return self._requests.by_id.get(before.request_id)
        return None

    def explain(self, plan: Plan) -> None:
        """Why the first of the queue wait; the others were told when they came whom they are behind."""
        waiting = self._scheduler.waiting
        if not waiting:
            return
        by_id = self._requests.by_id
        if not isinstance(waiting, deque):  # a heap: only its first one is cheap to know
            kept = by_id.get(waiting.peek_request().request_id)
            if kept is not None:
                self._requests.wait(kept, *self._reason(kept, plan))
            return
        before: Kept | None = None
        for request in islice(waiting, _FIRST):
            kept = by_id.get(request.request_id)
            if kept is None:
                break
            if before is None:
                self._requests.wait(kept, *self._reason(kept, plan))
            else:
                self._requests.wait(kept, WaitReason.BEHIND, before.number)
            before = kept

    def _reason(self, kept: Kept, plan: Plan) -> "tuple[int, int, int]":
        """The head of the queue: reason, needs, available."""
        if self.starved is not None and self.starved[0] is kept.request and self.starved[1]:
            return (WaitReason.BLOCKS, *self.starved[1:])
        if kept.stage == PREEMPTED and self.starved is not None:  # nobody is let in after a preemption
            blocks = -(-kept.request.num_tokens // self._block_size)
            return WaitReason.BLOCKS, blocks, self._free_queue.num_free_blocks
        running = len(self._scheduler.running)
        if running >= self._most_running:
            return WaitReason.MAX_RUNNING, running, self._most_running
        left = self._budget - plan.prefill - plan.decode
        if left <= 0:
            return WaitReason.TOKEN_BUDGET, kept.request.num_tokens - kept.request.num_computed_tokens, 0
        return WaitReason.NONE, 0, 0
