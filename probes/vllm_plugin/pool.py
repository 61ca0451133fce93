"""vLLM's pool of KV blocks as columns: a block's entry is written when vLLM changes it, and only then."""

from array import array
from collections.abc import Callable, Iterable, Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING

from inferdbg.engine.hooks import EventKind, Operation
from inferdbg.engine.state import BlockState, Column, Counter, PoolWord

from .hooking import Foreign, Hooks

if TYPE_CHECKING:
    from inferdbg.blackbox.writer import BlackBox

FREE, CACHED, USED = int(BlockState.FREE), int(BlockState.CACHED), int(BlockState.USED)
RESERVED = 3
"""As in facts/sections/kvcache.py, which is not carried along: a placeholder that nobody ever gets."""
_FREE, _CACHED, _USED = int(PoolWord.FREE), int(PoolWord.CACHED), int(PoolWord.USED)
_FIRST, _LAST = int(PoolWord.FIRST_FREE), int(PoolWord.LAST_FREE)  # plain ints: an enum member costs a hot path
_EVICTED, _EVICTED_BLOCKS = int(EventKind.EVICTED), int(Counter.EVICTED_BLOCKS)
_ALLOCATE, _TOUCH, _FREE_BLOCKS = int(Operation.ALLOCATE), int(Operation.TOUCH), int(Operation.FREE)
_HASH_BYTES = 8
_MOST_HOLDERS = 0xFFFF
_OF_CACHE_FULL_BLOCKS = ("request", "blocks", "num_cached_blocks", "num_full_blocks")  # its first parameters


class Intent:
    """The box's word on what is half done. A change of several parts keeps the name that it began with."""

    def __init__(self, words: "memoryview[int]") -> None:
        self._words = words
        self._generation = 0

    def begin(self, operation: int, block: int, request: int) -> None:
        if self._generation & 1:
            return
        words = self._words
        words[1] = operation
        words[2] = block
        words[3] = request
        self._generation += 1
        words[0] = self._generation

    def end(self) -> None:
        if self._generation & 1:
            self._generation += 1
            self._words[0] = self._generation


