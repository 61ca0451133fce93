"""Whole pages of a target's memory, each read once, from which the words of many objects are cut out.

    addresses   a0      a1              a2                    ─► pages, sorted
    raw         │ page 7 │ page 8 │ page 12 │                     one behind the other, as they were read
    place           ▲        ▲          ▲                         of each address in raw

Neighbouring pages are neighbours in ``raw`` too, so what lies ``offset`` behind an address lies so behind its place. A
few wide objects are read one by one instead, and lie one behind the other.
"""

import copy
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .memory import Buffers, Memory

Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]
_Word = TypeVar("_Word", np.uint64, np.int64)

_BITS = 12
_PAGE = 1 << _BITS
_WIDE, _FEW = 512, 1024  # bytes, of so many: read one by one
_WIDEST_SPAN = 1 << 16  # pages: up to here a table of all of them is faster than sorting


class Pages:
    """``size`` bytes from each address on, and ``before`` bytes in front of it. What cannot be read is zero.

    Offsets are multiples of 8, addresses too.
    """

    def __init__(self, memory: Memory, buffers: Buffers, addresses: Words, size: int, before: int = 0) -> None:
        self._memory = memory
        self._buffers = buffers
        self.whole = True
        """False when some page could not be read."""
        self._all = self
        self._later: Words | None = None
        self._moved = False
        if not (size >= _WIDE and len(addresses) <= _FEW and self._one_by_one(addresses, size, before)):
            self._by_pages(addresses, size, before)

    def _one_by_one(self, addresses: Words, size: int, before: int) -> bool:
        """What is wide and has pages of its own is a fraction of them. False when one cannot be read whole."""
        width = (before + size + 7) & ~7
        starts = addresses - np.uint64(before)
        self._ranges = [(start, width) for start in starts.tolist()]
        self._size = width * len(starts)
        self.raw, missing = self._memory.read_many(self._ranges, self._buffers.take(self._size))
        self._words = np.frombuffer(self.raw, np.uint64, self._size >> 3)
        self._places = (np.arange(len(starts)) * width + before) >> 3
        return not missing

    def _by_pages(self, addresses: Words, size: int, before: int) -> None:
        first = ((addresses - np.uint64(before)) >> np.uint64(_BITS)).view(np.int64)
        last = ((addresses + np.uint64(size - 1)) >> np.uint64(_BITS)).view(np.int64)
        pages, shift = _pages(first, last)
        steps = np.flatnonzero(pages[1:] - pages[:-1] != 1) + 1
        bounds = np.concatenate(([0], steps, [len(pages)])) if len(pages) else np.zeros(1, np.int64)
        starts, lengths = pages[bounds[:-1]] << _BITS, (bounds[1:] - bounds[:-1]) << _BITS
        self._ranges = list(zip(starts.tolist(), lengths.tolist(), strict=True))
        self._size = int(lengths.sum())
        self.raw = self._read()
        self._words = np.frombuffer(self.raw, np.uint64, self._size >> 3)
        self._places = (addresses.view(np.int64) + shift) >> 3

    def _read(self) -> bytearray:
        raw, missing = self._memory.read_many(self._ranges, self._buffers.take(self._size))
        if missing:  # a run of pages of which one is gone: the others one by one
            self.whole = False
            offsets = np.cumsum([0] + [size for _, size in self._ranges]).tolist()
            for number in missing:
                start, size = self._ranges[number]
                part, _ = self._memory.read_many([(start + at, min(_PAGE, size - at)) for at in range(0, size, _PAGE)])
                raw[offsets[number] : offsets[number] + size] = part
        return raw

    def words(self, offset: int) -> Words:
        """The word ``offset`` bytes behind each address."""
        found: Words = self._words[self._places + (offset >> 3)]
        return found

    def rows(self, offsets: Sequence[int] | NDArray[np.int64]) -> Words:
        """Words at several offsets behind each address: (addresses, offsets)."""
        found: Words = self._words[self._places[:, None] + (np.asarray(offsets, np.int64) >> 3)]
        return found

    def only(self, rows: Mask | NDArray[np.intp] | slice) -> "Pages":
        """The same pages for some of the addresses."""
        part = copy.copy(self)
        part._places = self._places[rows]
        part._all = self._all
        return part

    def read_again(self) -> bool:
        """Reads the same pages once more, if that was not done; False when they are the same to the last byte."""
        whole = self._all
        if whole._later is None:
            whole._later = np.frombuffer(self._read(), np.uint64, self._size >> 3)
            whole._moved = bool((whole._later != self._words).any())
        return whole._moved

    def differ(self, offset: int) -> Mask:
        """Where the word at that offset is another one since ``read_again``."""
        later = self._all._later
        if later is None:
            return np.zeros(len(self._places), np.bool_)
        places = self._places + (offset >> 3)
        found: Mask = self._words[places] != later[places]
        return found


def _pages(first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pages of both, sorted, and how far in bytes what lies on each of ``first`` is from its place in ``raw``."""
    if not len(first):
        return first, first
    low, high = int(first.min()), int(last.max())
    if high - low < _WIDEST_SPAN and (last - first).max() <= 1:
        near = first - low
        present = np.zeros(high - low + 1, dtype=np.bool_)
        present[near] = True
        present[last - low] = True
        pages = np.flatnonzero(present)
        shift = np.empty(len(present), dtype=np.int64)
        shift[pages] = (np.arange(-low, len(pages) - low) - pages) << _BITS
        return pages + low, shift[near]
    most = int((last - first).max())
    pages = distinct(np.concatenate([np.minimum(first + step, last) for step in range(most + 1)]))
    return pages, (np.searchsorted(pages, first) - first) << _BITS


def distinct(words: NDArray[_Word]) -> NDArray[_Word]:
    """Each word once, in order: np.unique, whose hash table takes ten times as long."""
    ordered = np.sort(words)
    found: NDArray[_Word] = ordered[_first_ones(ordered)]
    return found


def distinct_and_places(words: NDArray[_Word]) -> tuple[NDArray[_Word], NDArray[np.intp]]:
    """Each word once, in order, and which of them each was: a search for each would take three times as long."""
    order = np.argsort(words)
    ordered = words[order]
    first = _first_ones(ordered)
    places = np.empty(len(words), np.intp)
    places[order] = np.cumsum(first) - 1
    return ordered[first], places


def _first_ones(ordered: NDArray[_Word]) -> Mask:
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first
