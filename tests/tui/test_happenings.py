"""What happened, in words: evictions together, everything else by itself."""

import re
from itertools import product

import pytest

from inferdbg.facts.sections.events import Event
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND
from inferdbg.tui.drawing.happenings import story_lines
from inferdbg.tui.drawing.names import names_of
from inferdbg.tui.ink import plain

NOW = 100 * SECOND


def told(*events: Event, most: int = 9) -> list[str]:
    names = names_of(Snapshot(1, NOW, NOW, Target("process", "x", 1)))
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


EVERY_KIND = (
    *("rejected", "scheduled", "first token", "preempted", "evicted", "copied on write", "finished", "aborted"),
    *("failed", "fault", "logged", "kind 99"),
)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_only_what_is_known_is_said(kind: str) -> None:
    """Whatever is missing, there is neither None nor a dash, nor a word that leads to nothing."""
    given: dict[str, tuple[int | None, ...]] = {"request": (None, 6), "other": (None, 7), "block": (None, 0, 3)}
    for request, other, block, tokens in product(*given.values(), (None, 0, 912)):
        for said in ("", "a reason"):
            event = Event(1, NOW, 1, kind, request, other, block, tokens, said)
            (line,) = told(event)
            assert re.fullmatch(rf"now {kind}( .*)?", line)
            assert not re.search(r"None|-|, ,|,$|\b(of|for|by|to|from)( (of|for|by|to|from)\b|,|$)", line), line


def test_a_kind_as_long_as_its_column_still_stands_apart_from_what_befell() -> None:
    copied = Event(1, NOW, 1, "copied on write", 226, block=49_576, text="from block 49574")
    assert told(copied) == ["now copied on write from block 49574 to block 49576 by #226"]
    assert told(Event(1, NOW, 1, "copied on write", 226)) == ["now copied on write by #226"]


def test_what_is_known_of_each_kind() -> None:
    assert told(Event(1, NOW, 1, "scheduled", 6, tokens=64)) == ["now scheduled #6, 64 tokens from the prefix cache"]
    assert told(Event(1, NOW, 1, "finished", 6, tokens=1, text="stop")) == ["now finished #6, 1 token, stop"]
    assert told(Event(1, NOW, 1, "preempted", other=7, tokens=9)) == ["now preempted for #7, 9 tokens lost"]
    assert told(Event(1, NOW, 1, "evicted", other=7)) == ["now evicted a block for #7"]
    assert told(Event(1, NOW, 1, "evicted", 6, block=0)) == ["now evicted block 0 of #6"]
    assert told(Event(1, NOW, 1, "rejected", text="the prompt is too long")) == ["now rejected the prompt is too long"]


def test_only_so_many_lines_are_told() -> None:
    assert len(told(*(Event(seq, NOW, 1, "finished", seq) for seq in range(20)), most=5)) == 5
