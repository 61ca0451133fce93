"""The blocks of one pool by their hash, each knowing what it continues: a prefix tree, kept as events come in.

A server may hold several blocks of the same content: it then says "stored" as often, and "removed" for each of them.
Hence ``copies``; the hash is gone with the last one. Six equal prompts at once make dozens of copies. (vLLM repeats
"stored" of blocks that are reused for requests that ask for it with ``kv_cache_report_mode: full``; nothing in the
event tells that from a further copy.)
"""

from collections.abc import Sequence
from heapq import nlargest
from typing import NamedTuple

from msgspec import Struct

MOST_BLOCKS = 1_000_000
"""In one pool: a hundred times what servers have. Further ones are counted and left out."""


class Block(Struct, gc=False):
    """``parent``: hash of the block it continues. The last three are worked out by ``shape``."""

    parent: int | None
    tokens: int
    stored_wall_ns: int
    copies: int = 1
    children: int = 0
    depth: int = 0  # 0: unknown
    ends: int = 0
    below: int = 0
    tokens_up_to: int = 0


class Shared(NamedTuple):
    """A block that several continue, by its hash."""

    hash: int
    block: Block

    @property
    def saved_tokens(self) -> int:
        """Tokens that need not be computed again, had each continuation been computed on its own."""
        return self.block.tokens_up_to * (self.block.ends - 1)


class Shape(NamedTuple):
    """See ``PrefixPool`` in facts/sections/prefixes.py for the buckets."""

    first_blocks: int
    detached: int
    ends: int
    deepest: int
    depths: tuple[int, ...]
    branchings: tuple[int, ...]
    shared: list[Shared]


class Tree:
    """One pool. ``block_size`` is that of the last event; ``refused``: blocks left out for want of room."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.block_size = 0
        self.tokens = 0
        self.copies = 0
        self.kind: str | None = None
        self.skips = False
        self.refused = 0

    def store(self, hashes: Sequence[int], parent: int | None, block_size: int, wall_ns: int) -> None:
        """Adds blocks, each of which continues the one before it."""
        blocks = self.blocks
        self.block_size = block_size
        for one in hashes:
            known = blocks.get(one)
            if known is not None:
                known.copies += 1
                self.copies += 1
            elif len(blocks) < MOST_BLOCKS:
                blocks[one] = Block(parent, block_size, wall_ns)
                self.tokens += block_size
            else:
                self.refused += 1
            parent = one

    def remove(self, hashes: Sequence[int]) -> int:
        """How many of them were known."""
        found = 0
        for one in hashes:
            known = self.blocks.get(one)
            if known is None:
                continue
            found += 1
            if known.copies > 1:
                known.copies -= 1
                self.copies -= 1
            else:
                del self.blocks[one]
                self.tokens -= known.tokens
        return found

    def clear(self) -> None:
        self.blocks.clear()
        self.tokens = self.copies = self.refused = 0

    def shape(self, most: int) -> Shape:
        """Works out depths and what lies below, in a few passes over all blocks, and the ``most`` best shared ones.

        Blocks in a circle, which no server makes, keep depth 0 and take part in nothing.
        """
        blocks = self.blocks
        for block in blocks.values():
            block.children = block.depth = block.ends = block.below = block.tokens_up_to = 0
        first_blocks = detached = 0
        for block in blocks.values():
            if block.parent is None:
                first_blocks += 1
            elif (parent := blocks.get(block.parent)) is None:
                detached += 1
            else:
                parent.children += 1
        branchings = _buckets([block.children for block in blocks.values()], from_zero=True)
        order = _ends_first(blocks)
        for block in reversed(order):
            parent = blocks.get(block.parent) if block.parent is not None else None
            if block.parent is None:
                block.depth, block.tokens_up_to = 1, block.tokens
            elif parent is not None and parent.depth:
                block.depth, block.tokens_up_to = parent.depth + 1, parent.tokens_up_to + block.tokens
        depths = [block.depth for block in order if block.depth]
        shared = (Shared(one, block) for one, block in blocks.items() if block.children > 1 and block.depth)
        return Shape(
            first_blocks,
            detached,
            sum(not block.children for block in order),
            max(depths, default=0),
            _buckets(depths),
            branchings,
            nlargest(most, shared, key=lambda one: (one.saved_tokens, one.hash)),
        )

    def check(self) -> None:
        """Raises AssertionError when the sums are not those of the blocks."""
        assert self.tokens == sum(block.tokens for block in self.blocks.values())
        assert self.copies == sum(block.copies - 1 for block in self.blocks.values())
        assert all(block.copies > 0 for block in self.blocks.values())


def _ends_first(blocks: dict[int, Block]) -> list[Block]:
    """Every block after all that continue it, their ``ends`` and ``below`` added up on the way."""
    waiting = {one: block.children for one, block in blocks.items() if block.children}
    order = [block for block in blocks.values() if not block.children]
    for block in order:  # it grows
        if not block.children:
            block.ends = 1
        if block.parent is None or (parent := blocks.get(block.parent)) is None:
            continue
        parent.ends += block.ends
        parent.below += 1 + block.below
        waiting[block.parent] -= 1
        if not waiting[block.parent]:
            order.append(parent)
    return order


def _buckets(values: Sequence[int], *, from_zero: bool = False) -> tuple[int, ...]:
    """How many values are (0,) 1, 2, 3-4, 5-8, ..."""
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    found: list[int] = []
    for value, count in counts.items():
        at = (value - 1).bit_length() + from_zero if value else 0
        found += [0] * (at + 1 - len(found))
        found[at] += count
    return tuple(found)
