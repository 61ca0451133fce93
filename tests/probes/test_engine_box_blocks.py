"""Sums over the block columns are what a plain loop over blocks gives."""

import struct
from array import array

from hypothesis import given
from hypothesis import strategies as st

from inferdbg.probes.engine_blocks import filled_column, more_than_one, unfilled_blocks

STATES = st.binary(min_size=1, max_size=50).map(lambda raw: bytes(byte % 3 for byte in raw))


@given(st.lists(st.one_of(st.integers(0, 3), st.sampled_from([255, 256, 257, 511, 512, 65535]))))
def test_shared_blocks_are_those_with_more_than_one_holder(counts: list[int]) -> None:
    assert more_than_one(array("H", counts).tobytes()) == sum(count > 1 for count in counts)


@given(state=STATES, block_size=st.sampled_from([1, 16, 255, 256, 300, 65535]))
def test_blocks_are_full_where_nothing_else_is_known(state: bytes, block_size: int) -> None:
    filled = memoryview(filled_column(state, {0: 1}, block_size)).cast("H").tolist()
    assert filled == [1, *((0, block_size, block_size)[code] for code in state[1:])]


def test_the_end_of_a_table_holds_what_is_left() -> None:
    state = bytes([2] * 6)
    table = (struct.pack("=5i", 4, 1, 3, 0, 2), 37)
    assert unfilled_blocks(state, None, 16, [table]) == {3: 5, 0: 0, 2: 0}


def test_a_shared_end_holds_what_the_longest_has_computed() -> None:
    short, long = (struct.pack("=i", 0), 3), (struct.pack("=i", 0), 9)
    assert unfilled_blocks(b"\2", None, 16, [long, short]) == {0: 9}


def test_a_block_with_a_hash_is_full_whatever_a_table_says() -> None:
    table = (struct.pack("=2i", 0, 1), 0)
    assert unfilled_blocks(b"\2\2", struct.pack("=2Q", 77, 0), 16, [table]) == {1: 0}


def test_blocks_that_do_not_exist_or_are_not_used_are_left_out() -> None:
    table = (struct.pack("=4i", -1, 0, 1, 99), 0)
    assert unfilled_blocks(b"\0\1", None, 16, [table]) == {}
