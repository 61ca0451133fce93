"""From the columns over the block pool to the section ``kvcache``, without a Python loop over blocks."""

import struct
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from inferdbg.engine.state import PoolWord
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import CACHED, FREE, USED, KVCache

from .engine_columns import Columns, items

_BLOCK = struct.Struct("=i")
_IS_MORE_THAN_ONE = bytes([0, 0] + [1] * 254)
_IS_NOT_ZERO = bytes([0] + [1] * 255)


Table = tuple[bytes, int]
"""A request's block table (int32) and how many of its tokens are in the cache."""


def kvcache(columns: Columns, block_size: int | None, tables: Iterable[Table], origin: Origin) -> KVCache | None:
    """None without a pool, or before its block size is known. ``filled`` follows from states and tables."""
    state = columns.get("blocks.state")
    if not state or not block_size or not 0 < block_size < 1 << 16:
        return None
    pool = items(columns, "pool", "q")
    if len(pool) < len(PoolWord):
        pool = [state.count(FREE), state.count(CACHED), state.count(USED), -1, -1]
    refcount = columns.get("blocks.refcount")
    unfilled = unfilled_blocks(state, columns.get("blocks.hash"), block_size, tables)
    first_free = pool[PoolWord.FIRST_FREE]
    return KVCache(
        origin=origin,
        num_blocks=len(state),
        block_size=block_size,
        free_blocks=pool[PoolWord.FREE],
        cached_blocks=pool[PoolWord.CACHED],
        used_blocks=pool[PoolWord.USED],
        shared_blocks=more_than_one(refcount) if refcount is not None else None,
        tokens=pool[PoolWord.USED] * block_size - sum(block_size - tokens for tokens in unfilled.values()),
        first_free=first_free if first_free >= 0 else None,
        state=state,
        refcount=refcount,
        filled=filled_column(state, unfilled, block_size),
        owner=columns.get("blocks.owner"),
        hash=columns.get("blocks.hash"),
        last_used=columns.get("blocks.last_used"),
        next_free=columns.get("blocks.next_free"),
    )


def counted_again(cache: KVCache, columns: Columns, origin: Origin) -> KVCache:
    """The pool as its counts are now, over block columns of before. As much of the used blocks is taken to be unfilled
    as was then."""
    pool = items(columns, "pool", "q")
    if len(pool) < len(PoolWord):
        return cache
    used = pool[PoolWord.USED]
    unfilled = (cache.used_blocks or 0) * cache.block_size - (cache.tokens or 0)
    return replace(
        cache,
        origin=origin,
        free_blocks=pool[PoolWord.FREE],
        cached_blocks=pool[PoolWord.CACHED],
        used_blocks=used,
        shared_blocks=min(cache.shared_blocks, used) if cache.shared_blocks is not None else None,
        tokens=max(0, used * cache.block_size - unfilled),
    )


def unfilled_blocks(state: bytes, hashes: bytes | None, block_size: int, tables: Iterable[Table]) -> dict[int, int]:
    """Tokens in the used blocks that are not full: the ends of the tables. Blocks with a hash are full."""
    found: dict[int, int] = {}
    hashed = memoryview(hashes).cast("Q") if hashes is not None else None
    for blocks, computed in tables:
        full, tokens = divmod(computed, block_size)
        if 4 * full >= len(blocks):
            continue
        for (block,) in _BLOCK.iter_unpack(blocks[4 * full :]):
            if 0 <= block < len(state) and state[block] == USED and not (hashed is not None and hashed[block]):
                found[block] = max(tokens, found.get(block, 0))
            tokens = 0
    return found


def filled_column(state: bytes, unfilled: Mapping[int, int], block_size: int) -> bytes:
    """u16 tokens a block: none where it is free, all where it is cached or used and not in ``unfilled``. A block that
    is used and in no table (leaked) counts as full."""
    column = bytearray(2 * len(state))
    column[0::2] = state.translate(_when_not_free(block_size & 0xFF))
    if block_size > 0xFF:
        column[1::2] = state.translate(_when_not_free(block_size >> 8))
    for block, tokens in unfilled.items():
        column[2 * block : 2 * block + 2] = tokens.to_bytes(2, "little")
    return bytes(column)


def _when_not_free(value: int) -> bytes:
    table = bytearray(256)
    table[CACHED] = table[USED] = value
    return bytes(table)


def more_than_one(refcount: bytes) -> int:
    """How many of these u16 are above 1; takes the same time however many there are."""
    low, high = refcount[0::2], refcount[1::2]
    if high == bytes(len(high)):
        return len(low.translate(None, b"\0\1"))
    above = int.from_bytes(low.translate(_IS_MORE_THAN_ONE), "little")
    return (above | int.from_bytes(high.translate(_IS_NOT_ZERO), "little")).bit_count()  # a bit a block
