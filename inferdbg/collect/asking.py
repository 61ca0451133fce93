"""How one probe is asked: here and now, or in a child that may never answer. Both remember what it last said."""

from typing import Protocol

import msgspec
from msgspec import Struct

from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import ProbeReport, ProbeStatus
from inferdbg.facts.snapshot import SECTION_TYPES
from inferdbg.text import duration

from .child import Child, ChildDied
from .clock import Clock
from .merge import carried
from .probe import SECOND, Probe, Reading
from .wire import Answer

MOST_CHILDREN = 3
"""Killed but not yet dead children of one probe; with that many it is asked no more until one of them dies."""
_LONGEST_PAUSE_NS = 30 * SECOND


class Asking(Protocol):
    """One probe over the rounds."""

    def begin(self, now_ns: int) -> None:
        """Asks, if it is due."""

    def finish(self, patience_ns: int) -> None:
        """Takes the answer, waiting for it at most ``patience_ns``."""

    def sections(self) -> dict[str, Struct]:
        """What it said last; what is only news is given once."""

    def report(self, now_ns: int) -> ProbeReport: ...

    @property
    def mono_ns(self) -> int | None:
        """The moment that its last reading speaks of, where it knew better than we."""

    @property
    def life(self) -> int | None:
        """Which server it speaks of, as in Reading."""

    def close(self) -> None: ...


class _Remembering:
    """What a probe said last, and how it fared."""

    def __init__(self, probe: Probe, clock: Clock) -> None:
        self.probe = probe
        self.clock = clock
        self.mono_ns: int | None = None
        self.life: int | None = None
        self._sections: dict[str, Struct] = {}
        self._status: ProbeStatus = "ok"
        self._message = self._hint = ""
        self._cost_ns = 0
        self._asked_ns: int | None = None  # when it was last asked
        self._answered_ns: int | None = None  # when it was asked what it last answered well

    def due(self, now_ns: int) -> bool:
        """A little early counts: rounds do not come on the nanosecond."""
        return self._asked_ns is None or now_ns - self._asked_ns >= self.probe.cadence_ns * 9 // 10

    def sections(self) -> dict[str, Struct]:
        given = self._sections
        self._sections = {name: carried(section) for name, section in given.items()}
        return given

    def report(self, now_ns: int) -> ProbeReport:
        return ProbeReport(
            self.probe.name,
            self._status,
            tuple(self.probe.sections),
            self._cost_ns,
            self._answered_ns,
            self._message,
            self._hint,
        )

    def heard(self, reading: Reading, asked_ns: int, cost_ns: int) -> None:
        known = self._sections if reading.status == "failed" else {}  # what it said before stands
        self._sections = {**known, **reading.sections}
        self._status, self._message, self._hint = reading.status, reading.message, reading.hint
        self._cost_ns = cost_ns
        self.mono_ns = reading.mono_ns
        if reading.life is not None:
            self.life = reading.life
        if reading.status in ("ok", "torn", "stale"):
            self._answered_ns = asked_ns

    def failed(self, message: str, hint: str = "", cost_ns: int = 0) -> None:
        """What it said before stands, with the age that it has."""
        self._status, self._message, self._hint, self._cost_ns = "failed", message, hint, cost_ns


class AskedHere(_Remembering):
    """A probe that does not block: read on this thread, while the children work."""

    _due_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        self._due_ns = now_ns if self.due(now_ns) else None

    def finish(self, patience_ns: int) -> None:
        now_ns, self._due_ns = self._due_ns, None
        if now_ns is None:
            return
        self._asked_ns = now_ns
        started = self.clock.mono_ns()  # those before it may have taken long: rates are of when it was read
        try:
            reading = self.probe.read(started)
        except InferdbgError as error:
            self.failed(error.message, error.hint, self.clock.mono_ns() - started)
        except Exception as error:  # noqa: BLE001  # whatever a probe raises is reported as its failure
            self.failed(f"{type(error).__name__}: {error}", cost_ns=self.clock.mono_ns() - started)
        else:
            self.heard(reading, now_ns, self.clock.mono_ns() - started)

    def close(self) -> None:
        self.probe.close()


class AskedInChild(_Remembering):
    """A probe that may block: read in a child, which is killed past the deadline and replaced, ever more slowly."""

    def __init__(self, probe: Probe, clock: Clock) -> None:
        super().__init__(probe, clock)
        self._child: Child | None = None
        self._waiting = False  # for an answer to what was asked at _asked_ns
        self._dying: list[Child] = []
        self._failures = 0
        self._first_asked_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        pause = min(_LONGEST_PAUSE_NS, self.probe.deadline_ns << min(self._failures, 8)) if self._failures else 0
        return super().due(now_ns) and (self._asked_ns is None or now_ns - self._asked_ns >= pause)

    def begin(self, now_ns: int) -> None:
        self._dying = [child for child in self._dying if not child.gone()]
        if self._waiting or not self.due(now_ns) or len(self._dying) >= MOST_CHILDREN:
            return
        self._asked_ns = now_ns
        if self._first_asked_ns is None:
            self._first_asked_ns = now_ns
        try:
            if self._child is None:
                self._child = Child(self.probe)
            self._child.ask(now_ns)
        except (ChildDied, OSError) as error:
            self._replace(f"no child to read it in: {error}")
        else:
            self._waiting = True

    def finish(self, patience_ns: int) -> None:
        if not self._waiting or self._child is None or self._asked_ns is None:
            return
        left = self._asked_ns + self.probe.deadline_ns - self.clock.mono_ns()
        try:
            answer = self._child.take(max(0, min(patience_ns, left)))
        except ChildDied as error:
            self._replace(str(error))
            return
        if answer is not None:
            self._waiting, self._failures = False, 0
            self._take(answer, self._asked_ns)
        elif self.clock.mono_ns() - self._asked_ns >= self.probe.deadline_ns:
            self._replace("")
            self._status = "not answering"

    def report(self, now_ns: int) -> ProbeReport:
        report = super().report(now_ns)
        if self._status == "not answering":
            since = self._answered_ns if self._answered_ns is not None else self._first_asked_ns
            silent = duration(now_ns - since) if since is not None else "a while"
            text = f"not answering for {silent}"
            if len(self._dying) >= MOST_CHILDREN:
                text += f"; {len(self._dying)} reads hang in the kernel and cannot be ended"
            return msgspec.structs.replace(report, message=text)
        if self._answered_ns is None and self._waiting and self._status == "ok":
            return msgspec.structs.replace(report, status="stale", message="its first answer is on the way")
        return report

    def close(self) -> None:
        self._kill()
        for child in self._dying:
            child.wait()

    def _take(self, answer: Answer, asked_ns: int) -> None:
        try:
            sections: dict[str, Struct] = {
                name: msgspec.msgpack.decode(raw, type=SECTION_TYPES[name])
                for name, raw in answer.sections.items()
                if name in SECTION_TYPES
            }
        except msgspec.DecodeError as error:
            self.failed(f"its answer makes no sense: {error}")
            return
        self.heard(
            Reading(sections, answer.status, answer.message, answer.hint, answer.mono_ns, answer.life),
            asked_ns,
            answer.cost_ns,
        )

    def _replace(self, message: str) -> None:
        """Another one is started when the probe is next due."""
        self._waiting = False
        self._failures += 1
        self._kill()
        self.failed(message)

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._dying.append(self._child)
            self._child = None
