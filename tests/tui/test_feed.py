"""Time on the screen: followed, held, scrubbed, stepped and played."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from inferdbg.diagnosis.finding import Finding
from inferdbg.errors import InferdbgError
from inferdbg.facts.window import SECOND, Window
from inferdbg.tui.feed import Feed, Wish
from inferdbg.tui.frame import Frame
from tests.support.scenes import HANG, PRESSURE, Stored, healthy

SNAPSHOTS = healthy(30)


def fed(source: Stored, interval_ns: int = SECOND // 4) -> tuple[Feed, Frame]:
    feed = Feed(source, lambda window: [PRESSURE], interval_ns)
    return feed, shown(feed.tick())


def shown(frame: Frame | None) -> Frame:
    assert frame is not None
    return frame


def test_a_live_target_is_followed() -> None:
    feed, frame = fed(Stored(SNAPSHOTS, live=True, seen=10))
    assert (frame.mode, frame.window.now) == ("live", SNAPSHOTS[10])
    assert shown(feed.tick()).window.now is SNAPSHOTS[11]


def test_pause_holds_the_moment_while_the_target_goes_on() -> None:
    feed, frame = fed(Stored(SNAPSHOTS, live=True, seen=10))
    paused = shown(feed.obey(Wish("pause")))
    later = shown(feed.tick())
    assert (paused.mode, paused.window.now) == ("paused", frame.window.now)
    assert later.window.now is frame.window.now
    assert later.behind_ns == SNAPSHOTS[11].mono_ns - SNAPSHOTS[10].mono_ns
    assert shown(feed.obey(Wish("pause"))).window.now is SNAPSHOTS[11]


def test_scrubbing_back_and_to_the_end_follows_a_live_target_again() -> None:
    feed, frame = fed(Stored(SNAPSHOTS, live=True, seen=20))
    back = shown(feed.obey(Wish("scrub", -SECOND)))
    assert back.mode == "paused"
    assert SECOND <= frame.window.now.mono_ns - back.window.now.mono_ns < 2 * SECOND
    assert shown(feed.obey(Wish("scrub", 10 * SECOND))).mode == "live"


def test_scrubbing_stops_at_the_ends() -> None:
    feed, _ = fed(Stored(SNAPSHOTS))
    assert shown(feed.obey(Wish("scrub", -3600 * SECOND))).window.now is SNAPSHOTS[0]
    assert shown(feed.obey(Wish("last"))).window.now is SNAPSHOTS[-1]
    assert shown(feed.obey(Wish("first"))).window.now is SNAPSHOTS[0]


def test_stepping_visits_every_snapshot_in_both_directions() -> None:
    feed, _ = fed(Stored(SNAPSHOTS), interval_ns=SECOND // 100)
    backward = [shown(feed.obey(Wish("step", -1))).window.now.seq for _ in range(29)]
    assert backward == list(range(29, 0, -1))
    assert feed.obey(Wish("step", -1)) is None
    forward = [shown(feed.obey(Wish("step", 1))).window.now.seq for _ in range(29)]
    assert forward == list(range(2, 31))
    assert feed.obey(Wish("step", 1)) is None


def test_a_recording_opens_at_its_end_and_plays_from_its_beginning() -> None:
    feed, frame = fed(Stored(SNAPSHOTS))
    assert (frame.mode, frame.window.now) == ("paused", SNAPSHOTS[-1])
    playing = shown(feed.obey(Wish("pause")))
    assert (playing.mode, playing.window.now) == ("playing", SNAPSHOTS[0])
    frames = [frame for frame in (feed.tick() for _ in range(100)) if frame is not None]
    assert [frame.window.now.seq for frame in frames] == sorted(frame.window.now.seq for frame in frames)
    assert (frames[-1].mode, frames[-1].window.now) == ("paused", SNAPSHOTS[-1])


def test_one_moment_is_fixed() -> None:
    _, frame = fed(Stored(SNAPSHOTS[:1]))
    assert frame.mode == "fixed"


def test_nothing_is_sent_when_nothing_changed() -> None:
    feed, _ = fed(Stored(SNAPSHOTS))
    assert feed.tick() is None


def test_findings_are_thought_of_once_a_second_while_time_runs_and_at_every_moment_that_is_held() -> None:
    thought: list[int] = []

    def diagnose(window: Window) -> Sequence[Finding]:
        thought.append(window.now.seq)
        return ()

    feed = Feed(Stored(SNAPSHOTS, live=True, seen=1), diagnose)
    for _ in range(12):
        feed.tick()
    gaps = [SNAPSHOTS[b - 1].mono_ns - SNAPSHOTS[a - 1].mono_ns for a, b in pairwise(thought)]
    assert gaps
    assert min(gaps) >= SECOND
    paused = shown(feed.obey(Wish("pause")))
    assert thought[-1] == paused.window.now.seq
    assert thought[-1] == shown(feed.obey(Wish("step", -1))).window.now.seq + 1
    assert thought[-1] == 12


def test_a_death_is_thought_about_at_once() -> None:
    thought: list[int] = []

    def diagnose(window: Window) -> Sequence[Finding]:
        thought.append(window.now.seq)
        return ()

    died = [
        replace(one, server=replace(one.server, state="dead")) if index >= 2 and one.server is not None else one
        for index, one in enumerate(SNAPSHOTS)
    ]
    feed = Feed(Stored(died, live=True, seen=0), diagnose)
    for _ in range(3):
        feed.tick()
    assert thought == [SNAPSHOTS[0].seq, SNAPSHOTS[2].seq]


def test_the_last_look_at_what_died_is_thought_about_however_soon_it_came() -> None:
    thought: list[int] = []

    def diagnose(window: Window) -> Sequence[Finding]:
        thought.append(window.now.seq)
        return ()

    feed = Feed(Stored(SNAPSHOTS, live=True, seen=len(SNAPSHOTS) - 3), diagnose)
    for _ in range(6):
        feed.tick()
    assert thought[-1] == SNAPSHOTS[-1].seq
    assert thought.count(SNAPSHOTS[-1].seq) == 1


def test_what_one_look_cannot_tell_is_said_after_the_second_one_and_at_once_of_a_recording() -> None:
    def diagnose(window: Window) -> Sequence[Finding]:
        return [replace(HANG, confidence="possible" if len(window.snapshots) == 1 else "likely")]

    feed = Feed(Stored(SNAPSHOTS, live=True, seen=0), diagnose)
    assert shown(feed.tick()).findings == ()
    assert [finding.confidence for finding in shown(feed.tick()).findings] == ["likely"]
    fixed = Feed(Stored(SNAPSHOTS[:1]), diagnose)
    assert [finding.confidence for finding in shown(fixed.tick()).findings] == ["possible"]


class Failing(Stored):
    """Can be read three times."""

    reads = 0

    def advance(self) -> bool:
        self.reads += 1
        if self.reads > 3:
            raise InferdbgError("the box is gone", "inferdbg top")
        return super().advance()


def test_a_source_that_fails_later_leaves_the_last_picture_and_says_why() -> None:
    feed, _ = fed(Failing(SNAPSHOTS, live=True, seen=1))
    feed.tick()
    good = shown(feed.tick())
    bad = shown(feed.tick())
    assert (bad.problem, bad.hint) == ("nothing new: the box is gone", "inferdbg top")
    assert bad.window.now is good.window.now


class Counted(Stored):
    windows = 0

    def window(self, at_ns: int | None = None) -> Window:
        self.windows += 1
        return super().window(at_ns)


@pytest.mark.parametrize("live", [False, True])
def test_a_moment_that_is_held_is_read_once(live: bool) -> None:
    source = Counted(SNAPSHOTS, live=live)
    feed, _ = fed(source)
    feed.tick()
    feed.obey(Wish("scrub", -SECOND))
    before = source.windows
    for _ in range(5):
        assert feed.tick() is None
    assert source.windows == before
    assert shown(feed.obey(Wish("scrub", -SECOND))).window.now.mono_ns < SNAPSHOTS[-1].mono_ns - SECOND


class LosingItsRecording(Stored):
    """As a live source whose disk is full."""

    reads = 0

    def advance(self) -> bool:
        self.reads += 1
        if self.reads == 4:
            self.problem = InferdbgError("not recorded any more: no space", "make room")
        return super().advance()


def test_a_recording_that_is_lost_is_said_as_long_as_the_screen_is_there() -> None:
    feed, _ = fed(LosingItsRecording(SNAPSHOTS, live=True, seen=1))
    feed.tick()
    assert shown(feed.tick()).problem == ""
    for _ in range(3):
        frame = shown(feed.tick())
        assert frame.problem == "not recorded any more: no space"
        assert frame.hint == "make room"


def test_a_source_that_cannot_be_read_at_all_is_an_error() -> None:
    source = Failing(SNAPSHOTS, live=True, seen=1)
    source.reads = 3
    with pytest.raises(InferdbgError, match="the box is gone"):
        Feed(source, lambda window: ()).tick()
