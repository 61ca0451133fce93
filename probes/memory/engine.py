"""One engine core, alive, hung or as a core file: its thread, its objects, and looks at them that say what they are
worth."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from inferdbg import text
from inferdbg.errors import InferdbgError

from ..maps import EngineMap
from ..pymem.frames import Frame, Thread, stack, threads
from ..pymem.memory import Gone, Process, Unreadable
from ..pymem.objects import read
from ..pymem.reader import Reader
from ..pymem.reading import take
from ..pymem.values import Limits
from .found import Fact, Objects, find_objects, loop_of
from .look import Look, Looker
from .standing import Standing, standing_of

PATIENCE_NS = 250_000_000
"""How long a look is tried again until it is consistent, _MOST_TRIES times at most: each costs some ms of ours."""
_MOST_TRIES = 20
_LOOKS = 4
_LASTS_NS = 2_000_000
"""A call that lasts longer may be the model itself, where that runs in the engine's own thread."""
_TURN_NS = 50_000_000
_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.002


class Seen(NamedTuple):
    """``look``: None when not even torn numbers were to be had; ``label`` says why then, and otherwise what the look
    is worth. ``step``: number of the step that the engine is in, or that was its last."""

    look: Look | None
    label: str
    standing: Standing
    step: int | None
    consistent: bool


class Looking(Protocol):
    """What reads an engine at one moment. ``missing``: what this version does not have."""

    @property
    def missing(self) -> tuple[str, ...]: ...

    def take(self, step: Frame | None, *, pool: bool, again: bool = True) -> Look: ...

    def step_number(self) -> int | None: ...


class _Moving(Unreadable):
    """It is not worth while to look now: the thread is in the middle of a change."""


