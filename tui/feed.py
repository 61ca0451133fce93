"""Turns a Source into Frames on a thread of its own: takes in what is new, stands still, plays, scrubs and steps."""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Literal, NamedTuple

from inferdbg.diagnosis.finding import Finding
from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.source import Source
from inferdbg.facts.window import SECOND, Window

from .frame import Frame, Mode

THINK_EVERY_NS = SECOND
"""While time runs, findings may be this old: rules look at every block, which would cost more than the screen."""
Diagnose = Callable[[Window], Sequence[Finding]]


class Wish(NamedTuple):
    """What a person wants of time. ``pause``: stop or go on. ``scrub``: move by ``amount`` ns. ``step``: to the next
    (+1) or previous (-1) Snapshot. ``first`` and ``last``: the ends of what can be shown."""

    kind: Literal["pause", "scrub", "step", "first", "last", "stop"]
    amount: int = 0


class Feed:
    """Where in time the screen stands. Not for two threads at once. ``at_ns``: the moment to begin with, held.

    ``_at_ns`` is the moment held, None while following the last one.
    """

    def __init__(
        self, source: Source, diagnose: Diagnose, interval_ns: int = SECOND // 4, at_ns: int | None = None
    ) -> None:
        self._source = source
        self._diagnose = diagnose
        self._interval_ns = interval_ns
        self._at_ns = at_ns
        self._playing = source.live and at_ns is None
        self._still = False  # nothing new came
        self._grew = True
        self._seen: Window | None = None
        self._seen_at_ns: int | None = None  # the moment that it was asked for
        self._ails: InferdbgError | None = None  # the source's problem there
        self._findings: tuple[Finding, ...] = ()
        self._diagnosed: Snapshot | None = None
        self._sent: Frame | None = None

    def tick(self) -> Frame | None:
        """Takes in what is new and lets a playing recording go on; a Frame when there is something else to show.

        Raises InferdbgError when nothing could be read yet; later such an error goes into the Frame."""
        problem: InferdbgError | None = None
        try:
            self._grew = self._source.advance()
            self._still = not self._grew and self._source.live
        except InferdbgError as error:
            if self._seen is None:
                raise
            problem = InferdbgError(f"nothing new: {error.message}", error.hint)
        if self._playing and self._at_ns is not None:
            self._move_to(self._at_ns + self._interval_ns)
        return self._frame(problem)

    def obey(self, wish: Wish) -> Frame | None:
        """Does what is wished; a Frame when that shows something else."""
        shown = self._window()
        at_ns = shown.now.mono_ns if self._at_ns is None else self._at_ns
        first_ns, last_ns = self._source.span()
        if wish.kind == "pause":
            self._pause(at_ns)
        elif wish.kind == "scrub":
            self._hold(at_ns + wish.amount)
        elif wish.kind == "step":
            self._hold(self._next_ns(shown) if wish.amount > 0 else self._previous_ns(shown))
        elif wish.kind == "first":
            self._hold(first_ns)
        else:
            self._hold(last_ns)
        return self._frame(None)

    def _pause(self, at_ns: int) -> None:
        if self._playing:
            self._playing, self._at_ns = False, at_ns
            return
        self._playing = True
        if self._source.live:
            self._at_ns = None
        else:
            first_ns, last_ns = self._source.span()
            self._at_ns = first_ns if at_ns >= last_ns else at_ns

    def _hold(self, at_ns: int) -> None:
        """Stands at that moment; at the end of a live source goes on following it."""
        last_ns = self._source.span()[1]
        if self._source.live and at_ns >= last_ns:
            self._at_ns, self._playing = None, True
            return
        if self._source.live:
            self._playing = False
        self._move_to(at_ns)

    def _move_to(self, at_ns: int) -> None:
        first_ns, last_ns = self._source.span()
        self._at_ns = min(last_ns, max(first_ns, at_ns))
        if self._at_ns == last_ns and not self._source.live:
            self._playing = False

    def _previous_ns(self, shown: Window) -> int:
        first_ns = self._source.span()[0]
        before_ns = shown.now.mono_ns - 1
        return first_ns if before_ns < first_ns else self._source.window(before_ns).now.mono_ns

    def _next_ns(self, shown: Window) -> int:
        """Looks further and further ahead until a newer Snapshot is found, then for the first of these."""
        now_ns = shown.now.mono_ns
        last_ns = self._source.span()[1]
        ahead_ns = self._interval_ns
        while now_ns + ahead_ns < last_ns:
            window = self._source.window(now_ns + ahead_ns)
            if window.now.mono_ns > now_ns:
                return next(s.mono_ns for s in window.snapshots if s.mono_ns > now_ns)
            ahead_ns *= 2
        window = self._source.window(last_ns)
        return next((s.mono_ns for s in window.snapshots if s.mono_ns > now_ns), last_ns)

    def _window(self) -> Window:
        moved = self._at_ns != self._seen_at_ns or (self._at_ns is None and self._grew)
        if self._seen is None or moved:  # to read a moment of a recording takes tens of milliseconds
            window = self._source.window(self._at_ns)
            self._seen_at_ns, self._ails = self._at_ns, self._source.problem
            if self._seen is None or window.now is not self._seen.now:
                self._seen = window
        if self._diagnosed is not self._seen.now and not (self._playing and self._thought_lately(self._seen.now)):
            found = self._diagnose(self._seen)
            self._findings = tuple(finding for finding in found if not self._next_look_tells(finding))
            self._diagnosed = self._seen.now if len(self._findings) == len(found) else None
        return self._seen

    def _thought_lately(self, now: Snapshot) -> bool:
        """Never of what stands still: of a dead engine no later look comes that would be thought about; nor of one that
        has just died."""
        if self._diagnosed is None or self._still or _state(self._diagnosed) != _state(now):
            return False
        return 0 <= now.mono_ns - self._diagnosed.mono_ns < THINK_EVERY_NS

    def _next_look_tells(self, finding: Finding) -> bool:
        """What may be so by the one look there is of a target that can be looked at again is not said yet."""
        return self._source.live and self._at_ns is None and finding.confidence == "possible"

    def _frame(self, problem: InferdbgError | None) -> Frame | None:
        span = self._source.span()
        if self._at_ns is not None:
            self._at_ns = max(span[0], self._at_ns)  # the beginning of a live source is forgotten
        window = self._window()
        problem = problem or (self._source.problem if self._source.live else self._ails)
        frame = Frame(
            window,
            self._findings,
            self._mode(span),
            self._source.live,
            self._source.title,
            span,
            problem.message if problem is not None else "",
            problem.hint if problem is not None else "",
        )
        if self._sent is not None and _same(frame, self._sent):
            return None
        self._sent = frame
        return frame

    def _mode(self, span: tuple[int, int]) -> Mode:
        if self._source.live:
            return "live" if self._at_ns is None else "paused"
        if span[0] == span[1]:
            return "fixed"
        return "playing" if self._playing else "paused"


