"""Finds where the columns of pool and tables contradict each other: in a living engine, or in what a dead one left.

Pure: columns in, disagreements out, whatever nonsense they hold. ``block`` and ``request`` name the change that was
half done (the intent record of a black box): what concerns them is left out, all else must agree.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .state import BlockState, Column, PoolWord, Stage

FREE, CACHED, USED = int(BlockState.FREE), int(BlockState.CACHED), int(BlockState.USED)
SEATED = (Stage.PREFILL, Stage.DECODE)
UNSEATED = (Stage.EMPTY, Stage.WAITING, Stage.PREEMPTED)


class Disagreement(NamedTuple):
    """``block`` -1 and ``request`` 0 (its number): none in particular."""

    block: int
    request: int
    what: str


def disagreements(
    columns: Mapping[str, Column], *, block_size: int, blocks_per_row: int, block: int = -1, request: int = 0
) -> list[Disagreement]:
    """Everything that contradicts, apart from what concerns ``block`` and ``request``. Needs the columns ``blocks.*``,
    ``pool``, ``tables`` and ``requests.*`` (not their ids)."""
    holders, found = _read_tables(columns, block_size, blocks_per_row, request)
    found += _blocks(columns, holders, block)
    found += _free_list(columns, block)
    return found


def _read_tables(
    columns: Mapping[str, Column], block_size: int, blocks_per_row: int, excused: int
) -> tuple[dict[int, int], list[Disagreement]]:
    """How many tables hold each block, and what is wrong with the requests. An excused request's table still counts."""
    holders: dict[int, int] = {}
    found: list[Disagreement] = []
    row_of: dict[int, int] = {}
    numbers: set[int] = set()
    tables = columns["tables"]
    num_blocks = len(columns["blocks.state"])
    names = ("number", "stage", "row", "blocks", "computed_tokens", "prompt_tokens", "output_tokens")
    for number, stage, row, count, computed, prompt, output in zip(
        *(columns[f"requests.{name}"].tolist() for name in names), strict=True
    ):
        if stage == Stage.EMPTY and row < 0:
            continue
        wrong: list[str] = []
        if stage not in Stage.__members__.values():
            wrong.append(f"is in an unknown stage {stage}")
        if number == 0 or number in numbers:
            wrong.append("has a number that is 0 or another's too")
        numbers.add(number)
        if (stage in SEATED and row < 0) or (stage in UNSEATED and row >= 0):
            wrong.append(f"has row {row} in stage {stage}")
        if row < 0:
            if count and stage != Stage.FINISHED:
                wrong.append(f"holds {count} blocks without a row")
        elif row in row_of or (row + 1) * blocks_per_row > len(tables):
            wrong.append(f"has row {row}, which is another's or does not exist")
        elif not 0 <= count <= blocks_per_row:
            wrong.append(f"holds {count} blocks in a row for {blocks_per_row}")
        else:
            row_of[row] = number
            held = tables[row * blocks_per_row : row * blocks_per_row + count].tolist()
            for block in held:
                holders[block] = holders.get(block, 0) + 1
            if len(set(held)) != count or any(not 0 <= block < num_blocks for block in held):
                wrong.append("has a block twice in its table, or one that does not exist")
            if computed > count * block_size:
                wrong.append(f"has computed {computed} tokens and room for {count * block_size}")
        if computed > prompt + output:
            wrong.append(f"has computed {computed} tokens of {prompt + output}")
        if number != excused or number == 0:
            found += (Disagreement(-1, number, what) for what in wrong)
    return holders, found


def _blocks(columns: Mapping[str, Column], holders: Mapping[int, int], excused: int) -> list[Disagreement]:
    names = ("state", "refcount", "owner", "hash", "next_free", "previous_free")
    states, refcounts, owners, hashes, after, before = (columns[f"blocks.{name}"].tolist() for name in names)
    wrong: list[tuple[int, str]] = []
    held = [0] * len(states)
    for block, count in holders.items():
        if 0 <= block < len(held):
            held[block] = count
    if held != refcounts:
        for block, (count, refcount) in enumerate(zip(held, refcounts, strict=True)):
            if count != refcount:
                wrong.append((block, f"has {refcount} references and {count} tables that hold it"))
    for block, (state, refcount, hashed) in enumerate(zip(states, refcounts, hashes, strict=True)):
        if state == USED:
            if not refcount or not owners[block] or after[block] != -1 or before[block] != -1:
                wrong.append((block, f"is USED with {refcount} references, is in the free list or nobody's"))
        elif state not in (FREE, CACHED):
            wrong.append((block, f"is in an unknown state {state}"))
        elif refcount or (hashed > 0) != (state == CACHED):
            wrong.append((block, f"is {BlockState(state).name} with {refcount} references and hash {hashed}"))
    if len({*hashes, 0}) <= len(hashes) - hashes.count(0):
        first_with: dict[int, int] = {}
        for block, hashed in enumerate(hashes):
            if hashed and first_with.setdefault(hashed, block) != block:
                wrong.append((block, f"has the hash of block {first_with[hashed]}"))
    found = [Disagreement(block, owners[block], what) for block, what in wrong if block != excused]
    slack = int(excused >= 0)  # it may be counted in a state that it isn't in yet, or not any more
    for state in BlockState:
        counted = columns["pool"][state]
        there = states.count(state) - int(slack and states[excused] == state)
        if not 0 <= counted - there <= slack:
            found.append(Disagreement(-1, 0, f"the pool counts {counted} {state.name} blocks and there are {there}"))
    return found


def _free_list(columns: Mapping[str, Column], excused: int) -> list[Disagreement]:
    words, states = columns["pool"], columns["blocks.state"].tolist()
    after, before = columns["blocks.next_free"].tolist(), columns["blocks.previous_free"].tolist()
    forward, found = _walk(words[PoolWord.FIRST_FREE], after, "forward")
    backward, more = _walk(words[PoolWord.LAST_FREE], before, "backward")
    found += more
    forward = [block for block in forward if block != excused]
    backward = [block for block in backward if block != excused]
    if forward != backward[::-1]:
        found += (Disagreement(block, 0, "is linked in one direction only") for block in {*forward} ^ {*backward})
        if {*forward} == {*backward}:
            found.append(Disagreement(-1, 0, "the free list has another order forward than backward"))
    listed = set(forward)
    missing = [b for b, state in enumerate(states) if (state != USED) != (b in listed) and b != excused]
    found += (Disagreement(block, 0, "is evictable and not in the free list, or used and in it") for block in missing)
    cached = False
    for block in forward:
        if states[block] == CACHED:
            cached = True
        elif cached and states[block] == FREE:
            found.append(Disagreement(block, 0, "is free and behind a cached one in the free list"))
    return found


def _walk(start: int, links: list[int], direction: str) -> tuple[list[int], list[Disagreement]]:
    path: list[int] = []
    block = start
    while block != -1:
        if not 0 <= block < len(links) or len(path) == len(links):
            last = path[-1] if path else -1
            return path, [Disagreement(last, 0, f"links {direction} to {block}: lost or a circle")]
        path.append(block)
        block = links[block]
    return path, []


def described(found: list[Disagreement]) -> Iterator[str]:
    """A line each, for people."""
    for block, request, what in found:
        named = " of ".join([f"block {block}"] * (block >= 0) + [f"request {request}"] * (request > 0))
        yield f"{named} {what}".strip()