class Pool:
    """``pool``: a BlockPool. ``whose``: number of the request that blocks are allocated for now, 0: none.

    Block 0 is vLLM's placeholder: it is never given to anybody and counts neither as free nor as used.
    """

    def __init__(
        self,
        pool: Foreign,
        box: "BlackBox",
        intent: Intent,
        whose: Callable[[], int],
        event: Callable[[int, int, int, int], None],
    ) -> None:
        columns: Mapping[str, Column] = box.columns
        self._pool = pool
        self._queue = pool.free_block_queue
        self._intent = intent
        self._whose = whose
        self._event = event
        self._state = columns["blocks.state"]
        self._refcount = columns.get("blocks.refcount")
        self._owner = columns["blocks.owner"]
        self._hash = columns["blocks.hash"]
        self._last_used = columns["blocks.last_used"]
        self._next_free = columns["blocks.next_free"]
        self._words = columns["pool"]
        self._counters = columns["counters"]
        self._usable = len(self._state) - 1
        self._cached = 0
        self.changed = False
        """Somebody's blocks became more since this was last set to False."""
        self._neighbours: list[Foreign] = []
        self.read_all()

    def hook(self, hooks: Hooks) -> list[str]:
        """Returns the methods that this vLLM lacks."""
        pool = self._pool
        found = {
            "get_new_blocks": hooks.around(pool, "get_new_blocks", after=self._allocated),
            "touch": self._around_blocks(hooks, "touch", self._touching, self._touched),
            "free_blocks": self._around_blocks(hooks, "free_blocks", self._freeing, self._freed),
            "cache_full_blocks": hooks.around(pool, "cache_full_blocks", after=self._hashed),
            "reset_prefix_cache": hooks.around(pool, "reset_prefix_cache", after=self._reset),
        }
        hooks.around(pool, "evict_blocks", after=self._evicted)  # of connectors; older vLLM has none
        hooks.around(pool, "unpin_blocks", after=self._unpinned)
        return [f"BlockPool.{name}" for name, there in found.items() if not there]

    def count(self) -> None:
        """Stores the sums. Cheap: done at every phase of a step."""
        words, queue, cached = self._words, self._queue, self._cached
        available = queue.num_free_blocks
        words[_FREE] = available - cached
        words[_CACHED] = cached
        words[_USED] = self._usable - available
        words[_FIRST] = queue.fake_free_list_head.next_free_block.block_id  # -1: it is empty
        words[_LAST] = queue.fake_free_list_tail.prev_free_block.block_id

    def read_all(self) -> None:
        """Looks at every block: at the start, and where vLLM changes all of them."""
        self._next_free[:] = array("i", [-1]) * len(self._next_free)
        self._cached = 0
        for block in self._pool.blocks:
            self._store(block)
            if block.next_free_block is not None:
                self._next_free[block.block_id] = _number(block.next_free_block)
        self._cached = bytes(self._state).count(CACHED)
        self.count()

    def _allocated(self, blocks: list[Foreign], *_: Foreign, **__: Foreign) -> None:
        if not blocks:
            return
        number, now = self._whose(), monotonic_ns()
        self._intent.begin(_ALLOCATE, blocks[0].block_id, number)
        self.changed = True
        state, hashes, owner = self._state, self._hash, self._owner
        refcount, last_used, next_free = self._refcount, self._last_used, self._next_free
        evicted = 0
        for block in blocks:
            index = block.block_id
            if state[index] == CACHED:
                self._cached -= 1
                evicted += 1
                self._event(_EVICTED, owner[index], number, index)
            state[index] = USED
            hashes[index] = 0
            owner[index] = number
            last_used[index] = now
            next_free[index] = -1
            if refcount is not None:
                refcount[index] = 1
        if evicted:
            self._counters[_EVICTED_BLOCKS] += evicted

    def _around_blocks(
        self,
        hooks: Hooks,
        name: str,
        before: Callable[[list[Foreign]], None],
        after: Callable[[list[Foreign]], None],
    ) -> bool:
        """Of methods whose first argument are blocks: it may be an iterator, and three of us walk it."""

        def make(original: Callable[..., Foreign]) -> Callable[..., Foreign]:
            def hooked(blocks: Iterable[Foreign], *args: Foreign, **kwargs: Foreign) -> Foreign:
                blocks = list(blocks)
                try:
                    if hooks.on:
                        before(blocks)
                except Exception as error:  # noqa: BLE001  vLLM goes on, whatever it is
                    hooks.fail(error)
                result = original(blocks, *args, **kwargs)
                try:
                    if hooks.on:
                        after(blocks)
                except Exception as error:  # noqa: BLE001  vLLM goes on, whatever it is
                    hooks.fail(error)
                return result

            return hooked

        return hooks.replace(self._pool, name, make)

    def _touching(self, blocks: list[Foreign]) -> None:
        """Those before them in the free list get another successor."""
        self._neighbours = [b.prev_free_block for b in _flat(blocks) if not b.ref_cnt and not b.is_null]

    def _touched(self, blocks: list[Foreign]) -> None:
        self.changed = True
        self._change(_flat(blocks), _TOUCH)

    def _freeing(self, _: list[Foreign]) -> None:
        self._neighbours = [self._queue.fake_free_list_tail.prev_free_block]

    def _freed(self, blocks: list[Foreign]) -> None:
        self._change(blocks, _FREE_BLOCKS)

    def _unpinned(self, *_: Foreign, **__: Foreign) -> None:
        self.read_all()  # rare: a connector lets go of what it kept

    def _hashed(self, _: None, *args: Foreign, **kwargs: Foreign) -> None:
        named = dict(zip(_OF_CACHE_FULL_BLOCKS, args, strict=False), **kwargs)
        for block in named["blocks"][named["num_cached_blocks"] : named["num_full_blocks"]]:
            self._hash[block.block_id] = _digest(block.block_hash)

    def _evicted(self, _: None, block_ids: Iterable[int], *__: Foreign) -> None:
        for index in block_ids:
            self._take(self._pool.blocks[index], monotonic_ns())

    def _reset(self, done: bool, *_: Foreign, **__: Foreign) -> None:
        if done:
            self.read_all()

    def _change(self, blocks: list[Foreign], operation: int) -> None:
        if not blocks:
            return
        self._intent.begin(operation, blocks[0].block_id, self._whose())
        now = monotonic_ns()
        for block in blocks:
            self._take(block, now)
        for block in self._neighbours:
            if block is not None and block.block_id >= 0:
                self._next_free[block.block_id] = _number(block.next_free_block)
        self._neighbours = []

    def _take(self, block: Foreign, now: int) -> None:
        """One that changed, whatever it was before."""
        if block.is_null or getattr(block, "pool", None) not in (None, self._pool):
            return
        index = block.block_id
        before = self._state[index]
        self._store(block)
        self._cached += (self._state[index] == CACHED) - (before == CACHED)
        self._last_used[index] = now
        self._next_free[index] = _number(block.next_free_block)

    def _store(self, block: Foreign) -> None:
        index = block.block_id
        if block.is_null:
            self._state[index] = RESERVED
            return
        holders, digest = block.ref_cnt, _digest(block.block_hash)
        self._hash[index] = digest
        self._state[index] = USED if holders else CACHED if digest else FREE
        if self._refcount is not None:
            self._refcount[index] = min(holders, _MOST_HOLDERS)


def _flat(blocks: list[Foreign]) -> list[Foreign]:
    """Older vLLM touches the blocks of several groups at once."""
    return [b for group in blocks for b in (group if isinstance(group, (list, tuple)) else (group,))]


def _number(block: Foreign) -> int:
    """-1 at either end of the list, and for none."""
    return -1 if block is None else int(block.block_id)


def _digest(block_hash: Foreign) -> int:
    """First 8 bytes of the chained hash; 0: none. Older vLLM hashes to a number in a tuple."""
    if block_hash is None:
        return 0
    if isinstance(block_hash, bytes):
        return int.from_bytes(block_hash[:_HASH_BYTES], "little") or 1
    return hash(block_hash) & 0xFFFFFFFFFFFFFFFF or 1
