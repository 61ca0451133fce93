"""Decides what each step runs: every running request that can go on, and as many waiting ones as fit behind them.

    waiting, first come first          running, in order of arrival            one step, at most token_budget tokens
    ┌───┬───┬───┬───┐   admit   ┌────────┬────────┬─────────┬─────────┐      ┌─┬─┬─┬───────────────┬─────────┐
    │ 9 │ 8 │ 7 │ 6 │ ────────► │ decode │ decode │ prefill │ prefill │ ───► │1│1│1│ chunk         │ chunk   │
    └───┴───┴───┴───┘ ◄──────── └────────┴────────┴─────────┴─────────┘      └─┴─┴─┴───────────────┴─────────┘
                       preempt (the last to arrive; back to the front)         decodes are sure of their token

All running requests arrived before all waiting ones. A request that lacks a block takes it from those that arrived
after it, so the first one always goes on, and alone in the pool it always fits: it was measured at the door.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from .block_pool import BlockPool
from .config import Limits
from .consistency import Disagreement
from .door import refuse_impossible
from .errors import BadRequest, Overloaded
from .hooks import EventKind, Observer, StepPlan
from .prefix_cache import PrefixCache, digest_at
from .request import FinishReason, Request, RequestTable
from .sampling_params import SamplingParams
from .scheduled_step import ScheduledStep
from .scheduler_check import check_scheduler
from .state import Column, Counter, Stage, WaitReason
from .timings import Timings
from .waiting_queue import WaitingQueue

DECODE = int(Stage.DECODE)


class Scheduler:
    """``columns``: memory as described by state.column_specs for these limits, zeroed."""

    def __init__(self, columns: Mapping[str, Column], limits: Limits, observer: Observer) -> None:
        self.limits = limits
        self.table = RequestTable(columns, limits, observer)
        self.pool = BlockPool(
            columns,
            blocks_per_row=limits.blocks_per_row,
            observer=observer,
            prefix=PrefixCache(columns["blocks.hash"]),
        )
        self.timings = Timings(columns)
        self.waiting = WaitingQueue(self.table)
        self.running: list[Request] = []
        self.columns = columns
        self._counters = columns["counters"]
        self._observer = observer
        self._by_id: dict[str, list[Request]] = {}
        self._last_number = 0
        self._alive = 0  # requests that have a slot

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        params: SamplingParams,
        now_ns: int,
        stop_ids: frozenset[int] = frozenset(),
    ) -> list[Request]:
        """Puts ``params.n`` sequences into the queue. Raises BadRequest when they can never run, Overloaded when the
        queue is full."""
        try:
            if request_id in self._by_id:
                raise BadRequest(f"there is a request {request_id!r} already", "give each request an id of its own")
            refuse_impossible(self.limits, prompt, params, waiting=self._counters[Counter.WAITING])
        except (BadRequest, Overloaded) as refusal:
            self.count_refusal(refusal)
            raise
        group = []
        for index in range(params.n):
            self._last_number += 1
            tokens = array("q", prompt)
            request = Request(request_id, self._last_number, index, tokens, len(prompt), params, stop_ids)
            self.table.open(request, now_ns)
            group.append(request)
        leader = group[0]
        leader.parked = group[1:]
        for request in leader.parked:
            self.table.wait(request, WaitReason.BEHIND, leader.number)
        self.waiting.append(leader)
        self._by_id[request_id] = group[:]
        self._alive += params.n
        self._counters[Counter.ADDED] += params.n
        self._count()
        return group

    def count_refusal(self, refusal: BadRequest | Overloaded) -> None:
        self._counters[Counter.REJECTED] += 1
        self._observer.event(EventKind.REJECTED, text=refusal.message)

    def abort(self, request_id: str, why: str, now_ns: int) -> list[Request]:
        """Ends every sequence of that request that still lives, and returns them; none when it is unknown."""
        ended = list(self._by_id.get(request_id, ()))
        for request in ended:
            if request.slot >= 0:
                self.end(request, "abort", now_ns, why)
        return ended

    def plan(self, number: int, now_ns: int) -> ScheduledStep:
        """Chooses step ``number`` and gives each of its requests the blocks that it will write to."""
        step = ScheduledStep(StepPlan(number, self.limits.token_budget))
        prefill: list[tuple[Request, int, int]] = []
        stages = self.table.stage
        left = self.limits.token_budget - sum(stages[request.slot] == DECODE for request in self.running)
        owed = 0  # blocks that running prompts still have to get
        position = 0
        while position < len(self.running):  # a preemption shortens it from the end
            request = self.running[position]
            position += 1
            if stages[request.slot] == DECODE:
                context = self.table.computed_tokens[request.slot]
                if self._extend(request, context, 1, step, now_ns):
                    step.requests.append(request)
                    step.contexts.append(context)
                continue
            chunk = self._chunk(request, left, step, now_ns)
            if chunk:
                prefill.append((request, self.table.computed_tokens[request.slot], chunk))
                left -= chunk
            if request.row >= 0:
                owed += self._blocks_for(len(request.tokens)) - self.pool.held[request.slot]
        self._admit(left, owed, prefill, step, now_ns)
        step.add_prefill(prefill)
        self._count()
        step.plan.running = self._counters[Counter.RUNNING]
        step.plan.waiting = self._counters[Counter.WAITING]
        return step

    def commit(
        self,
        step: ScheduledStep,
        tokens: Sequence[int],
        now_ns: int,
        *,
        stopped: Collection[int] = (),
        failed: Mapping[int, str] | None = None,
    ) -> None:
        """Stores the step's results: ``tokens[i]`` for ``step.samples[i]``; ``stopped``: indices whose text ended with
        a stop string; ``failed``: index to reason of those that got no sound token. Ends what is finished
        (Request.finish_reason) and frees its blocks."""
        self._store_computed(step, now_ns)
        first_token_ns, last_token_ns = self.table.first_token_ns, self.table.last_token_ns
        output_tokens, worst_itl_ns = self.table.output_tokens, self.table.worst_itl_ns
        gaps: list[int] = []
        ended: list[tuple[Request, FinishReason, str]] = []
        for index, (request, token) in enumerate(zip(step.samples, tokens, strict=True)):
            if failed and index in failed:
                ended.append((request, "error", failed[index]))
                continue
            slot = request.slot
            request.tokens.append(token)
            produced = len(request.tokens) - request.prompt_tokens
            output_tokens[slot] = produced
            if first_token_ns[slot]:
                gap = now_ns - last_token_ns[slot]
                gaps.append(gap)
                if gap > worst_itl_ns[slot]:
                    worst_itl_ns[slot] = gap
            else:
                first_token_ns[slot] = now_ns
                self.timings.observe("ttft", now_ns - self.table.arrived_ns[slot])
                self._observer.event(EventKind.FIRST_TOKEN, request=request.number)
            last_token_ns[slot] = now_ns
            if token in request.stop_ids or index in stopped:
                ended.append((request, "stop", "stop"))
            elif produced >= request.params.max_tokens:
                ended.append((request, "length", "length"))
        self.timings.observe_all("itl", gaps)
        self._counters[Counter.STEPS] += 1
        self._counters[Counter.PREFILLED_TOKENS] += step.plan.prefill_tokens
        self._counters[Counter.GENERATED_TOKENS] += len(tokens) - len(failed or ())
        for request, reason, text in ended:
            if reason == "error":
                self.pool.distrust(request)
            self.end(request, reason, now_ns, text)
        self._count()

    def end(self, request: Request, reason: FinishReason, now_ns: int, text: str) -> None:
        """Takes a request out, with the siblings that wait for its prompt, and frees all that it holds. ``text``: why,
        for the event."""
        for sibling in request.parked:
            self._forget(sibling, reason, now_ns, text)
        request.parked = []
        if request.row >= 0:
            self.running.remove(request)
            self.table.computed_tokens[request.slot] = 0
            self.pool.drop_all(request, now_ns)
        else:
            self.waiting.remove(request)
        self._forget(request, reason, now_ns, text)
        self._count()

    def requests(self) -> list[Request]:
        """Everyone it knows."""
        return [request for leader in chain(self.running, self.waiting) for request in (leader, *leader.parked)]

    def check(self) -> list[Disagreement]:
        """Everything in columns, queues and prefix table that contradicts; nothing when all is well."""
        return check_scheduler(self)

    def numbers_by_id(self) -> list[int]:
        """Of every request that can be aborted, ascending."""
        return sorted(request.number for group in self._by_id.values() for request in group)

    def _extend(self, request: Request, context: int, tokens: int, step: ScheduledStep, now_ns: int) -> bool:
        """Sees to it that ``tokens`` more can be written; False when that cost the request itself its place."""
        pool = self.pool
        held = pool.held[request.slot]
        missing = self._blocks_for(context + tokens) - held
        first = context // self.limits.block_size
        if first < held:
            while pool.refcount[pool.block_at(request, first)] > 1:
                if pool.available:
                    self.table.computed_tokens[request.slot] = first * self.limits.block_size  # until it has its copy
                    step.copies.append(pool.copy_last(request, now_ns))
                    self.table.computed_tokens[request.slot] = context
                elif self._preempt(request, now_ns):
                    return False
        for _ in range(missing):
            while not pool.available:
                if self._preempt(request, now_ns):
                    return False
            pool.allocate(request, now_ns)
        return True

    def _chunk(self, request: Request, left: int, step: ScheduledStep, now_ns: int) -> int:
        """Prompt tokens that a running request computes in this step; its blocks are given. Fewer than the budget
        allows when blocks are short, 0 when there is no budget or it lost its place."""
        context = self.table.computed_tokens[request.slot]
        remaining = len(request.tokens) - context
        if left <= 0:
            self.table.wait(request, WaitReason.TOKEN_BUDGET, remaining, 0)
            return 0
        blocks = self.pool.held[request.slot] + max(self.pool.available, 1)
        chunk = min(remaining, left, self.limits.max_chunk, blocks * self.limits.block_size - context)
        if not self._extend(request, context, chunk, step, now_ns):
            return 0
        self.table.wait(request, WaitReason.NONE)
        return chunk

    def _admit(
        self, left: int, owed: int, prefill: list[tuple[Request, int, int]], step: ScheduledStep, now_ns: int
    ) -> None:
        """Lets waiting requests in, first come first, until one does not fit: that one says why."""
        pool, limits = self.pool, self.limits
        seats = self._seats() if self.waiting else 0
        while self.waiting:
            head = self.waiting.head
            wanted = 1 + len(head.parked)
            if seats + wanted > limits.max_running:
                self.table.wait(head, WaitReason.MAX_RUNNING, seats, limits.max_running)
                return
            hits = pool.prefix.match(head.tokens, head.digests, limits.block_size) if limits.prefix_caching else []
            context = len(hits) * limits.block_size
            if left <= 0:
                self.table.wait(head, WaitReason.TOKEN_BUDGET, len(head.tokens) - context, 0)
                return
            needs = self._blocks_for(len(head.tokens)) - sum(pool.refcount[block] > 0 for block in hits)
            if needs > pool.available - owed:
                self.table.wait(head, WaitReason.BLOCKS, needs, max(0, pool.available - owed))
                return
            self.waiting.admit()
            self.running.append(head)
            seats += wanted
            self._seat(head, hits, context, now_ns)
            chunk = self._chunk(head, left, step, now_ns)
            prefill.append((head, context, chunk))
            left -= chunk
            owed += self._blocks_for(len(head.tokens)) - pool.held[head.slot]

    def _seat(self, request: Request, hits: list[int], context: int, now_ns: int) -> None:
        table, slot = self.table, request.slot
        table.seat(request, Stage.PREFILL)
        for block in hits:
            self.pool.share(block, request, now_ns)
        table.computed_tokens[slot] = context
        table.cached_tokens[slot] = context
        if not table.scheduled_ns[slot]:
            table.scheduled_ns[slot] = now_ns
            self.timings.observe("queue_time", now_ns - table.arrived_ns[slot])
        if self.limits.prefix_caching:
            self._counters[Counter.PREFIX_QUERIED_TOKENS] += len(request.tokens)
            self._counters[Counter.PREFIX_HIT_TOKENS] += context
        self._observer.event(EventKind.SCHEDULED, request=request.number, tokens=context)

    def _store_computed(self, step: ScheduledStep, now_ns: int) -> None:
        block_size = self.limits.block_size
        computed_tokens = self.table.computed_tokens
        for request, context, chunk in zip(step.requests, step.contexts, step.chunks, strict=True):
            end = context + chunk
            computed_tokens[request.slot] = end
            if end // block_size > context // block_size and self.limits.prefix_caching:
                for index in range(context // block_size, end // block_size):
                    digest = digest_at(index, request.tokens, request.digests, block_size)
                    self.pool.cache(self.pool.block_at(request, index), digest, request)
        for request, context, chunk in step.prefills():
            if context < request.lost_tokens:
                recomputed = min(context + chunk, request.lost_tokens) - context
                self.table.recomputed_tokens[request.slot] += recomputed
                self._counters[Counter.RECOMPUTED_TOKENS] += recomputed
            if context + chunk == len(request.tokens):
                self.table.stage[request.slot] = Stage.DECODE
                self._fork(request, now_ns)

    def _fork(self, leader: Request, now_ns: int) -> None:
        """The prompt is computed: its siblings go their own ways from here, on the same blocks until they write."""
        table = self.table
        place = self.running.index(leader) + 1 if leader.parked else 0
        for sibling in leader.parked:
            table.seat(sibling, Stage.DECODE)
            for block in self.pool.table(leader):
                self.pool.share(block, sibling, now_ns)
            for column in (table.computed_tokens, table.cached_tokens, table.scheduled_ns):
                column[sibling.slot] = column[leader.slot]
            sibling.digests = leader.digests[:]
        self.running[place:place] = leader.parked
        leader.parked = []

    def _preempt(self, for_whom: Request, now_ns: int) -> bool:
        """Takes everything from the request that arrived last, and puts it back to the front of the queue; True when
        that is ``for_whom`` itself."""
        victim = self.running.pop()
        slot = victim.slot
        lost = self.table.computed_tokens[slot]
        victim.lost_tokens = max(victim.lost_tokens, lost)
        self.table.computed_tokens[slot] = 0
        self.table.preemptions[slot] += 1
        self.pool.drop_all(victim, now_ns)
        self.table.unseat(victim, Stage.PREEMPTED)
        self.waiting.put_back(victim)
        self._counters[Counter.PREEMPTED] += 1
        self._observer.event(EventKind.PREEMPTED, request=victim.number, other=for_whom.number, tokens=lost)
        return victim is for_whom

    def _forget(self, request: Request, reason: FinishReason, now_ns: int, text: str) -> None:
        request.finish_reason = reason
        generated = len(request.tokens) - request.prompt_tokens
        if reason == "error":
            kind, counter = EventKind.FAILED, Counter.FAILED
            request.failure = text
        elif reason == "abort":
            kind, counter = EventKind.ABORTED, Counter.ABORTED
            request.failure = text
        else:
            kind, counter = EventKind.FINISHED, Counter.FINISHED
            self.timings.observe("e2e", now_ns - self.table.arrived_ns[request.slot])
        self.table.close(request)
        self._alive -= 1
        group = self._by_id[request.id]
        group.remove(request)
        if not group:
            del self._by_id[request.id]
        self._counters[counter] += 1
        self._observer.event(kind, request=request.number, tokens=generated, text=text)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _seats(self) -> int:
        return sum(1 + len(request.parked) for request in self.running)

    def _count(self) -> None:
        self._counters[Counter.RUNNING] = len(self.running)
        self._counters[Counter.WAITING] = self._alive - len(self.running)
        self._counters[Counter.PREEMPTED_NOW] = self.waiting.preempted
