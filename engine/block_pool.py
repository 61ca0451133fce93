"""Gives physical blocks to requests and takes them back; what nobody holds stays reusable until it is evicted.

    FREE ───allocate───► USED ───last holder drops it───► CACHED (in the prefix table) or FREE (not in it)
      ▲                    ▲                                 │
      └──────evict─────────┼────────────share────────────────┤
                           └─────────────────────────────────┘

    free list, through blocks.next_free and previous_free, in order of eviction:

    FIRST_FREE ─► [free] ⇄ [free] ⇄ [cached, tail of the oldest] ⇄ ... ⇄ [cached, just freed] ◄─ LAST_FREE

FREE blocks go first: nothing is lost with them. A request gives its blocks back last one first, so that the tail of a
sequence, which fewer prompts share than its head, is evicted first.

A kill may come between any two stores. Each operation therefore is about one block and one request, named to
Observer.mutating before; the stores are in such an order that everything else agrees at every moment: a walk through
the list from either end meets all other blocks, and a table counts an entry only once it is there.
"""

from array import array
from collections.abc import Mapping

from .hooks import EventKind, Observer, Operation
from .prefix_cache import PrefixCache
from .request import Request
from .state import BlockState, Column, Counter, PoolWord

FREE, CACHED, USED = int(BlockState.FREE), int(BlockState.CACHED), int(BlockState.USED)
FIRST, LAST = int(PoolWord.FIRST_FREE), int(PoolWord.LAST_FREE)  # plain ints: an enum member costs a hot loop


