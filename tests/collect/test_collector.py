"""One round asks what is due and makes one Snapshot of it, whatever some probes do."""

from collections.abc import Callable

import pytest
from msgspec import Struct

from inferdbg.collect.collector import Collector
from inferdbg.collect.probe import Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server
from inferdbg.facts.snapshot import Target
from tests.support.probes import FailingHalf

TARGET = Target("process", "pid 58", pid=58)
SECOND = 1_000_000_000


class StandingClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 100 * SECOND

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + 1000 * SECOND


class Made:
    """A probe made of a function."""

    deadline_ns = SECOND
    isolated = False

    def __init__(self, name: str, read: Callable[[int], Reading], cadence_ns: int = 0) -> None:
        self.name, self.cadence_ns = name, cadence_ns
        self.sections: tuple[str, ...] = ("scheduler", "events")
        self.closed = False
        self._read = read

    def read(self, now_ns: int) -> Reading:
        return self._read(now_ns)

    def close(self) -> None:
        self.closed = True


def telling(name: str, cadence_ns: int = 0, **fields: int) -> Made:
    def read(now_ns: int) -> Reading:
        found: dict[str, Struct] = {"scheduler": Scheduler(Origin(name, now_ns), **fields)}
        return Reading(found)

    return Made(name, read, cadence_ns)


def failing(error: Exception) -> Made:
    def read(now_ns: int) -> Reading:
        raise error

    return Made("broken", read)


def test_probes_are_believed_in_their_order() -> None:
    clock = StandingClock()
    collector = Collector(TARGET, [telling("box", running=3), telling("metrics", running=4, waiting=5)], clock)
    snapshot = collector.round()
    assert snapshot.scheduler == Scheduler(Origin("box", clock.now_ns), running=3, waiting=5)
    assert (snapshot.seq, snapshot.mono_ns, snapshot.wall_ns) == (1, clock.now_ns, clock.wall_ns())
    assert [report.status for report in snapshot.probes] == ["ok", "ok"]


def test_a_probe_that_raises_is_failed_and_the_others_still_come() -> None:
    collector = Collector(
        TARGET, [failing(OSError("wires cut")), failing(InferdbgError("old driver", "update it")), telling("box")]
    )
    snapshot = collector.round()
    assert snapshot.scheduler is not None
    wires, driver, box = snapshot.probes
    assert (wires.status, wires.message) == ("failed", "OSError: wires cut")
    assert (driver.status, driver.message, driver.hint) == ("failed", "old driver", "update it")
    assert box.status == "ok"


@pytest.mark.parametrize("isolated", [False, True])
def test_a_failed_reading_still_brings_what_it_found(isolated: bool) -> None:
    """A server that refuses its metrics has a health to tell; what it said of other things stands."""
    probe = FailingHalf(good_reads=1)
    probe.isolated = isolated
    collector = Collector(TARGET, [probe])
    patience_ns = 30 * SECOND
    first, second = collector.round(patience_ns), collector.round(patience_ns)
    collector.close()
    assert first.scheduler is not None
    assert [first.probes[0].status, second.probes[0].status] == ["ok", "failed"]
    assert second.scheduler == first.scheduler
    assert second.server is not None
    assert second.server.engine == "half"


def test_what_a_probe_said_stands_with_its_age_until_it_is_due_or_answers_again() -> None:
    clock = StandingClock()
    reads: list[int] = []

    def read(now_ns: int) -> Reading:
        reads.append(now_ns)
        if len(reads) == 2:
            raise OSError("gone for a moment")
        events = Events(Origin("box", now_ns), (Event(len(reads), now_ns, 1, "finished"),))
        return Reading({"scheduler": Scheduler(Origin("box", now_ns), running=1), "events": events})

    collector = Collector(TARGET, [Made("box", read, cadence_ns=SECOND)], clock)
    first = collector.round()
    clock.now_ns += SECOND // 2
    not_due = collector.round()
    clock.now_ns += SECOND // 2
    failed = collector.round()
    clock.now_ns += SECOND
    again = collector.round()
    assert len(reads) == 3
    assert first.scheduler == not_due.scheduler == failed.scheduler != again.scheduler
    assert not_due.scheduler is not None
    assert not_due.scheduler.origin.mono_ns == 100 * SECOND
    assert not_due.probes[0].answered_ns == failed.probes[0].answered_ns == 100 * SECOND
    assert failed.probes[0].status == "failed"
    seen = [len(snapshot.events.items) for snapshot in (first, not_due, failed, again) if snapshot.events is not None]
    assert seen == [1, 0, 0, 1]


