"""As much of vLLM's scheduler as the plug-in touches, with vLLM's names: so that tests need no vLLM. Standard library.

It is small, and of its own making: first come first served, one group of blocks, prefix blocks found by their tokens.
"""

import enum
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace

BLOCK = 4


class RequestStatus(enum.IntEnum):
    WAITING = 1
    RUNNING = 5
    PREEMPTED = 6
    FINISHED_STOPPED = 7
    FINISHED_LENGTH_CAPPED = 8
    FINISHED_ABORTED = 9


class Request:
    def __init__(self, name: str, prompt: int, outputs: int, family: int = 0) -> None:
        self.request_id = name
        self.status = RequestStatus.WAITING
        self.num_prompt_tokens = prompt
        self.max_tokens = outputs
        self.num_output_tokens = 0
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_preemptions = 0
        self.is_prefill_chunk = False
        self.arrival_time = None
        self.family = family

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    def is_finished(self) -> bool:
        return self.status > RequestStatus.PREEMPTED


class Block:
    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None
        self.prev_free_block: Block | None = None
        self.next_free_block: Block | None = None
        self.is_null = False


class FreeQueue:
    def __init__(self, blocks: "list[Block]") -> None:
        self.fake_free_list_head, self.fake_free_list_tail = Block(-1), Block(-1)
        self.num_free_blocks = len(blocks)
        chain = [self.fake_free_list_head, *blocks, self.fake_free_list_tail]
        for one, other in pairwise(chain):
            one.next_free_block, other.prev_free_block = other, one

    def remove(self, block: Block) -> None:
        block.prev_free_block.next_free_block = block.next_free_block
        block.next_free_block.prev_free_block = block.prev_free_block
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def insert_after(self, before: Block, block: Block) -> None:
        after = before.next_free_block
        before.next_free_block, block.prev_free_block = block, before
        block.next_free_block, after.prev_free_block = after, block
        self.num_free_blocks += 1


class BlockPool:
    def __init__(self, count: int) -> None:
        self.num_gpu_blocks = count
        self.blocks = [Block(index) for index in range(count)]
        self.free_block_queue = FreeQueue(self.blocks)
        self.null_block = self.blocks[0]
        self.free_block_queue.remove(self.null_block)
        self.null_block.is_null = True
        self.by_hash: dict[bytes, Block] = {}

    def get_new_blocks(self, count: int) -> "list[Block]":
        found = []
        for _ in range(count):
            block = self.free_block_queue.fake_free_list_head.next_free_block
            self.free_block_queue.remove(block)
            if block.block_hash is not None:
                self.by_hash.pop(block.block_hash, None)
                block.block_hash = None
            block.ref_cnt = 1
            found.append(block)
        return found

    def touch(self, blocks: "list[Block]") -> None:
        for block in blocks:
            if not block.ref_cnt:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks: Iterable[Block]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.ref_cnt:
                queue = self.free_block_queue
                at = (
                    queue.fake_free_list_head if block.block_hash is None else queue.fake_free_list_tail.prev_free_block
                )
                queue.insert_after(at, block)

    def cache_full_blocks(
        self, request: Request, blocks: "list[Block]", num_cached_blocks: int, num_full_blocks: int
    ) -> None:
        for index in range(num_cached_blocks, num_full_blocks):
            digest = digest_of(request, index)
            if blocks[index].block_hash is None and digest not in self.by_hash:
                blocks[index].block_hash = digest
                self.by_hash[digest] = blocks[index]

    def reset_prefix_cache(self) -> bool:
        if self.free_block_queue.num_free_blocks != self.num_gpu_blocks - 1:
            return False
        self.by_hash.clear()
        for block in self.blocks:
            block.block_hash = None
        return True


def digest_of(request: Request, index: int) -> bytes:
    return f"{request.family:4}{index:4}".encode().ljust(32, b".")


class FullAttentionManager:
    """Named like vLLM's: the plug-in knows by it that tables only grow."""

    def __init__(self, pool: BlockPool) -> None:
        self.block_size = BLOCK
        self.block_pool = pool
        self.req_to_blocks: dict[str, list[Block]] = {}


