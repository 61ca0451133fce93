"""Live and replay are one road: the same moments give the same Windows."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from inferdbg.collect.collector import Collector
from inferdbg.collect.live import LiveSource
from inferdbg.collect.probe import Reading
from inferdbg.facts.snapshot import SECTIONS, Snapshot
from inferdbg.facts.window import Window
from inferdbg.record.past import KEPT_EVENTS, MOST_SNAPSHOTS
from inferdbg.record.replay import ReplaySource
from inferdbg.record.writer import RecordingWriter
from tests.support.snapshots import START_MONO_NS, START_WALL_NS, busy


class Told:
    """A probe that tells what Snapshots hold, one after the other, and the clock that goes with it."""

    name = "told"
    sections = SECTIONS
    cadence_ns = 0
    deadline_ns = 1
    isolated = False

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self._snapshots: Iterator[Snapshot] = iter(snapshots)
        self._now = START_MONO_NS

    def read(self, now_ns: int) -> Reading:
        snapshot = next(self._snapshots)
        self._now = snapshot.mono_ns
        found: dict[str, Struct] = {name: getattr(snapshot, name) for name in SECTIONS}
        return Reading(
            {name: section for name, section in found.items() if section is not None}, mono_ns=snapshot.mono_ns
        )

    def close(self) -> None:
        pass

    def mono_ns(self) -> int:
        return self._now

    def wall_ns(self) -> int:
        return START_WALL_NS


def watched(snapshots: list[Snapshot], path: Path) -> tuple[LiveSource, list[Window]]:
    told = Told(snapshots)
    source = LiveSource(Collector(snapshots[0].target, [told], told), recording=RecordingWriter(path))
    windows = []
    for _ in snapshots:
        assert source.advance()
        windows.append(source.window())
    return source, windows


def assert_same(one: Window, other: Window) -> None:
    assert one.snapshots == other.snapshots


@pytest.mark.parametrize("case", ["long", "many requests", "many events"])
def test_windows_are_equal_live_scrubbed_and_replayed(case: str, tmp_path: Path) -> None:
    if case == "long":
        snapshots = busy(blocks=128, requests=3, snapshots=MOST_SNAPSHOTS // 8, steps_per_snapshot=32)
    elif case == "many requests":
        snapshots = busy(blocks=4096, requests=128, snapshots=40)
    else:
        snapshots = crowded(busy(blocks=128, requests=4, snapshots=40))
    path = tmp_path / "run.idbg"
    source, windows = watched(snapshots, path)
    assert windows[-1].now.kvcache == snapshots[-1].kvcache
    sample = windows[::7] + windows[-3:]
    for window in sample:
        assert_same(source.window(window.now.mono_ns), window)
    source.close()
    replay = ReplaySource(path)
    replay.advance()
    assert replay.span() == source.span()
    for window in sample:
        assert_same(replay.window(window.now.mono_ns), window)
    assert_same(replay.window(), windows[-1])
    replay.close()


def crowded(snapshots: list[Snapshot]) -> list[Snapshot]:
    """The same, with so many events that most Snapshots of a Window may not keep theirs."""
    found = []
    for snapshot in snapshots:
        assert snapshot.events is not None
        items = snapshot.events.items or (busy(blocks=128, requests=4, snapshots=1)[0].events or snapshot.events).items
        many = (items * KEPT_EVENTS)[: KEPT_EVENTS // 5]
        found.append(replace(snapshot, events=replace(snapshot.events, items=many)))
    return found


def test_the_past_of_a_window_keeps_only_so_much(tmp_path: Path) -> None:
    source, windows = watched(crowded(busy(blocks=128, requests=4, snapshots=40)), tmp_path / "run.idbg")
    kept = sum(len(snapshot.events.items) for snapshot in windows[-1].snapshots if snapshot.events is not None)
    assert KEPT_EVENTS <= kept < KEPT_EVENTS * 2
    lost = windows[-1].snapshots[0].events
    assert lost is not None
    assert (lost.items, lost.dropped) == ((), KEPT_EVENTS // 5)
    source.close()


def test_a_dead_engine_adds_no_moment_when_it_says_the_same_again(tmp_path: Path) -> None:
    (snapshot,) = busy(snapshots=1)
    again = replace(
        snapshot,
        events=replace(snapshot.events, items=()),  # type: ignore[type-var]
        steps=replace(snapshot.steps, items=()),  # type: ignore[type-var]
    )
    told = Told([snapshot, again, replace(again, server=replace(again.server, state="dead"))])  # type: ignore[type-var]
    source = LiveSource(Collector(snapshot.target, [told], told))
    assert source.advance()
    assert not source.advance()
    assert source.advance()
    assert len(source.window().snapshots) == 2
    assert source.window().now.server.state == "dead"  # type: ignore[union-attr]
    source.close()


def test_a_recording_that_fails_is_told_from_then_on_and_the_screen_goes_on(tmp_path: Path) -> None:
    snapshots = busy(snapshots=3)
    told = Told(snapshots)
    recording = RecordingWriter(tmp_path / "run.idbg")
    recording.close()
    source = LiveSource(Collector(snapshots[0].target, [told], told), recording=recording)
    for _ in range(2):
        assert source.advance()
        assert source.problem is not None
        assert re.match("not recorded any more: .* closed", source.problem.message)
    assert source.window().now.seq == 2
    source.close()


def test_without_a_memory_only_the_last_moment_is_shown() -> None:
    snapshots = busy(snapshots=3)
    told = Told(snapshots)
    source = LiveSource(Collector(snapshots[0].target, [told], told), remember=False)
    for _ in snapshots:
        source.advance()
    assert source.span() == (snapshots[-1].mono_ns, snapshots[-1].mono_ns)
    assert source.window(snapshots[0].mono_ns).now.mono_ns == snapshots[-1].mono_ns
    assert len(source.window().snapshots) == 3
    source.close()


def test_the_first_moment_can_be_shown_alone_and_scrubbed_to_later() -> None:
    snapshots = busy(snapshots=3)
    told = Told(snapshots)
    source = LiveSource(Collector(snapshots[0].target, [told], told))
    first_ns = snapshots[0].mono_ns
    source.advance()
    assert source.span() == (first_ns, first_ns)
    assert source.window(first_ns - 1).now.mono_ns == first_ns
    source.advance()
    source.advance()
    assert source.span() == (first_ns, snapshots[-1].mono_ns)
    assert source.window(first_ns).now.mono_ns == first_ns


def test_the_columns_of_a_large_pool_wait_for_the_history_only_until_they_are_read_anew() -> None:
    read, *between = busy(snapshots=9)
    snapshots = [read]
    for snapshot in between:  # read anew at every third look
        last = snapshots[-1].kvcache if len(snapshots) % 3 else snapshot.kvcache
        assert last is not None
        columns_ns = last.columns_ns if len(snapshots) % 3 else snapshot.mono_ns
        snapshots.append(replace(snapshot, kvcache=replace(last, columns_ns=columns_ns)))
    told = Told(snapshots)
    source = LiveSource(Collector(snapshots[0].target, [told], told))
    for _ in snapshots:
        source.advance()
        assert len({one.kvcache.state for one in source._unkept if one.kvcache is not None}) == 1
    for snapshot in snapshots[:-1]:
        assert source.window(snapshot.mono_ns).now.kvcache == snapshot.kvcache


def test_the_first_look_loads_no_numpy() -> None:
    code = (
        "import sys; from tests.collect.test_live import Told; from tests.support.snapshots import busy; "
        "from inferdbg.collect.collector import Collector; from inferdbg.collect.live import LiveSource; "
        "snapshots = busy(snapshots=9); told = Told(snapshots); "
        "source = LiveSource(Collector(snapshots[0].target, [told], told)); "
        "source.advance(); source.window(); source.span(); assert 'numpy' not in sys.modules; "
        "[source.advance() for _ in range(8)]; assert 'numpy' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
