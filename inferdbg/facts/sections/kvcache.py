"""The paged KV cache: one column an attribute, one entry a physical block."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin

FREE, CACHED, USED, RESERVED = 0, 1, 2, 3
"""Values of the column ``state``. CACHED: no request holds it, its content can be reused, it may be evicted. RESERVED:
nobody ever gets it (vLLM's block 0, a placeholder); it is in no count but ``num_blocks``."""


class KVCache(Struct, frozen=True, gc=False, omit_defaults=True):
    """A hundred thousand blocks cost 2 ms as columns and 60 ms as objects: hence bytes, little-endian, an item a block:

        state      u8   FREE, CACHED, USED or RESERVED
        refcount   u16  requests that hold it
        filled     u16  tokens in it, of block_size
        owner      u32  number of the request that it was last allocated for (0: nobody yet)
        hash       u64  first 8 bytes of the chained prefix hash (0: not hashed)
        last_used  u64  CLOCK_MONOTONIC ns of the last allocate, touch or free (0: never)
        next_free  i32  next block of the free list, in order of eviction (-1: last, or not in it)

    ``first_free``: head of that list, the block that goes next. Columns a source does not know are None.

    ``columns_ns``: when the columns, ``shared_blocks`` and ``first_free`` were read, together with the section
    ``requests``; of a large pool that is done less often than counting. None: at every look.
    """

    origin: Origin
    num_blocks: int
    block_size: int
    free_blocks: int | None = None
    cached_blocks: int | None = None
    used_blocks: int | None = None
    shared_blocks: int | None = None  # refcount > 1
    tokens: int | None = None  # tokens held in used blocks, a shared block counted once
    first_free: int | None = None
    state: bytes | None = None
    refcount: bytes | None = None
    filled: bytes | None = None
    owner: bytes | None = None
    hash: bytes | None = None
    last_used: bytes | None = None
    next_free: bytes | None = None
    columns_ns: int | None = None

    @property
    def columns_are_old(self) -> bool:
        """The counts were read later than the columns."""
        return self.columns_ns is not None and self.columns_ns != self.origin.mono_ns


COLUMN_TYPES: dict[str, str] = {
    "state": "B",
    "refcount": "H",
    "filled": "H",
    "owner": "I",
    "hash": "Q",
    "last_used": "Q",
    "next_free": "i",
}
"""Column name to its struct/memoryview typecode."""