def _state(snapshot: Snapshot) -> str | None:
    return snapshot.server.state if snapshot.server is not None else None


def _same(one: Frame, other: Frame) -> bool:
    return (
        one.window is other.window
        and one.findings is other.findings
        and (one.mode, one.span, one.problem) == (other.mode, other.span, other.problem)
    )


class FeedThread(Thread):
    """Runs a Feed: ticks at the interval, obeys wishes at once. ``deliver`` gets Frames, ``failed`` what ended it."""

    def __init__(
        self, feed: Feed, interval_s: float, deliver: Callable[[Frame], object], failed: Callable[[Exception], object]
    ) -> None:
        super().__init__(name="inferdbg-feed", daemon=True)
        self._feed = feed
        self._interval_s = interval_s
        self._deliver = deliver
        self._failed = failed
        self._wishes: SimpleQueue[Wish] = SimpleQueue()

    def wish(self, wish: Wish) -> None:
        self._wishes.put(wish)

    def stop(self, patience_s: float = 2.0) -> None:
        """Ends the thread, or leaves it to its end when a probe keeps it longer than ``patience_s``."""
        self._wishes.put(Wish("stop"))
        self.join(patience_s)

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  the thread has no caller: the screen shows it and ends
            self._failed(error)

    def _run(self) -> None:
        due_s = monotonic()
        while True:
            self._send(self._feed.tick())
            due_s = max(due_s + self._interval_s, monotonic())
            while (wish := self._next_wish(due_s)) is not None:
                if wish.kind == "stop":
                    return
                self._send(self._feed.obey(wish))

    def _next_wish(self, due_s: float) -> Wish | None:
        """The next wish until the time ``due_s``, None when it came without one."""
        try:
            return self._wishes.get(timeout=max(0.001, due_s - monotonic()))
        except Empty:
            return None

    def _send(self, frame: Frame | None) -> None:
        if frame is not None:
            self._deliver(frame)
