"""A picture of every view and of every state that a person must recognise at once."""

from collections.abc import Callable, Sequence

import pytest

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from tests.support import scenes
from tests.tui.looking import after, opened

Compare = Callable[..., bool]
SMALL, USUAL = (80, 24), (120, 40)


@pytest.mark.parametrize("size", [SMALL, USUAL], ids=["80x24", "120x40"])
@pytest.mark.parametrize(
    ("scene", "findings"),
    [
        (scenes.healthy, ()),
        (scenes.pressed, (scenes.PRESSURE, scenes.SLOW_FIRST_TOKEN)),
        (scenes.hung, (scenes.HANG,)),
        (scenes.dead, None),
        (scenes.unseen, ()),
        (scenes.empty, ()),
    ],
    ids=["healthy", "pressed", "hung", "dead", "unseen", "empty"],
)
def test_overview(
    snap_compare: Compare,
    scene: Callable[[], list[Snapshot]],
    findings: Sequence[Finding] | None,
    size: tuple[int, int],
) -> None:
    snapshots = scene()
    found = diagnose(Window(snapshots)) if findings is None else findings
    assert snap_compare(opened(snapshots, *found), terminal_size=size, run_before=after())


def test_overview_of_a_wide_terminal_with_the_evidence(snap_compare: Compare) -> None:
    app = opened(scenes.pressed(), scenes.PRESSURE)
    assert snap_compare(app, terminal_size=(200, 60), run_before=after("w"))


@pytest.mark.parametrize("size", [SMALL, USUAL], ids=["80x24", "120x40"])
@pytest.mark.parametrize(
    "keys",
    [("2", "n", "n", "right", "down"), ("3", "down", "down"), ("4", "up", "up"), ("5",)],
    ids=["kvmap", "requests", "batch", "probes"],
)
def test_view(snap_compare: Compare, keys: Sequence[str], size: tuple[int, int]) -> None:
    assert snap_compare(opened(scenes.pressed()), terminal_size=size, run_before=after(*keys))


@pytest.mark.parametrize("size", [SMALL, USUAL], ids=["80x24", "120x40"])
@pytest.mark.parametrize("keys", [("6",), ("6", "down", "down")], ids=["none chosen", "one chosen"])
def test_view_of_threads(snap_compare: Compare, keys: Sequence[str], size: tuple[int, int]) -> None:
    assert snap_compare(opened(scenes.wired()), terminal_size=size, run_before=after(*keys))


@pytest.mark.parametrize("key", ["2", "3", "4", "5", "6"], ids=["kvmap", "requests", "batch", "probes", "threads"])
def test_view_of_what_cannot_be_seen_says_why(snap_compare: Compare, key: str) -> None:
    assert snap_compare(opened(scenes.unseen()), terminal_size=SMALL, run_before=after(key))


def test_help(snap_compare: Compare) -> None:
    assert snap_compare(opened(scenes.healthy()), terminal_size=USUAL, run_before=after("2", "question_mark"))
