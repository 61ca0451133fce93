"""The tree of prefixes: what is held, how deep, and what is shared."""

import random

import pytest

from inferdbg.probes.kv_events import tree as trees
from inferdbg.probes.kv_events.tree import Tree


def planted() -> Tree:
    """1-2-3-4-5 and, from 2 on, 6-7 and 8."""
    tree = Tree()
    tree.store([1, 2, 3, 4, 5], None, 4, 10)
    tree.store([6, 7], 2, 4, 20)
    tree.store([8], 2, 4, 30)
    return tree


def test_depths_branches_and_what_is_shared() -> None:
    shape = planted().shape(10)
    assert (shape.first_blocks, shape.detached, shape.ends, shape.deepest) == (1, 0, 3, 5)
    assert shape.depths == (1, 1, 5, 1)  # of depth 1, 2, 3-4, 5-8
    assert shape.branchings == (3, 4, 0, 1)  # 0, 1, 2, 3-4 follow
    (shared,) = shape.shared
    assert (shared.hash, shared.block.depth, shared.block.tokens_up_to) == (2, 2, 8)
    assert (shared.block.children, shared.block.ends, shared.block.below) == (3, 3, 6)
    assert shared.saved_tokens == 16


def test_the_prefix_that_saves_most_comes_first() -> None:
    tree = planted()
    tree.store([20], None, 4, 0)
    for one in range(30, 40):
        tree.store([one], 20, 4, 0)
    assert [one.hash for one in tree.shape(10).shared] == [20, 2]
    assert [one.hash for one in tree.shape(1).shared] == [20]


def test_a_block_whose_predecessor_is_gone_has_no_depth() -> None:
    tree = planted()
    tree.remove([2])
    shape = tree.shape(10)
    assert (shape.first_blocks, shape.detached, shape.deepest) == (1, 3, 1)
    assert shape.depths == (1,)
    assert shape.shared == []
    tree.store([2], 1, 4, 40)
    assert tree.shape(10).depths == (1, 1, 5, 1)


def test_a_hash_is_gone_with_its_last_copy() -> None:
    tree = planted()
    tree.store([1, 2], None, 4, 50)
    assert (len(tree.blocks), tree.copies, tree.tokens) == (8, 2, 32)
    assert tree.remove([2]) == 1
    assert (2 in tree.blocks, tree.copies) == (True, 1)
    assert tree.remove([2]) == 1
    assert (2 in tree.blocks, tree.copies, tree.tokens) == (False, 1, 28)
    assert tree.remove([2]) == 0


def test_circles_end_and_take_part_in_nothing() -> None:
    tree = planted()
    tree.store([50, 51, 52], 52, 4, 0)
    tree.store([60], 60, 4, 0)
    tree.store([53], 51, 4, 0)
    shape = tree.shape(10)
    assert shape.depths == (1, 1, 5, 1)
    assert [one.hash for one in shape.shared] == [2]


def test_more_blocks_than_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MOST_BLOCKS", 3)
    tree = planted()
    assert (len(tree.blocks), tree.refused) == (3, 5)
    tree.check()


def test_a_deep_chain_needs_no_deep_stack() -> None:
    tree = Tree()
    tree.store(range(1, 50_001), None, 4, 0)
    assert tree.shape(1).deepest == 50_000


def test_whatever_comes_the_sums_are_those_of_the_blocks() -> None:
    chance, tree = random.Random(7), Tree()
    for _ in range(3000):
        first = chance.randrange(200)
        if chance.random() < 0.5:
            tree.store([first, first + 1], chance.choice([None, chance.randrange(200)]), chance.choice([4, 8]), 0)
        else:
            tree.remove([first])
        tree.check()
        if not chance.randrange(500):
            shape = tree.shape(5)
            assert sum(shape.branchings) == len(tree.blocks)
            tree.clear()