class BlockPool:
    """The columns ``blocks.*``, ``pool``, ``tables`` and ``requests.blocks`` change here and nowhere else."""

    def __init__(
        self, columns: Mapping[str, Column], *, blocks_per_row: int, observer: Observer, prefix: PrefixCache
    ) -> None:
        self.state = columns["blocks.state"]
        self.refcount = columns["blocks.refcount"]
        self.owner = columns["blocks.owner"]
        self.hash = columns["blocks.hash"]
        self.last_used = columns["blocks.last_used"]
        self.next_free = columns["blocks.next_free"]
        self.previous_free = columns["blocks.previous_free"]
        self.words = columns["pool"]
        self.tables = columns["tables"]
        self.held = columns["requests.blocks"]
        self.counters = columns["counters"]
        self.blocks_per_row = blocks_per_row
        self.prefix = prefix
        self._observer = observer
        count = len(self.state)
        self.next_free[:] = array("i", [*range(1, count), -1])
        self.previous_free[:] = array("i", range(-1, count - 1))
        self.words[:] = array("q", [count, 0, 0, 0, count - 1])

    @property
    def available(self) -> int:
        """Blocks that can be had: free or evictable."""
        return self.words[FREE] + self.words[CACHED]

    def block_at(self, request: Request, index: int) -> int:
        """Entry ``index`` of the request's table."""
        return self.tables[request.row * self.blocks_per_row + index]

    def table(self, request: Request) -> list[int]:
        """The blocks that it holds, in the order of its tokens."""
        if request.row < 0:
            return []
        start = request.row * self.blocks_per_row
        return self.tables[start : start + self.held[request.slot]].tolist()

    def allocate(self, request: Request, now_ns: int, operation: Operation = Operation.ALLOCATE) -> int:
        """Puts the block that goes next at the end of the request's table; evicts what was cached in it. The caller
        has looked at ``available``."""
        block = self.words[FIRST]
        if self.state[block] == CACHED:
            self._evict(block, request.number)
        self._observer.mutating(operation, block, request.number)
        self._unlink(block)
        self.owner[block] = request.number
        self.refcount[block] = 1
        self.state[block] = USED
        self.words[FREE] -= 1
        self.words[USED] += 1
        self.last_used[block] = now_ns
        self._append_to_table(request, block)
        self._observer.settled()
        return block

    def share(self, block: int, request: Request, now_ns: int) -> None:
        """Puts a block that others hold, or that is cached, at the end of the request's table."""
        self._observer.mutating(Operation.TOUCH, block, request.number)
        if self.state[block] == CACHED:
            self._unlink(block)
            self.state[block] = USED
            self.words[CACHED] -= 1
            self.words[USED] += 1
        self.refcount[block] += 1
        self.last_used[block] = now_ns
        self._append_to_table(request, block)
        self._observer.settled()

    def drop_last(self, request: Request, now_ns: int) -> None:
        """Takes the last block from the request's table; nobody else's: it becomes evictable."""
        count = self.held[request.slot] - 1
        block = self.tables[request.row * self.blocks_per_row + count]
        self._observer.mutating(Operation.FREE, block, request.number)
        self.held[request.slot] = count
        left = self.refcount[block] - 1
        self.refcount[block] = left
        if left == 0:
            hashed = self.hash[block] != 0
            kept = CACHED if hashed else FREE
            self.state[block] = kept
            self.words[USED] -= 1
            self.words[kept] += 1
            self.last_used[block] = now_ns
            if hashed:
                self._append(block)
            else:
                self._prepend(block)
        self._observer.settled()

    def drop_all(self, request: Request, now_ns: int) -> None:
        for _ in range(self.held[request.slot]):
            self.drop_last(request, now_ns)

    def copy_last(self, request: Request, now_ns: int) -> tuple[int, int]:
        """Copy on write: puts a block of its own in place of the last one, which others hold too. Returns (source,
        target) for the backend; the source keeps its content until the copies of this step are done."""
        source = self.block_at(request, self.held[request.slot] - 1)
        self.drop_last(request, now_ns)
        target = self.allocate(request, now_ns, Operation.COPY)
        self.counters[Counter.COPIED_BLOCKS] += 1
        self._observer.event(EventKind.COPIED, request=request.number, other=source, block=target)
        return source, target

    def cache(self, block: int, digest: bytes, request: Request) -> None:
        """Enters a full block into the prefix table, unless its content is there already, in another block."""
        if digest in self.prefix:
            return
        self._observer.mutating(Operation.CACHE, block, request.number)
        self.prefix.enter(block, digest)
        self._observer.settled()

    def distrust(self, request: Request) -> None:
        """Takes the request's blocks out of the prefix table: what was computed for it is wrong."""
        for block in self.table(request):
            if self.hash[block]:
                self._observer.mutating(Operation.CACHE, block, request.number)
                self.prefix.remove(block)
                self._observer.settled()

    def _evict(self, block: int, number: int) -> None:
        self._observer.mutating(Operation.EVICT, block, number)
        self.prefix.remove(block)
        self.state[block] = FREE
        self.words[CACHED] -= 1
        self.words[FREE] += 1
        self._observer.settled()
        self.counters[Counter.EVICTED_BLOCKS] += 1
        self._observer.event(EventKind.EVICTED, request=self.owner[block], other=number, block=block)

    def _append_to_table(self, request: Request, block: int) -> None:
        count = self.held[request.slot]
        self.tables[request.row * self.blocks_per_row + count] = block
        self.held[request.slot] = count + 1

    def _unlink(self, block: int) -> None:
        after = self.next_free[block]
        before = self.previous_free[block]
        if before >= 0:
            self.next_free[before] = after
        else:
            self.words[FIRST] = after
        if after >= 0:
            self.previous_free[after] = before
        else:
            self.words[LAST] = before
        self.next_free[block] = -1
        self.previous_free[block] = -1

    def _append(self, block: int) -> None:
        last = self.words[LAST]
        self.previous_free[block] = last
        if last >= 0:
            self.next_free[last] = block
        else:
            self.words[FIRST] = block
        self.words[LAST] = block

    def _prepend(self, block: int) -> None:
        first = self.words[FIRST]
        self.next_free[block] = first
        if first >= 0:
            self.previous_free[first] = block
        else:
            self.words[LAST] = block
        self.words[FIRST] = block
