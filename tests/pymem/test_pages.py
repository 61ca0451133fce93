"""Words of many objects, whether their pages are read or they one by one."""

from collections.abc import Sequence

import numpy as np
import pytest

from inferdbg.probes.pymem.memory import Buffers, Range
from inferdbg.probes.pymem.pages import Pages

BASE, MAPPED = 0x10000, 8 << 12
"""Each word holds its own address."""
GONE = BASE + (5 << 12)
"""A page of it that cannot be read."""


class Spread:
    """Reads all of a range or nothing, as process_vm_readv does. ``asked``: bytes in all."""

    def __init__(self) -> None:
        self.asked = 0
        self._words = np.arange(BASE, BASE + MAPPED, 8, dtype=np.uint64).tobytes()

    def read_many(self, ranges: Sequence[Range], into: bytearray | None = None) -> tuple[bytearray, list[int]]:
        buffer = bytearray(sum(size for _, size in ranges)) if into is None else into
        done, missing = 0, []
        for number, (start, size) in enumerate(ranges):
            there = (
                start >= BASE and start + size <= BASE + MAPPED and not (start < GONE + 4096 and start + size > GONE)
            )
            buffer[done : done + size] = self._words[start - BASE : start - BASE + size] if there else bytes(size)
            missing += [] if there else [number]
            done += size
            self.asked += size
        return buffer, missing


def pages_of(memory: Spread, addresses: Sequence[int], size: int, before: int = 0) -> Pages:
    return Pages(memory, Buffers(), np.array(addresses, np.uint64), size, before)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [48, 600])
def test_words_are_those_behind_and_in_front_of_each_address(size: int) -> None:
    at = [BASE + 0x1FF0, BASE + 0x40, BASE + 0x3008]
    pages = pages_of(Spread(), at, size, 32)
    assert pages.whole
    for offset in (-32, 0, size - 8):
        assert pages.words(offset).tolist() == [one + offset for one in at]
    assert pages.only(np.array([False, True, True])).rows((0, 8)).tolist() == [[one, one + 8] for one in at[1:]]
    assert not pages.read_again()


def test_a_few_wide_objects_are_read_without_the_rest_of_their_pages() -> None:
    memory = Spread()
    pages_of(memory, [BASE + 0x1000, BASE + 0x3000], 784)
    assert memory.asked == 2 * 784


@pytest.mark.parametrize("size", [48, 600])
def test_what_lies_on_a_page_that_is_gone_is_zero_and_the_others_are_there(size: int) -> None:
    across, sound = GONE - 16, BASE + 0x40
    pages = pages_of(Spread(), [across, sound], size)
    assert not pages.whole
    assert pages.words(8).tolist() == [across + 8, sound + 8]
    assert pages.words(24).tolist() == [0, sound + 24]


def test_what_is_gone_when_it_is_read_again_has_changed() -> None:
    class Vanishing(Spread):
        def read_many(self, ranges: Sequence[Range], into: bytearray | None = None) -> tuple[bytearray, list[int]]:
            found, missing = super().read_many(ranges, into)
            self._words = bytes(len(self._words))
            return found, missing or ([0] if self.asked > 2 * 600 else [])

    at = [BASE + 0x40, BASE + 0x3008]
    pages = pages_of(Vanishing(), at, 600)
    assert pages.read_again()
    assert pages.differ(8).all()
    assert pages.words(8).tolist() == [one + 8 for one in at]
