"""Finds blocks whose content a new prompt can reuse: a table from chained hashes to blocks.

    block 0            block 1                    block 2
    [16 tokens]        [16 tokens]                [7 of 16]
    d0 = H(root, t0)   d1 = H(d0, t1)             no hash: not full

A digest stands for its block and everything before it: sha256(parent digest + the block's token ids as little-endian
int64). Two prompts share a block exactly when they agree on all tokens up to its end.
"""

from array import array
from collections.abc import Iterator
from hashlib import sha256

from .state import Column

ROOT = b"inferdbg prefix"


class PrefixCache:
    """``hashes``: the column ``blocks.hash``, where a block in the table has the first 8 bytes of its digest (never 0).
    The whole digest decides, so that nobody can make two prompts share a block by a collision of 8 bytes."""

    def __init__(self, hashes: Column) -> None:
        self._hashes = hashes
        self._block_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._block_of

    def match(self, tokens: "array[int]", digests: list[bytes], block_size: int) -> list[int]:
        """The blocks that hold the longest known prefix of ``tokens``. Never all of them: the last token must be
        computed, or there would be no logits. Appends to ``digests``, those of the tokens' first blocks."""
        found: list[int] = []
        for index in range((len(tokens) - 1) // block_size):
            block = self._block_of.get(digest_at(index, tokens, digests, block_size))
            if block is None:
                break
            found.append(block)
        return found

    def enter(self, block: int, digest: bytes) -> None:
        """One store. The digest must not be in the table."""
        self._block_of[digest] = block
        self._digest_of[block] = digest
        self._hashes[block] = word(digest)

    def remove(self, block: int) -> None:
        """One store. The block must be in the table."""
        del self._block_of[self._digest_of.pop(block)]
        self._hashes[block] = 0

    def disagreements(self) -> Iterator[tuple[int, str]]:
        """Blocks where the table and the column differ."""
        for block, digest in self._digest_of.items():
            if self._hashes[block] != word(digest):
                yield block, "is in the prefix table under another hash than its own"
            elif self._block_of.get(digest) != block:
                yield block, "is in the prefix table for another block's digest"
        hashes = self._hashes.tolist()
        if len(hashes) - hashes.count(0) != len(self._digest_of):
            for block, value in enumerate(hashes):
                if value and block not in self._digest_of:
                    yield block, "has a hash and is not in the prefix table"
        if len(self._block_of) != len(self._digest_of):
            yield -1, f"{len(self._block_of)} digests in the prefix table for {len(self._digest_of)} blocks"


def digest_at(index: int, tokens: "array[int]", digests: list[bytes], block_size: int) -> bytes:
    """Digest of the full block ``index``; ``digests`` keeps those of the blocks before it, and this one."""
    while len(digests) <= index:
        start = len(digests) * block_size
        parent = digests[-1] if digests else ROOT
        digests.append(sha256(parent + tokens[start : start + block_size].tobytes()).digest())
    return digests[index]


def word(digest: bytes) -> int:
    """The first 8 bytes as a number; 1 in place of 0, which means not hashed."""
    return int.from_bytes(digest[:8], "little") or 1
