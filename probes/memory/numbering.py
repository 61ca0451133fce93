"""Which block of a pool a pointer leads to, for hundreds of thousands of pointers at once."""

import numpy as np
from numpy.typing import NDArray

from ..pymem.pages import Words

Indices = NDArray[np.int32]
_ALIGNED = 4
"""Objects of CPython begin at multiples of 16 bytes (ALIGNMENT of Objects/obmalloc.c)."""
_WIDEST = 1 << 20
"""Such places: blocks that lie together, as they do when they are made one after the other, are looked up in a table
of all of them, in a fifth of the time of a search."""


class Numbering:
    """``addresses``: of the blocks, in the order of their numbers."""

    def __init__(self, addresses: Words) -> None:
        self.addresses = addresses
        order = np.argsort(addresses, kind="stable")
        self._order = order.astype(np.int32)
        self._sorted = addresses[order]
        behind = self._sorted - self._sorted[:1]
        self._table: Indices | None = None
        if len(behind) and behind[-1] >> np.uint64(_ALIGNED) < _WIDEST and not (behind & np.uint64(15)).any():
            self._table = np.full((int(behind[-1]) >> _ALIGNED) + 2, -1, np.int32)
            self._table[(behind >> np.uint64(_ALIGNED)).view(np.int64)] = self._order

    def __len__(self) -> int:
        return len(self.addresses)

    def of(self, pointers: Words) -> Indices:
        """A number for each; -1: to none of the pool."""
        if not len(self):
            return np.full(len(pointers), -1, np.int32)
        found: Indices
        if self._table is not None:
            behind = pointers - self._sorted[0]
            at = behind >> np.uint64(_ALIGNED) | behind << np.uint64(64 - _ALIGNED)  # far off, unless aligned
            found = self._table[np.minimum(at, np.uint64(len(self._table) - 1)).view(np.int64)]
            return found
        near = np.searchsorted(self._sorted, pointers)
        near[near == len(self)] = 0
        found = np.where(self._sorted[near] == pointers, self._order[near], np.int32(-1))
        return found
