"""The screen under test: opened over stored Snapshots, and waited for by what it shows, never by time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps

from textual.pilot import Pilot

from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.snapshot import Snapshot
from inferdbg.tui.app import App
from inferdbg.tui.ink import plain
from inferdbg.tui.lineview import LineView
from inferdbg.tui.view import View
from tests.support.scenes import Stored


def awaited(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Lets pytest call a test that is a coroutine."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def opened(
    snapshots: Sequence[Snapshot], *findings: Finding, live: bool = False, seen: int | None = None, place: str = ""
) -> App:
    """The app over a recording (or a live target that is ``seen`` Snapshots old), with these findings at any time."""
    source, every_s = Stored(snapshots, live=live, seen=seen), 0.01 if live else 3600
    return App(source, lambda window: findings, interval_s=every_s, place=place)


async def until(pilot: Pilot[None], holds: Callable[[App], bool]) -> None:
    """Lets the app work until it ``holds``; gives up after some ten seconds."""
    app = pilot.app
    assert isinstance(app, App)
    for _ in range(1000):
        await pilot.pause()
        if holds(app):
            await pilot.pause()
            return
    raise AssertionError(f"never came true; the screen says:\n{screen_text(app)}")


def drawn(app: App) -> bool:
    return app.frame is not None and bool(app.query(View)) and app.view.frame is app.frame


async def pressed_keys(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def after(*keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """For snap_compare: waits for the first picture, then presses keys."""

    async def run_before(pilot: Pilot[None]) -> None:
        await until(pilot, drawn)
        await pressed_keys(pilot, *keys)
        await until(pilot, drawn)

    return run_before


def screen_text(app: App) -> str:
    """All lines of the view that is shown."""
    return "\n".join(plain(found) for found in app.view.lines)


def edge_text(app: App, id: str) -> str:
    return "\n".join(plain(found) for found in app.screen_stack[0].query_one(f"#{id}", LineView).lines)
