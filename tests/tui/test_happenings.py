"""What happened, in words: evictions together, everything else by itself."""

from inferdbg.facts.sections.events import Event
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND
from inferdbg.tui.drawing.happenings import story_lines
from inferdbg.tui.drawing.names import Names
from inferdbg.tui.ink import plain

NOW = 100 * SECOND


def told(*events: Event, most: int = 9) -> list[str]:
    names = Names(Snapshot(1, NOW, NOW, Target("process", "x", 1)))
    return [" ".join(plain(found).split()) for found in story_lines(events, names, NOW, most)]


def evicted(block: int, *, of: int, taker: int, ago_ns: int = 0) -> Event:
    return Event(block, NOW - ago_ns, 1, "evicted", of, taker, block=block)


def test_evictions_that_follow_each_other_are_one_line() -> None:
    assert told(*(evicted(block, of=6, taker=7) for block in range(8))) == ["now evicted 8 blocks of #6 for #7"]
    assert told(evicted(1, of=6, taker=7), evicted(2, of=6, taker=8)) == ["now evicted 2 blocks of #6 for 2 requests"]
    assert told(evicted(1, of=6, taker=7)) == ["now evicted block 1 of #6 for #7"]


def test_what_comes_between_or_a_second_later_begins_a_new_line() -> None:
    finished = Event(3, NOW, 1, "finished", 9)
    assert len(told(evicted(1, of=6, taker=7), finished, evicted(2, of=6, taker=7))) == 3
    assert len(told(evicted(1, of=6, taker=7), evicted(2, of=6, taker=7, ago_ns=2 * SECOND))) == 2


def test_a_request_that_gives_way_to_itself_is_not_named_twice() -> None:
    assert told(Event(1, NOW, 1, "preempted", 6, 6, tokens=912)) == ["now preempted #6, by itself, 912 tokens lost"]
    assert told(Event(1, NOW, 1, "preempted", 6, 7)) == ["now preempted #6 for #7"]


def test_only_so_many_lines_are_told() -> None:
    assert len(told(*(Event(seq, NOW, 1, "finished", seq) for seq in range(20)), most=5)) == 5
