"""The last moments of a target: the only place where counters become rates and buckets become percentiles."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import TypeVar

import msgspec

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Event
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.snapshot import Snapshot

T = TypeVar("T")
Counter = Callable[[Snapshot], int | None]
SECOND = 1_000_000_000


class Window:
    """Snapshots of one target, oldest first; ``now`` is the one a person looks at.

    The older ones carry no block columns (``lightened``), and those before the newest few thousand events and
    scheduled requests none of these either: a minute of a large engine would not fit.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        if not snapshots:
            raise ValueError("a Window needs at least one Snapshot")
        self.snapshots = tuple(snapshots)
        self.now = self.snapshots[-1]

    @property
    def span_ns(self) -> int:
        return self.now.mono_ns - self.snapshots[0].mono_ns

    def past(self, over_ns: int) -> Snapshot:
        """The newest Snapshot that is at least ``over_ns`` older than now, else the oldest there is."""
        return self._at(self.now.mono_ns - over_ns) or self.snapshots[0]

    def delta(self, counter: Counter, over_ns: int = 60 * SECOND, *, wraps_at: int | None = None) -> int | None:
        """What the counter rose by since it was first known in that time. None when it is not known now, or was not
        before; the whole value after a restart. ``wraps_at``: one that is lower began again there, once."""
        return _rise(counter, self._base(counter, over_ns), self.now, wraps_at)

    def rate(
        self,
        counter: Counter,
        over_ns: int = 10 * SECOND,
        section: str | None = None,
        *,
        wraps_at: int | None = None,
    ) -> float | None:
        """Rise per second; None with fewer than two Snapshots. ``section``: where the counter comes from, when it is
        read less often than Snapshots are taken: then time is what passed between its readings, None with one.
        ``wraps_at``: as in ``delta``."""
        past = self._base(counter, over_ns)
        rise = _rise(counter, past, self.now, wraps_at)
        elapsed = _read_ns(self.now, section) - _read_ns(past, section)
        return None if rise is None or elapsed <= 0 else rise * SECOND / elapsed

    def read_span_ns(self, known: Callable[[Snapshot], object], over_ns: int, section: str) -> int:
        """Between the readings of a section at both ends of the last ``over_ns`` in which something in it is ``known``
        (not None): 0 where it is one reading."""
        return _read_ns(self.now, section) - _read_ns(self._base(known, over_ns), section)

    def rates(
        self, counter: Counter, points: int, over_ns: int = 60 * SECOND, section: str | None = None
    ) -> list[float | None]:
        """``points`` rates over equal parts of the last ``over_ns``, oldest first; None where nothing was seen.
        ``section``: as in ``rate``; a part in which it was not read has the rate until its next reading, or the
        last."""
        part = over_ns // points
        end = self.now.mono_ns
        edges = [self._at(end - part * index) for index in range(points, -1, -1)]
        found: list[float | None] = []
        unread = 0  # parts, the last ones
        for before, after in pairwise(edges):
            if before is None or after is None or after.mono_ns <= before.mono_ns:
                found.append(None)
                unread = 0
                continue
            elapsed = _read_ns(after, section) - _read_ns(before, section)
            if elapsed <= 0:
                found.append(None)
                unread += 1
                continue
            rise = _rise(counter, before, after)
            rate = None if rise is None else rise * SECOND / elapsed
            found[len(found) - unread :] = [rate] * (unread + 1)
            unread = 0
        if unread and unread < len(found):
            found[len(found) - unread :] = [found[-unread - 1]] * unread
        return found

    def percentile(
        self, histogram: Callable[[Snapshot], Histogram | None], q: float, over_ns: int = 60 * SECOND
    ) -> float | None:
        """Percentile (ns) of what was observed in the last ``over_ns``, from bucket differences."""
        base = self._base(histogram, over_ns)
        new, old = histogram(self.now), histogram(base)
        if new is None:
            return None
        return (new if old is None or base is self.now else new.since(old)).percentile(q)

    def steps(self, count: int) -> list[Step]:
        """The last ``count`` steps, oldest first."""
        return _last(count, (s.steps.items for s in reversed(self.snapshots) if s.steps is not None))

    def events(self, count: int) -> list[Event]:
        """The last ``count`` events, oldest first."""
        return _last(count, (s.events.items for s in reversed(self.snapshots) if s.events is not None))

    @cached_property
    def events_by_kind(self) -> dict[str, list[Event]]:
        """All events, oldest first."""
        found = defaultdict[str, list[Event]](list)
        for snapshot in self.snapshots:
            for event in snapshot.events.items if snapshot.events is not None else ():
                found[event.kind].append(event)
        return found

    @cached_property
    def _times(self) -> list[int]:
        return [snapshot.mono_ns for snapshot in self.snapshots]

    def _base(self, known: Callable[[Snapshot], object], over_ns: int) -> Snapshot:
        """What to count from: ``past``, or where that was not yet known then, the first Snapshot after it that knows.
        Probes that wait for an answer come some looks later than the others."""
        if known(self.now) is None:
            return self.past(over_ns)
        after = bisect_right(self._times, self.now.mono_ns - over_ns)
        return next(one for one in islice(self.snapshots, max(0, after - 1), None) if known(one) is not None)

    def _at(self, mono_ns: int) -> Snapshot | None:
        """The newest Snapshot not after ``mono_ns``."""
        after = bisect_right(self._times, mono_ns)
        return self.snapshots[after - 1] if after else None


def lightened(snapshot: Snapshot) -> Snapshot:
    """The same Snapshot without block columns and block tables."""
    kvcache, requests = snapshot.kvcache, snapshot.requests
    if kvcache is not None:
        kvcache = msgspec.structs.replace(
            kvcache, state=None, refcount=None, filled=None, owner=None, hash=None, last_used=None, next_free=None
        )
    if requests is not None:
        requests = msgspec.structs.replace(requests, items=())
    return msgspec.structs.replace(snapshot, kvcache=kvcache, requests=requests)


def _read_ns(snapshot: Snapshot, section: str | None) -> int:
    found = getattr(snapshot, section) if section is not None else None
    if found is None:
        return snapshot.mono_ns
    origin: Origin = found.totals_origin if isinstance(found, Scheduler) else found.origin
    return origin.mono_ns


def _rise(counter: Counter, before: Snapshot, after: Snapshot, wraps_at: int | None = None) -> int | None:
    old, new = counter(before), counter(after)
    if old is None or new is None:
        return None
    if new >= old:
        return new - old
    return new if wraps_at is None else new - old + wraps_at


def _last(count: int, batches: Iterable[tuple[T, ...]]) -> list[T]:
    found: list[T] = []
    for batch in batches:
        found.extend(reversed(batch))
        if len(found) >= count:
            break
    return list(islice(found, count))[::-1]
