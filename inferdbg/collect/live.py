"""A running (or dead) target as a Source: rounds of a Collector, with a memory of the past to scrub back in."""

import threading
from collections import deque

from msgspec.structs import replace

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window, lightened
from inferdbg.record.codec import event_count, without_events, without_work
from inferdbg.record.history import History
from inferdbg.record.past import KEPT_EVENTS, KEPT_WORK, MOST_SNAPSHOTS, PAST_NS, Past, step_count, work_share
from inferdbg.record.writer import RecordingWriter

from .collector import Collector

_KEPT_TOGETHER = 8
"""Snapshots that go into the history at once: while the caches of the processor hold what that takes, each costs half
of what it costs alone. The columns of a large pool are megabytes: then they wait until these are read anew."""


class LiveSource:
    """``advance`` asks the probes and may run on another thread than ``window``.

    ``recording``: gets every Snapshot too. When it fails, the live source goes on without it, and ``problem`` says so
    from then on. ``remember``: whether one can scrub back; else only the last moment can be shown, which
    costs less.
    """

    live = True

    def __init__(
        self, collector: Collector, *, recording: RecordingWriter | None = None, remember: bool = True
    ) -> None:
        self.recording = recording
        self.problem: InferdbgError | None = None
        self._collector = collector
        self._history = History() if remember else None
        self._replay = None if self._history is None else Past(self._history)
        self._recent = _Recent()
        self._unkept: list[Snapshot] = []
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
                if len(self._unkept) >= _KEPT_TOGETHER or _read_anew(now, snapshot):
                    self._keep(self._history)
                self._unkept.append(snapshot)
        if self.recording is not None:
            try:
                self.recording.write(snapshot)
            except InferdbgError as error:
                self.recording = None
                self.problem = InferdbgError(f"not recorded any more: {error.message}", error.hint)
        return True

    def _keep(self, history: History) -> None:
        for snapshot in self._unkept:
            history.append(snapshot)
        self._unkept.clear()

    def span(self) -> tuple[int, int]:
        with self._lock:
            now_ns = self._recent.window().now.mono_ns
            if self._history is None or self._replay is None:
                return now_ns, now_ns
            first_ns = self._history.first_ns
            return self._unkept[0].mono_ns if first_ns is None else first_ns, now_ns

    def window(self, at_ns: int | None = None) -> Window:
        with self._lock:
            last = self._recent.window()
            if at_ns is None or at_ns >= last.now.mono_ns or self._history is None or self._replay is None:
                return last
            self._keep(self._history)
            return self._replay.window(at_ns)

    def close(self) -> None:
        """Ends the probes, then the recording."""
        self._collector.close()
        if self.recording is not None:
            self.recording.close()


class _Recent:
    """The Window of the last moment, kept up to date by the rules of inferdbg.record.past."""

    def __init__(self) -> None:
        self.now: Snapshot | None = None
        self._window: Window | None = None
        self._past: list[Snapshot] = []
        self._until: deque[tuple[int, int]] = deque()  # how much work and how many events until and with each of these
        self._work = self._events = 0  # until now
        self._without_work = self._without_events = 0  # so many of the oldest

    def append(self, snapshot: Snapshot) -> None:
        if self.now is not None:
            self._past.append(lightened(self.now))
            self._until.append((self._work, self._events))
        self.now, self._window = snapshot, None
        self._work += work_share(snapshot)
        self._events += event_count(snapshot)
        while self._past and (self._past[0].mono_ns < snapshot.mono_ns - PAST_NS or len(self._past) >= MOST_SNAPSHOTS):
            del self._past[0]
            self._until.popleft()
            self._without_work = max(0, self._without_work - 1)
            self._without_events = max(0, self._without_events - 1)
        self._trim()

    def window(self) -> Window:
        assert self.now is not None
        if self._window is None:
            self._window = Window((*self._past, self.now))
        return self._window

    def _trim(self) -> None:
        """Takes work and events from those that are now beyond the budget; they stay beyond it."""
        while self._without_work < len(self._past):
            if self._work - self._until[self._without_work][0] < KEPT_WORK:
                break
            self._past[self._without_work] = without_work(self._past[self._without_work])
            self._without_work += 1
        while self._without_events < len(self._past):
            if self._events - self._until[self._without_events][1] < KEPT_EVENTS:
                break
            self._past[self._without_events] = without_events(self._past[self._without_events])
            self._without_events += 1


def _read_anew(before: Snapshot | None, now: Snapshot) -> bool:
    """Whether these have other block columns, and such as are not read at every look."""
    old, new = before.kvcache if before is not None else None, now.kvcache
    return old is not None and new is not None and new.columns_ns is not None and old.columns_ns != new.columns_ns


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
