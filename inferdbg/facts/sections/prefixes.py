"""Which blocks can be reused and the tree of prefixes that they form, as a server's KV events tell it."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Prefix(Struct, frozen=True, gc=False, omit_defaults=True):
    """A prefix that several continuations share: the block where they part.

    ``hash``: of that block, 16 hexadecimal digits. ``depth``: blocks up to and with it; ``tokens``: tokens in these.
    ``branches``: held blocks that follow it directly; ``ends``: longest continuations below it; ``below``: all blocks
    below it. ``stored_wall_ns``: when it was stored, by the server's clock.
    """

    hash: str
    rank: int
    medium: str | None
    group: int | None
    depth: int
    tokens: int
    branches: int
    ends: int
    below: int
    stored_wall_ns: int


class PrefixPool(Struct, frozen=True, gc=False, omit_defaults=True):
    """The blocks of one data-parallel rank, memory and KV cache group.

    ``blocks``: different ones that can be reused, whether a request holds them or not; ``copies``: further blocks of
    the same content. ``kind``: what the group caches, as the server calls it (None: it does not say). ``detached``:
    blocks whose predecessor is not held, so their depth is unknown and they can hardly be reused; with ``skips``
    blocks in between are left out on purpose (sliding windows), so depths count kept blocks only.

    ``depths``: blocks by depth, in buckets of depth 1, 2, 3-4, 5-8 and so on, without detached ones and what follows
    them. ``branchings``: blocks by how many follow them: 0, 1, 2, 3-4, 5-8 and so on.
    """

    rank: int
    medium: str | None
    group: int | None
    block_size: int
    blocks: int
    tokens: int
    copies: int = 0
    kind: str | None = None
    skips: bool = False
    first_blocks: int | None = None
    detached: int | None = None
    ends: int | None = None
    deepest: int | None = None
    depths: tuple[int, ...] = ()
    branchings: tuple[int, ...] = ()


class Prefixes(Struct, frozen=True, gc=False, omit_defaults=True):
    """``complete``: every event since the start of the server, or since all was cleared, has been heard; otherwise
    blocks are missing or already gone, ``why`` says what was not heard, and all counts of blocks are estimates.

    Totals are of events heard since we listen; ``missed_batches`` are those that were not to be had (None: nothing is
    known of what came before). ``last_..._ns``: when we heard of it, on the clock of ``origin.mono_ns``.
    ``shape_ns``: when depths, branchings and ``shared`` were worked out; of many blocks that is done less often.
    ``shared``: the prefixes whose sharing saves most tokens, best first, some of them.
    """

    origin: Origin
    complete: bool
    why: str = ""
    pools: tuple[PrefixPool, ...] = ()
    shared: tuple[Prefix, ...] = ()
    stored_blocks_total: int = 0
    removed_blocks_total: int = 0
    cleared_total: int = 0
    batches_total: int = 0
    replayed_batches_total: int = 0
    missed_batches: int | None = 0
    unreadable_total: int = 0
    last_stored_ns: int | None = None
    last_removed_ns: int | None = None
    shape_ns: int | None = None