class Engine:
    """``reader`` of its process or core. ``running``: its threads as they were last looked at. ``objects``: None
    while no thread runs its loop."""

    looker: Callable[[Reader, EngineMap, Objects], Looking] = Looker

    def __init__(self, reader: Reader, names: EngineMap) -> None:
        self.reader = reader
        self.names = names
        self.running: list[Thread] = []
        self.objects: Objects | None = None
        self.standing = Standing(None, None, None)
        self.version = _version(reader, names.module)
        self._looker: Looking | None = None
        self._refreshed_ns: int | None = None
        self._frames: tuple[Frame, ...] = ()
        self._counted: int | None = None
        self._place: tuple[int | None, int] | None = None
        self._place_ns = 0
        self._torn_in: int | None = None  # step of the last look, if that was torn

    @property
    def pid(self) -> int | None:
        """None of a core file."""
        memory = self.reader.memory
        return memory.pid if isinstance(memory, Process) else None

    @property
    def facts(self) -> dict[str, Fact]:
        return self.objects.facts if self.objects is not None else {}

    @property
    def missing(self) -> tuple[str, ...]:
        """What the map names and this version does not have."""
        found = self.objects.missing if self.objects is not None else ()
        return (*found, *self._looker.missing) if self._looker is not None else found

    @property
    def reads(self) -> Looking | None:
        """What looks at it; None while no thread runs its loop."""
        return self._looker

    def refresh(self, now_ns: int, every_ns: int = 0) -> None:
        """Looks at all threads, if that was not done lately. Gone when the process has ended."""
        if self._refreshed_ns is not None and now_ns - self._refreshed_ns < every_ns * 9 // 10:
            return
        self._refreshed_ns = now_ns
        self.reader.refresh()
        thread = self._loop()
        if thread is None:
            self.objects, self._looker = None, None
            whole = [standing_of(self.names, thread.frames) for thread in self.running]
            self.standing = next((one for one in whole if one.phase is not None), Standing(None, None, None))
            return
        if self.objects is None or self.objects.thread != thread.address:
            self.objects = find_objects(self.reader, self.names, self.running)
            self._looker = type(self).looker(self.reader, self.names, self.objects)

    def _loop(self) -> Thread | None:
        """The thread that runs the engine. A stack that moved while it was walked may lack a call: so another look
        before it is believed to be gone."""
        for _ in range(_LOOKS):
            self.running = threads(self.reader)
            with suppress(Unreadable):
                return loop_of(self.names, self.running)[0]
        return None

    def look(self, *, pool: bool) -> Seen:
        """A consistent look if one can be had in PATIENCE_NS, else a torn one with its label. An engine that hangs in
        the middle of a change is waited for once."""
        begun_ns, tries, pause_s = time.monotonic_ns(), 0, _PAUSE_S
        patience_ns = 0 if self._torn_in is not None and self._torn_in == self._step() else PATIENCE_NS
        while True:
            late = tries >= _MOST_TRIES or time.monotonic_ns() - begun_ns > patience_ns
            try:
                seen = self._once(pool=pool, whatever=late)
            except _Moving:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            tries, pause_s = tries + 1, _PAUSE_S
            if seen.consistent or late:
                self._torn_in = None if seen.consistent else seen.step
                return seen
            if seen.look is not None:
                self._await_next_step()

    def _once(self, *, pool: bool, whatever: bool) -> Seen:
        """One try. Unless ``whatever``, _Moving where it would fall into a change, and what it gives is only worth
        something when it is consistent."""
        looker, objects = self._looker, self.objects
        assert looker is not None
        assert objects is not None
        try:
            reading = take(
                self.reader,
                objects.thread,
                lambda: looker.take(standing_of(self.names, self._frames).step, pool=pool, again=whatever),
                changing=self.names.changing,
                loop=(*self.names.waits, *self.names.steps),
                counter=self._counter,
                seen=self._any if whatever else self._settled,
                tries=1,
            )
        except (Gone, _Moving):
            raise
        except Unreadable as error:
            self.reader.memory.check()
            return Seen(None, error.message, self._stand(), self._step(), consistent=False)
        standing = standing_of(self.names, reading.frames)
        return Seen(reading.value, str(reading), standing, self._counted, reading.label == "consistent")

    def _settled(self, frames: tuple[Frame, ...]) -> None:
        self._frames = frames
        self.refuse_changing(frames)
        standing = standing_of(self.names, frames)
        if standing.step is None and standing.phase != "idle":
            raise _Moving("between two steps")
        if standing.step is None or any(frame.function in self.names.waits for frame in frames):
            return
        place, now_ns = (self._counted, standing.step.instruction), time.monotonic_ns()
        if place != self._place:
            self._place, self._place_ns = place, now_ns
        if now_ns - self._place_ns < _LASTS_NS:
            raise _Moving("about to wait for the model")

    def refuse_changing(self, frames: tuple[Frame, ...]) -> None:
        if any(frame.function in self.names.changing for frame in frames):
            raise _Moving("in the middle of a change")

    def _any(self, frames: tuple[Frame, ...]) -> None:
        self._frames = frames

    def _counter(self) -> int:
        """Remembered: by the time that the reading is over the engine may be in the next step."""
        self._counted = self._step()
        return self._counted or 0

    def _step(self) -> int | None:
        return self._looker.step_number() if self._looker is not None else None

    def _stand(self) -> Standing:
        assert self.objects is not None
        try:
            frames, _ = stack(self.reader, self.objects.thread)
        except Unreadable:
            return Standing(None, None, None)
        return standing_of(self.names, frames)

    def _await_next_step(self) -> None:
        """A step begins with what we must not fall into, and then computes for a while: so the most time is left."""
        before, begun_ns = self._step(), time.monotonic_ns()
        while self._step() == before and time.monotonic_ns() - begun_ns < _TURN_NS:
            time.sleep(_PAUSE_S / 2)


def what_lacks(seen: Seen, engine: str, missing: Sequence[str]) -> list[str]:
    """In words for people; ``missing``: what this version of the engine does not have."""
    words = []
    if seen.look is None:
        words.append(f"requests and blocks could not be read: {seen.label}")
    elif not seen.consistent:
        words.append(f"numbers may not fit together: read {seen.label}")
    if seen.look is not None and seen.look.doubtful:
        words.append(f"{text.counted(seen.look.doubtful, 'request')} changed while they were read and are left out")
    if missing:
        words.append(f"this {engine} does not have {', '.join(missing)}")
    return words


def _version(reader: Reader, module: str) -> str | None:
    try:
        names = reader.module_dict(reader.modules()[module])
        found = read(reader, names["__version__"], Limits(depth=0))
    except (InferdbgError, KeyError):
        return None
    return found if isinstance(found, str) else None