class Coordinator:
    def __init__(self, manager: FullAttentionManager) -> None:
        self.single_type_managers = (manager,)

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int) -> int:
        held = len(self.single_type_managers[0].req_to_blocks.get(request_id, ()))
        return max(0, -(-num_tokens // BLOCK) - held)


class KVCacheManager:
    def __init__(self, blocks: int) -> None:
        self.block_pool = BlockPool(blocks)
        self.manager = FullAttentionManager(self.block_pool)
        self.coordinator = Coordinator(self.manager)

    def allocate_slots(
        self, request: Request, tokens: int, hits: "list[Block] | None" = None, *, whole: bool = False
    ) -> "list[Block] | None":
        hits = hits or []
        computed = max(request.num_computed_tokens, len(hits) * BLOCK)
        wanted = request.num_tokens if whole else computed + tokens
        needed = self.coordinator.get_num_blocks_to_allocate(request.request_id, wanted) - len(hits)
        if needed + sum(not block.ref_cnt for block in hits) > self.block_pool.free_block_queue.num_free_blocks:
            return None
        table = self.manager.req_to_blocks.setdefault(request.request_id, [])
        if hits:
            self.block_pool.touch(hits)
            table.extend(hits)
        needed = -(-(computed + tokens) // BLOCK) - len(table)
        new = self.block_pool.get_new_blocks(max(0, needed)) if needed > 0 else []
        table.extend(new)
        self.block_pool.cache_full_blocks(
            request=request, blocks=table, num_cached_blocks=0, num_full_blocks=(computed + tokens) // BLOCK
        )
        return new

    def free(self, request: Request) -> None:
        self.block_pool.free_blocks(reversed(self.manager.req_to_blocks.pop(request.request_id, [])))


class Scheduler:
    def __init__(self, blocks: int = 24, seats: int = 4, budget: int = 32, longest: int = 80) -> None:
        self.kv_cache_manager = KVCacheManager(blocks)
        self.max_num_running_reqs = seats
        self.max_num_scheduled_tokens = budget
        self.max_model_len = longest
        self.current_step = 0
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.fails: str | None = None

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self, throttle_prefills: bool = False) -> SimpleNamespace:
        self.current_step += 1
        if self.fails:
            raise RuntimeError(self.fails)
        left, scheduled, preempted = self.max_num_scheduled_tokens, {}, False
        for request in list(self.running):
            if request.status is not RequestStatus.RUNNING:
                continue
            flying = request.num_in_flight_tokens and not request.is_prefill_chunk  # its next token is on its way
            tokens = min(left, request.num_tokens + bool(flying) - request.num_computed_tokens)
            if tokens <= 0:
                continue
            while self.kv_cache_manager.allocate_slots(request, tokens) is None:
                victim = self.running.pop()
                self._preempt_request(victim)
                preempted = True
                if victim is request:
                    break
            else:
                scheduled[request.request_id] = tokens
                left -= tokens
        while self.waiting and not preempted and left > 0 and len(self.running) < self.max_num_running_reqs:
            request = self.waiting[0]
            hits = []
            for index in range((request.num_tokens - 1) // BLOCK):
                block = self.kv_cache_manager.block_pool.by_hash.get(digest_of(request, index))
                if block is None:
                    break
                hits.append(block)
            tokens = min(left, request.num_tokens - len(hits) * BLOCK)
            if self.kv_cache_manager.allocate_slots(request, tokens, hits, whole=True) is None:
                break
            self.running.append(self.waiting.popleft())
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = len(hits) * BLOCK
            scheduled[request.request_id] = tokens
            left -= tokens
        for name, tokens in scheduled.items():
            request = self.requests[name]
            request.num_computed_tokens += tokens
            request.num_in_flight_tokens += tokens
            request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens
        return SimpleNamespace(num_scheduled_tokens=scheduled, scheduled_spec_decode_tokens={})

    def _preempt_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def update_from_output(self, output: SimpleNamespace, answer: object = None) -> "dict[str, int]":
        done = {}
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests.get(name)
            if request is None:
                continue
            request.num_in_flight_tokens -= tokens
            if request.is_prefill_chunk and request.num_in_flight_tokens <= 0:
                continue
            request.num_output_tokens += 1
            done[name] = 1
            if request.num_output_tokens >= request.max_tokens:
                self.finish(request, RequestStatus.FINISHED_LENGTH_CAPPED)
        return done

    def finish(self, request: Request, status: RequestStatus) -> None:
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        request.status = status
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]

    def shutdown(self) -> None:
        pass
