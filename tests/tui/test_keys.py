"""The keyboard, as a person uses it: pause, scrub, find, select, jump, help."""

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from inferdbg.errors import InferdbgError
from inferdbg.tui.app import App, Tabs
from inferdbg.tui.views import VIEWS
from inferdbg.tui.views.batch import Batch
from inferdbg.tui.views.kvmap import KVMap
from inferdbg.tui.views.requests import Requests
from tests.support import scenes
from tests.tui.looking import awaited, drawn, edge_text, opened, pressed_keys, screen_text, until

PRESSED = scenes.pressed(12)
NOW = PRESSED[-1]
assert NOW.requests is not None
assert NOW.kvcache is not None
HOLDERS = [request for request in NOW.requests.items if request.blocks]


def kvmap(app: App) -> KVMap:
    assert isinstance(app.view, KVMap)
    return app.view


@awaited
async def test_space_pauses_a_live_target_and_space_follows_it_again() -> None:
    app = opened(PRESSED, live=True, seen=3)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda app: drawn(app) and "▶ live" in edge_text(app, "header"))
        await pilot.press("space")
        await until(pilot, lambda app: "❚❚ paused" in edge_text(app, "header"))
        await pilot.press("space")
        await until(pilot, lambda app: "▶ live" in edge_text(app, "header"))


@awaited
async def test_arrows_scrub_and_end_returns() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pilot.press("left")
        await until(pilot, lambda app: app.frame is not None and app.frame.behind_ns >= 10**9)
        await pilot.press("home")
        await until(pilot, lambda app: app.frame is not None and app.frame.window.now is PRESSED[0])
        assert "◀ at" in edge_text(app, "header")
        await pilot.press("end")
        await until(pilot, lambda app: app.frame is not None and app.frame.window.now is NOW)


@awaited
async def test_brackets_step_by_one_snapshot() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda app: app.frame is not None and app.frame.window.now is PRESSED[-2])
        await pilot.press("right_square_bracket")
        await until(pilot, lambda app: app.frame is not None and app.frame.window.now is NOW)


@pytest.mark.parametrize(("key", "view"), [(str(i + 1), view) for i, view in enumerate(VIEWS)])
@awaited
async def test_digits_change_the_view(key: str, view: type) -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pilot.press("5", key)
        await until(pilot, lambda app: type(app.view) is view and drawn(app))
        assert screen_text(app).strip()


@awaited
async def test_tab_goes_round_all_views() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        seen = []
        for _ in VIEWS:
            before = app.view
            await pilot.press("tab")
            await until(pilot, lambda app, before=before: app.view is not before and drawn(app))
            seen.append(type(app.view))
        assert seen == [*VIEWS[1:], VIEWS[0]]


async def typed(pilot: Pilot[None], words: str) -> None:
    await pressed_keys(pilot, "slash", *words, "enter")


@awaited
async def test_a_found_block_tells_its_owner() -> None:
    request = HOLDERS[-1]
    block = request.block_table()[request.block_count - 1]  # the last block of a table is shared with nobody
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pilot.press("2")
        await until(pilot, drawn)
        await typed(pilot, str(block))
        assert kvmap(app).selected_block == block
        owner = next(line for line in screen_text(app).splitlines() if "owner" in line)
        assert request.id in owner


@awaited
async def test_the_blocks_of_a_found_request_light_up_in_table_order() -> None:
    request = HOLDERS[0]
    app = opened(PRESSED)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, drawn)
        await pilot.press("2")
        await until(pilot, drawn)
        await typed(pilot, request.id)
        assert kvmap(app).lit_request == request.number
        lit = "".join(s.text for line in app.view.lines for s in line if s.ink in ("lit", "lit-first"))
        places = sorted(int(lit[at : at + 2]) for at in range(0, len(lit), 2))
        assert places == list(range(request.block_count))


@awaited
async def test_what_is_not_found_is_said() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pilot.press("2")
        await until(pilot, drawn)
        assert kvmap(app).find("no such thing") == "no block and no request is called no such thing"


@awaited
async def test_arrows_select_blocks_and_zoom_keeps_the_selection_in_view() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, drawn)
        await pilot.press("2")
        await until(pilot, drawn)
        await pressed_keys(pilot, "down", "right", "right", "down")
        columns = kvmap(app)._grid.columns if kvmap(app)._grid else 0
        assert kvmap(app).selected_block == 2 + columns
        await pressed_keys(pilot, "minus", "minus", "plus")
        assert kvmap(app).selected_block == 2 + columns
        assert f"block {2 + columns}" in screen_text(app)


