"""A running (or dead) target as a Source: rounds of a Collector, with a memory of the past to scrub back in."""

import threading
from collections import deque
from typing import NamedTuple

from msgspec.structs import replace

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window, lightened
from inferdbg.record.codec import event_count, without_events, without_work
from inferdbg.record.history import History
from inferdbg.record.past import KEPT_EVENTS, KEPT_WORK, MOST_SNAPSHOTS, PAST_NS, Past, step_count, work_share
from inferdbg.record.writer import RecordingWriter

from .collector import Collector


class LiveSource:
    """``advance`` asks the probes and may run on another thread than ``window``.

    ``recording``: gets every Snapshot too. When it fails, ``advance`` raises its InferdbgError once, and the live
    source goes on without it. ``remember``: whether one can scrub back; else only the last moment can be shown, which
    costs less.
    """

    live = True

    def __init__(
        self, collector: Collector, *, recording: RecordingWriter | None = None, remember: bool = True
    ) -> None:
        self.recording = recording
        self._collector = collector
        self._history = History() if remember else None
        self._replay = None if self._history is None else Past(self._history)
        self._recent = _Recent()
        self._unkept: Snapshot | None = None
        self._lock = threading.Lock()  # the history is written by one thread and scrubbed by another

    @property
    def title(self) -> str:
        return self._collector.target.name

    def advance(self) -> bool:
        snapshot = self._collector.round()
        now = self._recent.now
        if now is not None and _still(now, snapshot):
            return False
        with self._lock:
            self._recent.append(snapshot)
            if self._history is not None:
                self._keep(self._history, snapshot, first=now is None)
        if self.recording is not None:
            try:
                self.recording.write(snapshot)
            except InferdbgError:
                self.recording = None
                raise
        return True

    def _keep(self, history: History, snapshot: Snapshot, *, first: bool) -> None:
        """The first one is kept when the second comes: loading what that takes would delay the first picture."""
        if first:
            self._unkept = snapshot
            return
        if self._unkept is not None:
            history.append(self._unkept)
            self._unkept = None
        history.append(snapshot)

    def span(self) -> tuple[int, int]:
        with self._lock:
            if self._replay is not None and self._unkept is None:
                return self._replay.span()
            now_ns = self._recent.window().now.mono_ns
            return now_ns, now_ns

    def window(self, at_ns: int | None = None) -> Window:
        with self._lock:
            last = self._recent.window()
            if at_ns is None or at_ns >= last.now.mono_ns or self._replay is None or self._unkept is not None:
                return last
            return self._replay.window(at_ns)

    def close(self) -> None:
        """Ends the probes, then the recording."""
        self._collector.close()
        if self.recording is not None:
            self.recording.close()


class _Kept(NamedTuple):
    """A Snapshot of the past, and how much work and how many events there were until and with it."""

    snapshot: Snapshot
    work_until: int
    events_until: int


class _Recent:
    """The Window of the last moment, kept up to date by the rules of inferdbg.record.past."""

    def __init__(self) -> None:
        self.now: Snapshot | None = None
        self._past: deque[_Kept] = deque()
        self._work = self._events = 0  # until now
        self._without_work = self._without_events = 0  # so many of the oldest

    def append(self, snapshot: Snapshot) -> None:
        if self.now is not None:
            self._past.append(_Kept(lightened(self.now), self._work, self._events))
        self.now = snapshot
        self._work += work_share(snapshot)
        self._events += event_count(snapshot)
        while self._past and (
            self._past[0].snapshot.mono_ns < snapshot.mono_ns - PAST_NS or len(self._past) >= MOST_SNAPSHOTS
        ):
            self._past.popleft()
            self._without_work = max(0, self._without_work - 1)
            self._without_events = max(0, self._without_events - 1)
        self._trim()

    def window(self) -> Window:
        assert self.now is not None
        return Window([*(kept.snapshot for kept in self._past), self.now])

    def _trim(self) -> None:
        """Takes work and events from those that are now beyond the budget; they stay beyond it."""
        while self._without_work < len(self._past):
            kept = self._past[self._without_work]
            if self._work - kept.work_until < KEPT_WORK:
                break
            self._past[self._without_work] = kept._replace(snapshot=without_work(kept.snapshot))
            self._without_work += 1
        while self._without_events < len(self._past):
            kept = self._past[self._without_events]
            if self._events - kept.events_until < KEPT_EVENTS:
                break
            self._past[self._without_events] = kept._replace(snapshot=without_events(kept.snapshot))
            self._without_events += 1


def _still(before: Snapshot, after: Snapshot) -> bool:
    """Whether nothing new was seen: of a dead engine every round says the same again."""
    if before.mono_ns != after.mono_ns or event_count(after) or step_count(after):
        return False
    same = replace(
        after,
        seq=before.seq,
        wall_ns=before.wall_ns,
        steps=before.steps,
        events=before.events,
        processes=before.processes,
        probes=before.probes,
    )
    return same == before
