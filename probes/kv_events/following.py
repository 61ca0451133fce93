"""One publisher's batches in order: what is a gap, what a repetition, what a new start of the server.

        seq   0  1  2  3  .  .  6  7                 awaited = 4, waiting = {6, 7}: a gap of two batches
                       ▲        └── came live         the replay socket is asked for 4 and what follows;
                    applied                           what it does not have any more is missed for good

Pure: it is fed, and says what to ask for. A number that goes back while the server's clock goes on is a server that
started again; with the clock standing it is a repetition (what was replayed comes live once more).

A replay socket that cannot send as fast as it wants to drops messages without a word (a ROUTER's high-water mark, 1000
by default), its end mark too: hence an answer that is long, or has no end, is asked for its continuation.
"""

from typing import Protocol

from inferdbg.facts.window import SECOND

from .batches import Batch

MOST_WAITING = 20_000
"""Batches held back behind a gap; a server keeps 10,000 for replay unless told otherwise."""
PATIENCE_NS = 2 * SECOND
"""How long the replay socket may stay silent before what it was asked for is given up."""
MOST_TRIES = 3
"""Questions in a row that brought nothing new."""
QUIET_NS = 5 * SECOND
"""After so long without a batch it is asked whether there were any: the last one may have been lost."""
_LONG_ANSWER = 500


class Listener(Protocol):
    """Who is told of one publisher's batches."""

    def apply(self, batch: Batch, now_ns: int) -> None:
        """The next batch in order."""

    def missed(self, count: int, *, at_start: bool) -> None:
        """``count`` batches before the next one were not to be had; ``at_start``: nothing before them was heard."""

    def restarted(self) -> None:
        """The server began anew; its batches count from 0."""


class Following:
    """``replays``: there is a replay socket to ask."""

    def __init__(self, listener: Listener, *, replays: bool) -> None:
        self._listener = listener
        self._replays = replays
        self.restarts = 0
        self.replayed = 0
        self.repeated = 0
        self._begin()

    def _begin(self) -> None:
        self.missed: int | None = None
        """Batches that were not to be had since the start of the server; None: none seen yet."""
        self.caught_up = not self._replays
        """What was published before we joined is here, or is not to be had."""
        self._awaited = 0
        self._waiting: dict[int, Batch] = {}
        self._first: tuple[int, int] | None = None  # number and time of the first one applied
        self._newest_ns = 0
        self._heard_ns: int | None = None
        self._asked_ns: int | None = None  # the question under way: when it was asked, or last answered
        self._answer_from: int | None = None  # first number of its answer
        self._answered = 0  # batches of its answer
        self._asked_behind = False  # there was a gap when it was asked
        self._ask_on = self._replays
        self._tries = 0
        self._wanting_ns: int | None = None  # since when there is a question that could not be put
        self._silent_until_ns = 0

    @property
    def waiting(self) -> int:
        """Batches held back behind a gap."""
        return len(self._waiting)

    @property
    def untouched(self) -> bool:
        """No batch came yet."""
        return self._first is None and not self._waiting

    def live(self, seq: int, batch: Batch, now_ns: int) -> None:
        """A batch came by subscription."""
        if self._is_new_start(seq, batch):
            self.restarts += 1
            self._listener.restarted()
            self._begin()
        self._heard_ns = now_ns
        self._take(seq, batch, now_ns)

    def replay(self, seq: int, batch: Batch, now_ns: int) -> None:
        """A batch came from the replay socket."""
        self._heard_ns = self._asked_ns = now_ns
        if self._answer_from is None:
            self._answer_from = seq
        self._answered += 1
        self.replayed += self._take(seq, batch, now_ns)

    def replay_ended(self, now_ns: int) -> None:
        """The replay socket said all it has."""
        self._heard_ns = now_ns
        self._conclude(now_ns, ended=True)

    def wanted(self, now_ns: int) -> int | None:
        """The number from which to ask the replay socket now; None: nothing to ask. ``asked`` says that it was."""
        if not self._replays or self._asked_ns is not None or now_ns < self._silent_until_ns:
            return None
        quiet = self._heard_ns is None or now_ns - self._heard_ns >= QUIET_NS
        if not (self._ask_on or quiet or self._waiting):
            return None
        if self._wanting_ns is None:
            self._wanting_ns = now_ns
        return self._awaited

    def asked(self, now_ns: int) -> None:
        """The question is put."""
        self._asked_ns = self._heard_ns = now_ns
        self._answer_from, self._answered, self._ask_on, self._wanting_ns = None, 0, False, None
        self._asked_behind = bool(self._waiting)
        self._tries += 1

    def settle(self, now_ns: int) -> None:
        """Everything that had come is fed: a gap that nobody will fill is passed over."""
        since = self._asked_ns if self._asked_ns is not None else self._wanting_ns
        if since is not None and now_ns - since >= PATIENCE_NS:
            if self._asked_ns is not None and self._answer_from is not None:
                self._conclude(now_ns, ended=False)
            else:
                self._asked_ns = self._wanting_ns = None
                self._ask_on, self.caught_up = False, True
                self._silent_until_ns, self._heard_ns = now_ns + QUIET_NS, now_ns
        if self._waiting and (not self._replays or now_ns < self._silent_until_ns):
            self._give_up(now_ns)

    def _conclude(self, now_ns: int, *, ended: bool) -> None:
        """What lies before the first batch of an answer is gone for good; a hole further on was lost on the way."""
        self._asked_ns = None
        if self._waiting:
            first = min(self._waiting)
            gone = self._asked_behind if self._answer_from is None else self._answer_from >= first
            if gone or self._tries >= MOST_TRIES:
                self._skip_to(first, now_ns)
        self._ask_on = self._tries < MOST_TRIES and (not ended or self._answered >= _LONG_ANSWER)
        self.caught_up |= not self._ask_on and not self._waiting
        if not self._ask_on and not self._waiting:
            self._tries = 0

    def _is_new_start(self, seq: int, batch: Batch) -> bool:
        if self._first is None or seq >= self._awaited or not batch.readable:
            return False
        first, first_ns = self._first
        if seq <= first:
            return batch.wall_ns > first_ns or (seq == first and batch.wall_ns != first_ns)
        return batch.wall_ns > self._newest_ns

    def _take(self, seq: int, batch: Batch, now_ns: int) -> bool:
        """Whether it is news."""
        if seq < self._awaited or seq in self._waiting:
            self.repeated += 1
            return False
        self._waiting[seq] = batch
        self._proceed(now_ns)
        if len(self._waiting) > MOST_WAITING:
            self._give_up(now_ns)
        return True

    def _proceed(self, now_ns: int) -> None:
        while (batch := self._waiting.pop(self._awaited, None)) is not None:
            if self._first is None:
                self._first = (self._awaited, batch.wall_ns)
            if self.missed is None:
                self.missed = 0
            self._newest_ns = max(self._newest_ns, batch.wall_ns)
            self._awaited += 1
            self._tries = 0
            self._listener.apply(batch, now_ns)

    def _skip_to(self, seq: int, now_ns: int) -> None:
        count = seq - self._awaited
        self.missed = (self.missed or 0) + count
        self._awaited = seq
        self._listener.missed(count, at_start=self._first is None)
        self._proceed(now_ns)

    def _give_up(self, now_ns: int) -> None:
        while self._waiting:
            self._skip_to(min(self._waiting), now_ns)