@awaited
async def test_a_click_selects_the_block_under_it() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, drawn)
        await pilot.press("2")
        await until(pilot, drawn)
        grid = kvmap(app)._grid
        assert grid is not None
        await pilot.click(KVMap, offset=(grid.gutter + 5, kvmap(app)._grid_top + 1))
        assert kvmap(app).selected_block == grid.columns + 5


@awaited
async def test_orders_show_the_same_blocks() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, drawn)
        await pilot.press("2")
        await until(pilot, drawn)
        counts = []
        for _ in range(3):
            glyphs = "".join(s.text for line in app.view.lines for s in line if s.ink.startswith(("owner-", "shared-")))
            counts.append((kvmap(app).order, len(glyphs)))
            await pilot.press("o")
        assert [order for order, _ in counts] == ["physical", "owner", "age"]
        assert len({count for _, count in counts}) == 1


@awaited
async def test_enter_on_a_request_shows_its_blocks() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pilot.press("3")
        await until(pilot, drawn)
        await pressed_keys(pilot, "down", "down")
        assert isinstance(app.view, Requests)
        selected = app.view.selected
        await pilot.press("enter")
        await until(pilot, lambda app: isinstance(app.view, KVMap) and drawn(app))
        assert kvmap(app).lit_request == selected == HOLDERS[1].number


@awaited
async def test_requests_are_filtered_and_sorted() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, drawn)
        await pilot.press("3")
        await until(pilot, drawn)
        await typed(pilot, "waiting")
        assert isinstance(app.view, Requests)
        assert {request.stage for request in app.view._shown} == {"waiting"}
        await pressed_keys(pilot, "escape", "s", "s", "s")
        blocks = [request.block_count for request in app.view._shown]
        assert app.view.sort.title == "blocks"
        assert blocks == sorted(blocks, reverse=True)
        await pilot.press("r")
        assert [request.block_count for request in app.view._shown] == sorted(blocks)


@awaited
async def test_a_selected_step_stays_selected_and_lists_its_work() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, drawn)
        await pilot.press("4")
        await until(pilot, drawn)
        await pressed_keys(pilot, "up", "up")
        assert isinstance(app.view, Batch)
        assert NOW.steps is not None
        assert app.view.selected == NOW.steps.items[-2].step
        assert f"step {app.view.selected}" in screen_text(app)
        await typed(pilot, str(NOW.steps.items[0].step))
        assert app.view.selected == NOW.steps.items[0].step


@awaited
async def test_help_lists_every_binding_of_every_view() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(120, 120)) as pilot:
        await until(pilot, drawn)
        await pilot.press("question_mark")
        await pilot.pause()
        from inferdbg.tui.ink import plain
        from inferdbg.tui.lineview import LineView

        page = "\n".join(plain(line) for line in app.screen.query_one("#help", LineView).lines)
        for view in VIEWS:
            for binding in view.BINDINGS:
                assert not isinstance(binding, tuple)
                words = binding.tooltip
                assert words[1:] in page


def test_every_binding_has_an_id_a_description_and_a_tooltip() -> None:
    bindings = [*App.BINDINGS, *(binding for view in VIEWS for binding in view.BINDINGS)]
    ids = [binding.id for binding in bindings if not isinstance(binding, tuple)]
    assert None not in ids
    assert len(ids) == len(set(ids)) == len(bindings)
    assert all(b.description and b.tooltip for b in bindings if not isinstance(b, tuple))


class Broken(scenes.Stored):
    def advance(self) -> bool:
        raise InferdbgError("pid 58 is gone", "inferdbg top")


@awaited
async def test_a_source_that_cannot_be_read_ends_the_screen_with_its_error() -> None:
    app = App(Broken(PRESSED), lambda window: ())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(200):
            if app.failure is not None:
                break
            await pilot.pause()
    assert app.failure is not None
    assert app.failure.message == "pid 58 is gone"


