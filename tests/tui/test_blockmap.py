"""The map against the plain definition of what it shows."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import CACHED, FREE, RESERVED, USED, KVCache
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND
from inferdbg.tui.drawing.blockmap import block_codes, fitting_zoom, holders, lit_cells, ordering, row_line, squeezed
from inferdbg.tui.drawing.blocks import eviction
from inferdbg.tui.drawing.mapgrid import MapGrid
from inferdbg.tui.ink import plain, width_of

NOW = 100 * SECOND


def cache(states: list[int], refs: list[int], owners: list[int], used_ago: list[int]) -> KVCache:
    return KVCache(
        Origin("test", NOW),
        num_blocks=len(states),
        block_size=16,
        state=bytes(states),
        refcount=array("H", refs).tobytes(),
        owner=array("I", owners).tobytes(),
        last_used=array("Q", [NOW - ago * SECOND for ago in used_ago]).tobytes(),
    )


def test_each_kind_has_its_glyph() -> None:
    seen = cache([FREE, CACHED, USED, USED, USED, USED], [0, 0, 1, 2, 1, 2], [0, 1, 2, 3, 4, 5], [9, 9, 9, 9, 0, 0])
    assert plain(row_line(block_codes(seen, NOW, colours=True), None, None)) == "░▒█▓◆◈"
    placeholder = cache([RESERVED, FREE], [0, 0], [0, 0], [9, 9])
    codes = block_codes(placeholder, NOW, colours=True)
    assert plain(row_line(codes, None, None)) == "·░"
    assert plain(row_line(squeezed(codes, 2), None, None)) == "░"


def test_unknown_columns_leave_the_rest() -> None:
    seen = KVCache(Origin("test", NOW), 3, 16, state=bytes([FREE, CACHED, USED]))
    assert plain(row_line(block_codes(seen, NOW, colours=True), None, None)) == "░▒█"


@given(st.lists(st.integers(0, 112), min_size=1, max_size=200), st.sampled_from([1, 2, 4, 8, 16]))
def test_a_cell_shows_the_largest_of_its_blocks(codes: list[int], zoom: int) -> None:
    expected = [max(codes[at : at + zoom]) for at in range(0, len(codes), zoom)]
    assert squeezed(np.array(codes, np.uint8), zoom).tolist() == expected


@given(st.integers(1, 300_000), st.integers(1, 5_000))
def test_the_fitting_zoom_is_the_smallest_that_fits(blocks: int, cells: int) -> None:
    zoom = fitting_zoom(blocks, cells)
    assert -(-blocks // zoom) <= cells
    assert zoom == 1 or -(-blocks // (zoom // 2)) > cells


@given(st.permutations(range(24)), st.integers(1, 20), st.sampled_from([1, 2, 4]))
def test_lit_cells_hold_the_first_place_of_the_table(blocks: list[int], length: int, zoom: int) -> None:
    table = blocks[:length]
    found = lit_cells(memoryview(array("i", table)), None, zoom, 24 // zoom).tolist()
    for cell, place in enumerate(found):
        places = [at for at, block in enumerate(table) if block // zoom == cell]
        assert place == min(places, default=-1)


@pytest.mark.parametrize("order", ["owner", "age"])
def test_an_order_is_a_permutation_that_keeps_kin_together(order: str) -> None:
    seen = cache([USED, FREE, USED, CACHED, USED], [1, 0, 1, 0, 1], [7, 0, 3, 9, 7], [5, 90, 1, 2, 3])
    found = ordering(seen, order, NOW)  # type: ignore[arg-type]
    assert found is not None
    assert found.tolist() == ([2, 0, 4, 3, 1] if order == "owner" else [2, 3, 4, 0, 1])


def test_holders_are_all_tables_with_the_block() -> None:
    tables = [array("i", table).tobytes() for table in ([], [5, 6], [9], [7, 8, 6])]
    assert holders(tables, 6) == [(1, 1), (3, 2)]
    assert holders(tables, 1) == []
    assert holders([], 1) == []


def test_the_place_in_the_order_of_eviction() -> None:
    seen = KVCache(
        Origin("test", NOW),
        4,
        16,
        first_free=2,
        state=bytes([FREE, USED, CACHED, FREE]),
        next_free=array("i", [-1, -1, 0, -1]).tobytes(),
    )
    said = [eviction(seen, block) for block in range(4)]
    assert said == ["after 1 other", "not while someone holds it", "it is the next", "not in the free list"]


def test_a_small_pool_has_a_large_cell_for_every_block_where_a_click_finds_it() -> None:
    for blocks, width, height in ((160, 120, 27), (160, 80, 10), (700, 120, 27), (2000, 120, 27)):
        seen = cache([USED] * blocks, [1] * blocks, [1] * blocks, [90] * blocks)
        grid = MapGrid()
        grid.lay_out(
            Snapshot(1, NOW, NOW, Target("process", "x", 1), kvcache=seen), seen, width, height, None, "physical"
        )
        lines = grid.lines(0, None, None)
        assert grid.zoom == 1
        assert grid.height <= height
        assert max(width_of(found) for found in lines) <= width
        found = [
            grid.cell_under(grid.gutter + column * (grid.size.width + grid.size.gap), row * grid.size.height, 0)
            for row in range(grid.total_rows)
            for column in range(grid.columns)
        ]
        assert [cell for cell in found if cell is not None] == list(range(blocks))
        assert sum(plain(found).count("█") for found in lines) == blocks * grid.size.width


def test_a_pool_of_a_screenful_is_drawn_larger_than_a_large_one() -> None:
    sizes = []
    for blocks in (100, 160, 700, 2000, 100_000):
        seen = KVCache(Origin("test", NOW), blocks, 16, state=bytes(blocks))
        grid = MapGrid()
        grid.lay_out(Snapshot(1, NOW, NOW, Target("process", "x", 1), kvcache=seen), seen, 120, 27, None, "physical")
        sizes.append(grid.size.width * grid.size.height)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1] == 1
