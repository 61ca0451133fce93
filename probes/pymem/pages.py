"""Whole pages of a target's memory, each read once, from which the words of many objects are cut out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .memory import Memory

Words = NDArray[np.uint64]

_PAGE_BITS = 12
_WIDEST_SPAN = 1 << 22  # pages: up to here a table of all of them is faster than sorting


class Pages:
    """The pages on which ``size`` bytes from each address on lie, as they were when it was made."""

    def __init__(self, memory: Memory, addresses: Words, size: int) -> None:
        first = addresses >> np.uint64(_PAGE_BITS)
        last = (addresses + np.uint64(size - 1)) >> np.uint64(_PAGE_BITS)
        self._table: NDArray[np.int32] | None = None
        self._low = 0
        if not len(addresses):
            self._pages = first
        elif int(last.max()) - (low := int(first.min())) < _WIDEST_SPAN:
            self._low = low
            present = np.zeros(int(last.max()) - low + 1, dtype=np.bool_)
            present[(first - np.uint64(low)).view(np.int64)] = True
            present[(last - np.uint64(low)).view(np.int64)] = True
            places = np.flatnonzero(present)
            self._table = np.zeros(len(present), dtype=np.int32)
            self._table[places] = np.arange(len(places), dtype=np.int32)
            self._pages = places.astype(np.uint64) + np.uint64(low)
        else:
            self._pages = np.unique(np.concatenate((first, last)))
        starts = np.flatnonzero(np.diff(self._pages, prepend=np.uint64(0)) != 1) if len(addresses) else first[:0]
        if len(starts) and starts[0] != 0:
            starts = np.concatenate(([0], starts))
        lengths = np.diff(starts, append=len(self._pages)) << _PAGE_BITS
        begin = self._pages[starts.astype(np.intp)] << np.uint64(_PAGE_BITS)
        ranges = list(zip(begin.tolist(), lengths.tolist(), strict=True))
        self.raw, missing = memory.read_many(ranges)
        if missing:
            self._salvage(memory, ranges, missing)
        self._words: Words = np.frombuffer(self.raw, dtype=np.uint64)

    def _salvage(self, memory: Memory, ranges: Sequence[tuple[int, int]], missing: Sequence[int]) -> None:
        """A run of pages of which one is gone: the others one by one. A page that is not there stays zero."""
        offsets = np.cumsum([0] + [size for _, size in ranges]).tolist()
        for number in missing:
            start, size = ranges[number]
            pages = [(start + at, 1 << _PAGE_BITS) for at in range(0, size, 1 << _PAGE_BITS)]
            part, _ = memory.read_many(pages)
            self.raw[offsets[number] : offsets[number] + size] = part

    def at(self, addresses: Words) -> NDArray[np.int64]:
        """Where in ``raw`` an address lies."""
        pages = addresses >> np.uint64(_PAGE_BITS)
        if self._table is not None:
            index = self._table[(pages - np.uint64(self._low)).view(np.int64)].astype(np.int64)
        else:
            index = np.searchsorted(self._pages, pages)
        inside = (addresses & np.uint64((1 << _PAGE_BITS) - 1)).view(np.int64)
        return (index << _PAGE_BITS) + inside

    def words(self, addresses: Words) -> Words:
        found: Words = self._words[self.at(addresses) >> 3]
        return found