@awaited
async def test_a_selected_request_that_ended_stays_in_the_panel_as_it_was_last_seen() -> None:
    assert NOW.requests is not None
    first, *others = sorted(NOW.requests.items, key=lambda request: request.number)
    moments = [
        replace(NOW, mono_ns=mono_ns, requests=replace(NOW.requests, items=tuple(items)))
        for mono_ns, items in ((1_000, others), (2_000, [first, *others]), (3_000, others))
    ]
    app = opened(moments)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pressed_keys(pilot, "3", "left_square_bracket")
        await until(pilot, lambda app: drawn(app) and app.frame is not None and app.frame.window.now is moments[1])
        assert isinstance(app.view, Requests)
        app.view.show_request(first.number)
        await until(pilot, lambda app: f"request {first.id} ─" in screen_text(app))
        await pilot.press("right_square_bracket")
        await until(pilot, lambda app: f"request {first.id} ended; last seen 1 µs ago" in screen_text(app))
        assert f"of {first.max_output_tokens}" in screen_text(app)
        await pilot.press("home")
        await until(pilot, lambda app: "is not there at this moment" in screen_text(app))


@awaited
async def test_one_request_is_one_request_and_the_legend_names_every_cell() -> None:
    assert NOW.requests is not None
    app = opened([replace(NOW, requests=replace(NOW.requests, items=NOW.requests.items[:1]))])
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, drawn)
        await pressed_keys(pilot, "3")
        await until(pilot, lambda app: "1 request ·" in screen_text(app))
        await pressed_keys(pilot, "2")
        await until(pilot, lambda app: "◆ last second, ◈ shared" in screen_text(app))


@awaited
async def test_a_view_that_is_not_shown_holds_no_moment_and_has_the_present_one_when_it_is_shown_again() -> None:
    """That of a large server is megabytes."""
    app = opened([NOW])
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        overview = app.view
        await pressed_keys(pilot, "2")
        await until(pilot, drawn)
        assert overview.frame is None
        await pressed_keys(pilot, "1")
        await until(pilot, drawn)
        assert app.view is overview
        assert overview.frame is app.frame


@awaited
async def test_a_picture_that_comes_while_the_screen_ends_is_no_error() -> None:
    app = opened([NOW])
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        frame = app.frame
        assert frame is not None
    app._deliver(frame)
    app._draw_coming()
    assert app._exception is None


@awaited
async def test_requests_that_are_read_no_more_say_how_old_they_are() -> None:
    assert NOW.requests is not None
    read = replace(NOW.requests, origin=replace(NOW.requests.origin, mono_ns=NOW.mono_ns))
    moments = [replace(NOW, requests=read), replace(NOW, requests=read, mono_ns=NOW.mono_ns + 41_000_000_000)]
    app = opened(moments)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, drawn)
        await pressed_keys(pilot, "3", "left_square_bracket")
        await until(pilot, lambda app: "requests · " in screen_text(app))
        await pressed_keys(pilot, "right_square_bracket")
        await until(pilot, lambda app: "requests 41s · " in screen_text(app))


@awaited
async def test_e_leaves_for_the_next_of_several_servers() -> None:
    app = opened(PRESSED, place="2/3")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, drawn)
        assert " e server 2/3 " in edge_text(app, "keys")
        await pilot.press("e")
    assert app.return_value is True


@awaited
async def test_e_does_nothing_where_one_server_is_all_there_is() -> None:
    app = opened(PRESSED)
    async with app.run_test(size=(200, 24)) as pilot:
        await until(pilot, drawn)
        assert "server" not in edge_text(app, "keys")
        await pilot.press("e")
        await pilot.press("q")
    assert app.return_value is None


@awaited
async def test_every_view_says_what_is_wrong() -> None:
    app = opened(PRESSED, scenes.PRESSURE)
    async with app.run_test(size=(120, 24)) as pilot:
        await until(pilot, drawn)
        assert "SLOW" not in edge_text(app, "tabs")
        for key in "2345678":
            await pressed_keys(pilot, key)
            await until(pilot, lambda app: "● SLOW KV cache is the bottleneck" in edge_text(app, "tabs"))


@awaited
async def test_a_click_on_a_view_goes_to_it_also_where_only_its_key_is_shown() -> None:
    app = opened(PRESSED, scenes.PRESSURE)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, drawn)
        await pilot.click(Tabs, offset=(1 + len("1 overview 2 KV map ") + 1, 0))
        await until(pilot, lambda app: " 3 requests  4  5 " in edge_text(app, "tabs"))
        await pilot.click(Tabs, offset=(2, 0))
        await until(pilot, lambda app: " 1 overview 2 KV map " in edge_text(app, "tabs"))