def test_the_moment_is_the_one_that_a_source_knows_better() -> None:
    clock = StandingClock()
    died_ns = 90 * SECOND

    def read(now_ns: int) -> Reading:
        return Reading({"scheduler": Scheduler(Origin("box", died_ns))}, mono_ns=died_ns)

    collector = Collector(TARGET, [Made("box", read), telling("other")], clock)
    snapshot = collector.round()
    assert snapshot.mono_ns == died_ns
    assert snapshot.wall_ns == clock.wall_ns() - 10 * SECOND


def test_a_snapshot_is_of_one_server_whichever_probe_notices_a_restart_first() -> None:
    clock = StandingClock()
    clock.now_ns = 300 * SECOND
    old, new = 50, 200

    def told(name: str, life: int | None, read_ns: int = 300 * SECOND, mono_ns: int | None = None) -> Made:
        began_ns = life * SECOND if life is not None else None
        sections = {
            "server": Server(Origin(name, read_ns), name, started_mono_ns=began_ns),
            "scheduler": Scheduler(Origin(name, read_ns), life),
        }
        return Made(name, lambda now_ns: Reading(sections, mono_ns=mono_ns, life=life))

    def seen(*probes: Made) -> str | None:
        snapshot = Collector(TARGET, probes, clock).round()
        assert snapshot.mono_ns == 300 * SECOND
        names = {section.origin.probe for section in (snapshot.server, snapshot.scheduler) if section is not None}
        return " ".join(names) or None

    assert seen(told("processes", old), told("memory", new)) == "memory"
    assert seen(told("processes", new), told("memory", old)) == "processes"
    assert seen(told("processes", new), told("memory", new)) == "processes", "the same"
    box = told("box", None, read_ns=190 * SECOND, mono_ns=190 * SECOND)
    assert seen(box, told("processes", new)) == "processes", "the box of the one before"
    reports = Collector(TARGET, [box, told("processes", new)], clock).round().probes
    said = [(report.status, report.message) for report in reports]
    assert said == [("stale", "it tells of the server that was here before"), ("ok", "")]
    reported = told("reported", None)
    assert seen(reported, told("processes", new)) == "reported", "read since"


def test_time_never_runs_back() -> None:
    clock = StandingClock()
    moments = iter([None, 99 * SECOND])
    collector = Collector(TARGET, [Made("box", lambda now_ns: Reading(mono_ns=next(moments)))], clock)
    alive = collector.round()
    clock.now_ns += SECOND
    dead = collector.round()
    assert alive.mono_ns == dead.mono_ns == 100 * SECOND
    assert dead.wall_ns == alive.wall_ns


def test_closing_closes_the_probes() -> None:
    probe = telling("box")
    Collector(TARGET, [probe]).close()
    assert probe.closed


def test_what_is_read_behind_a_slow_probe_is_of_the_moment_at_which_it_was_read() -> None:
    """A rate over the first two looks is too low otherwise: the first look takes longer, as all is found then."""
    clock = StandingClock()

    def slow(now_ns: int) -> Reading:
        clock.now_ns += 2 * SECOND
        return Reading({})

    collector = Collector(TARGET, [Made("memory", slow), telling("reported", running=1)], clock)
    snapshot = collector.round()
    assert snapshot.scheduler is not None
    assert snapshot.scheduler.origin.mono_ns == 102 * SECOND
