"""Which block a pointer leads to: near ones by a table, far ones by a search, and no other ever."""

import numpy as np
import pytest

from inferdbg.probes.memory.numbering import Numbering

TOGETHER = 0x7F0000001000 + 96 * np.random.default_rng(1).permutation(5_000)
SCATTERED = 0x7F0000001000 + (1 << 14) * np.random.default_rng(2).permutation(5_000)
UNALIGNED = np.array([4096, 4100, 4112, 4097])


@pytest.mark.parametrize("addresses", [TOGETHER, SCATTERED, UNALIGNED], ids=["together", "scattered", "unaligned"])
def test_every_block_is_found_and_nothing_else(addresses: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
    blocks = Numbering(addresses.astype(np.uint64))
    assert (blocks.of(addresses.astype(np.uint64)) == np.arange(len(addresses))).all()
    known = set(addresses.tolist())
    others = [
        one for one in (*(addresses + 8), *(addresses - 16), *(addresses + 1), 0, 1 << 47) if int(one) not in known
    ]
    assert (blocks.of(np.array([*others, (1 << 64) - 1], np.uint64)) == -1).all()


def test_an_empty_pool_has_no_block() -> None:
    assert Numbering(np.zeros(0, np.uint64)).of(np.array([1, 2], np.uint64)).tolist() == [-1, -1]
