"""The promises of the block pool: who holds what, what goes first, and that a kill between two stores is harmless."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inferdbg.engine.consistency import Disagreement, described, disagreements
from inferdbg.engine.hooks import EventKind, Observer, Operation
from inferdbg.engine.request import Request
from inferdbg.engine.state import BlockState, Column, PoolWord

from .scheduling import Bench, Told, columns_for, limits

SIZES = limits(num_blocks=6, token_budget=64, max_running=4)


def seated(bench: Bench, name: str, blocks: int) -> Request:
    """A running request with blocks whose tokens are computed, full and in the prefix table."""
    size = blocks * bench.limits.block_size
    (request,) = bench.add(name, [ord(name) % 40 + place for place in range(size)], max_tokens=1)
    bench.scheduler.plan(1, bench.now_ns)
    step_size = bench.limits.block_size
    for index in range(blocks):
        digest = f"{name}{index}".encode().ljust(32, b"-")
        bench.scheduler.pool.cache(bench.scheduler.pool.block_at(request, index), digest, request)
    bench.scheduler.table.computed_tokens[request.slot] = blocks * step_size
    return request


def free_list(bench: Bench) -> list[int]:
    pool = bench.scheduler.pool
    found, block = [], pool.words[PoolWord.FIRST_FREE]
    while block >= 0:
        found.append(block)
        block = pool.next_free[block]
    return found


def test_blocks_are_given_in_order_and_counted() -> None:
    bench = Bench(SIZES)
    request = seated(bench, "a", 2)
    pool = bench.scheduler.pool
    assert pool.table(request) == [0, 1]
    assert [pool.words[word] for word in (PoolWord.FREE, PoolWord.CACHED, PoolWord.USED)] == [4, 0, 2]
    assert pool.state.tolist() == [BlockState.USED] * 2 + [BlockState.FREE] * 4
    assert pool.owner.tolist() == [request.number] * 2 + [0] * 4
    bench.assert_sound()


def test_the_tail_of_a_sequence_is_evicted_before_its_head_and_empty_blocks_before_both() -> None:
    bench = Bench(SIZES)
    request = seated(bench, "a", 3)
    bench.scheduler.end(request, "stop", bench.now_ns, "stop")
    assert free_list(bench) == [3, 4, 5, 2, 1, 0]
    assert bench.scheduler.pool.words[PoolWord.CACHED] == 3
    bench.assert_sound()


def test_the_least_recently_used_content_goes_first() -> None:
    bench = Bench(SIZES)
    first, second = seated(bench, "a", 2), seated(bench, "b", 2)
    bench.scheduler.end(second, "stop", bench.now_ns, "stop")
    bench.scheduler.end(first, "stop", bench.now_ns + 1, "stop")
    assert free_list(bench) == [4, 5, 3, 2, 1, 0]


def test_an_eviction_says_whose_content_it_was_and_for_whom() -> None:
    told = Told()
    bench = Bench(SIZES, told)
    first = seated(bench, "a", 6)
    bench.scheduler.end(first, "stop", bench.now_ns, "stop")
    second = seated(bench, "b", 1)
    assert (EventKind.EVICTED, first.number, second.number, 5, 0, "") in told.events
    assert len(bench.scheduler.pool.prefix) == 6
    bench.assert_sound()


def test_a_shared_block_is_freed_by_its_last_holder() -> None:
    bench = Bench(SIZES)
    first = seated(bench, "a", 2)
    second = seated(bench, "b", 1)
    pool = bench.scheduler.pool
    pool.share(0, second, bench.now_ns)
    assert pool.refcount[0] == 2
    bench.scheduler.end(first, "stop", bench.now_ns, "stop")
    assert (pool.state[0], pool.refcount[0]) == (BlockState.USED, 1)
    bench.scheduler.end(second, "stop", bench.now_ns, "stop")
    assert (pool.state[0], pool.refcount[0]) == (BlockState.CACHED, 0)
    bench.assert_sound()


def test_a_cached_block_that_is_shared_again_leaves_the_free_list() -> None:
    bench = Bench(SIZES)
    first, second = seated(bench, "a", 2), seated(bench, "b", 1)
    bench.scheduler.end(first, "stop", bench.now_ns, "stop")
    bench.scheduler.pool.share(0, second, bench.now_ns)
    assert 0 not in free_list(bench)
    bench.assert_sound()


def test_a_copy_on_write_leaves_the_source_to_the_others() -> None:
    told = Told()
    bench = Bench(SIZES, told)
    group = bench.add("a", [1, 2, 3, 4, 5], max_tokens=4, n=2)
    bench.step()
    pool = bench.scheduler.pool
    assert pool.copy_last(group[0], bench.now_ns) == (1, 2)
    assert (pool.table(group[0]), pool.table(group[1])) == ([0, 2], [0, 1])
    assert (EventKind.COPIED, group[0].number, 1, 2, 0, "") in told.events
    bench.assert_sound()


@pytest.mark.parametrize(
    ("column", "place", "value", "what"),
    [
        ("blocks.refcount", 0, 2, "has 2 references and 1 tables that hold it"),
        ("blocks.refcount", 4, 1, "is FREE with 1 references"),
        ("blocks.state", 0, BlockState.CACHED, "is CACHED with 1 references"),
        ("blocks.state", 4, BlockState.CACHED, "is CACHED with 0 references and hash 0"),
        ("blocks.state", 4, 9, "is in an unknown state 9"),
        ("blocks.hash", 1, 1, "is in the prefix table under another hash than its own"),
        ("blocks.hash", 4, 7, "is FREE with 0 references and hash 7"),
        ("blocks.next_free", 4, -1, "is linked in one direction only"),
        ("blocks.next_free", 4, 3, "lost or a circle"),
        ("blocks.previous_free", 5, 77, "lost or a circle"),
        ("blocks.owner", 0, 0, "nobody's"),
        ("pool", PoolWord.FREE, 1, "the pool counts 1 FREE blocks"),
        ("pool", PoolWord.LAST_FREE, 4, "is linked in one direction only"),
        ("tables", 0, 1, "has a block twice in its table"),
        ("tables", 0, -5, "does not exist"),
        ("requests.row", 0, 2, "not in the slot and row"),
        ("requests.row", 0, 900, "or does not exist"),
        ("requests.blocks", 0, 1, "has computed 12 tokens and room for 4"),
        ("requests.blocks", 0, 99, "holds 99 blocks in a row for 16"),
        ("requests.computed_tokens", 0, 13, "has computed 13 tokens of 12"),
        ("requests.stage", 0, 9, "unknown stage 9"),
        ("requests.stage", 0, 1, "in stage 1"),
        ("requests.number", 0, 0, "number that is 0"),
    ],
)
def test_every_wrong_number_is_found(column: str, place: int, value: int, what: str) -> None:
    bench = Bench(SIZES)
    seated(bench, "a", 3)
    bench.columns[column][place] = value
    lines = list(described(bench.scheduler.check()))
    assert any(what in line for line in lines), lines


def test_a_reference_that_nobody_holds_is_named_with_its_owner() -> None:
    bench = Bench(SIZES)
    request = seated(bench, "a", 3)
    bench.scheduler.pool.refcount[1] += 1
    assert bench.scheduler.check() == [Disagreement(1, request.number, "has 2 references and 1 tables that hold it")]


def test_nonsense_is_reported_and_not_followed() -> None:
    columns = columns_for(SIZES)
    for column in columns.values():
        column[:] = memoryview(b"\xa5" * column.nbytes).cast("B").cast(column.format)  # type: ignore[call-overload]
    assert disagreements(columns, block_size=4, blocks_per_row=16)


class Witness(Observer):
    """Looks at the columns after every store, as a post-mortem of an engine killed there would."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.block = -1
        self.request = 0
        self.changing = False
        self.looks: dict[str, int] = {}

    def mutating(self, operation: Operation, block: int = -1, request: int = 0) -> None:
        assert not self.changing, "changes never nest"
        self.block, self.request, self.changing = block, request, True
        self.operation = operation

    def settled(self) -> None:
        assert self.changing
        self.block, self.request, self.changing = -1, 0, False

    def look(self) -> None:
        name = self.operation.name if self.changing else "between changes"
        self.looks[name] = self.looks.get(name, 0) + 1
        found = disagreements(
            self.columns,
            block_size=SIZES.block_size,
            blocks_per_row=SIZES.blocks_per_row,
            block=self.block,
            request=self.request,
        )
        assert not found, (name, self.block, self.request, found)


