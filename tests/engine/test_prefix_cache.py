"""The promises of the prefix table: the longest known prefix, whole blocks, never the whole prompt."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from inferdbg.engine.prefix_cache import PrefixCache, digest_at, word

TOKENS = st.lists(st.integers(0, 2), max_size=20).map(lambda tokens: array("q", tokens))


def digests(tokens: "array[int]", block_size: int) -> list[bytes]:
    found: list[bytes] = []
    for index in range(len(tokens) // block_size):
        digest_at(index, tokens, found, block_size)
    return found


def table(tokens: "array[int]", block_size: int) -> PrefixCache:
    """A table that knows the full blocks of ``tokens`` as blocks 0, 1, 2..."""
    cache = PrefixCache(memoryview(bytearray(8 * 20)).cast("Q"))
    for block, digest in enumerate(digests(tokens, block_size)):
        cache.enter(block, digest)
    return cache


@given(known=TOKENS, asked=TOKENS, block_size=st.integers(1, 4))
def test_a_match_is_the_longest_common_prefix_in_whole_blocks(
    known: "array[int]", asked: "array[int]", block_size: int
) -> None:
    common = 0
    while common < min(len(known), len(asked)) and known[common] == asked[common]:
        common += 1
    expected = min(common, max(len(asked) - 1, 0)) // block_size
    assert table(known, block_size).match(asked, [], block_size) == list(range(expected))


@given(first=TOKENS, second=TOKENS, block_size=st.integers(1, 4))
def test_digests_are_equal_exactly_when_all_tokens_so_far_are(
    first: "array[int]", second: "array[int]", block_size: int
) -> None:
    for index, (one, other) in enumerate(zip(digests(first, block_size), digests(second, block_size), strict=False)):
        end = (index + 1) * block_size
        assert (one == other) == (first[:end] == second[:end])


def test_an_evicted_head_hides_the_blocks_behind_it() -> None:
    tokens = array("q", range(12))
    cache = table(tokens, 4)
    cache.remove(0)
    assert cache.match(tokens, [], 4) == []
    cache.enter(7, digest_at(0, tokens, [], 4))
    assert cache.match(tokens, [], 4) == [7, 1]


def test_the_column_holds_the_first_bytes_of_the_digest() -> None:
    column = memoryview(bytearray(32)).cast("Q")
    cache = PrefixCache(column)
    cache.enter(2, bytes(range(32)))
    assert column.tolist() == [0, 0, 0x0706050403020100, 0]
    cache.remove(2)
    assert column.tolist() == [0, 0, 0, 0]
    assert len(cache) == 0


def test_no_digest_looks_like_not_hashed() -> None:
    assert word(bytes(32)) == 1


def test_a_column_that_differs_from_the_table_is_found() -> None:
    column = memoryview(bytearray(32)).cast("Q")
    cache = PrefixCache(column)
    cache.enter(2, bytes(range(32)))
    assert list(cache.disagreements()) == []
    column[2] = 5
    column[3] = 6
    assert [block for block, _ in cache.disagreements()] == [2, 3]