class WatchedColumn:
    """Calls ``look`` after every store."""

    def __init__(self, column: Column, look: Callable[[], None]) -> None:
        self._column = column
        self._look = look

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, place: int | slice) -> int | Column:
        return self._column[place]

    def __setitem__(self, place: int, value: int) -> None:
        self._column[place] = value
        self._look()

    def tolist(self) -> list[int]:
        return self._column.tolist()


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_kill_after_any_store_leaves_all_but_the_named_block_and_request_sound(prefix_caching: bool) -> None:
    sizes = limits(num_blocks=9, token_budget=12, max_running=4, prefix_caching=prefix_caching)
    witness = Witness()
    plain = columns_for(sizes)
    looking = False

    def look() -> None:
        if looking:
            witness.look()

    watched = {name: WatchedColumn(column, look) for name, column in plain.items()}
    bench = Bench(sizes, witness, watched)  # type: ignore[arg-type]
    witness.columns = plain
    looking = True
    for number in range(12):
        prompt = [*range(1, 9), number, 5, 6][: 5 + number % 7]
        bench.add(f"r{number}", prompt, max_tokens=3 + number % 11, n=1 + 2 * (number % 3 == 0))
        bench.step()
        bench.step()
        if number % 5 == 4:
            bench.abort(f"r{number}")
    bench.finish()
    told = {"ALLOCATE", "FREE", "ADMIT", "RELEASE", "TOUCH", "COPY", "between changes"}
    assert told | ({"EVICT", "CACHE"} if prefix_caching else set()) == set(witness.looks)
    assert bench.columns["counters"][9] > 0, "nobody was preempted"


def test_an_excuse_covers_only_what_it_names() -> None:
    bench = Bench(SIZES)
    request = seated(bench, "a", 3)
    bench.columns["blocks.refcount"][1] = 5

    def left(**excuse: int) -> int:
        return len(disagreements(bench.columns, block_size=4, blocks_per_row=SIZES.blocks_per_row, **excuse))

    assert (left(), left(block=1), left(block=2), left(request=request.number)) == (1, 0, 1, 1)
