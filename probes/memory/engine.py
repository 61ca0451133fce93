"""One engine core, alive, hung or as a core file: its thread, its objects, and looks at them that say what they are
worth."""

import time
from contextlib import suppress
from typing import NamedTuple

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

PATIENCE_NS = 120_000_000
"""How long a look is tried again until it is consistent, _MOST_TRIES times at most: each costs some ms of ours."""
_MOST_TRIES = 20
_LOOKS = 4
_TURN_NS = 20_000_000
_PAUSE_S = 0.0002


class Seen(NamedTuple):
    """``look``: None when not even torn numbers were to be had; ``label`` says why then, and otherwise what the look
    is worth. ``step``: number of the step that the engine is in, or that was its last."""

    look: Look | None
    label: str
    standing: Standing
    step: int | None
    consistent: bool


class _Moving(Unreadable):
    """It is not worth while to look now: the thread is in the middle of a change."""


class Engine:
    """``reader`` of its process or core. ``running``: its threads as they were last looked at. ``objects``: None
    while no thread runs its loop."""

    def __init__(self, reader: Reader, names: EngineMap) -> None:
        self.reader = reader
        self.names = names
        self.running: list[Thread] = []
        self.objects: Objects | None = None
        self.standing = Standing(None, None, None)
        self.version = _version(reader, names.module)
        self._looker: Looker | None = None
        self._refreshed_ns: int | None = None
        self._frames: tuple[Frame, ...] = ()
        self._counted: int | None = None

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
            self._looker = Looker(self.reader, self.names, self.objects)

    def _loop(self) -> Thread | None:
        """The thread that runs the engine. A stack that moved while it was walked may lack a call: so another look
        before it is believed to be gone."""
        for _ in range(_LOOKS):
            self.running = threads(self.reader)
            with suppress(Unreadable):
                return loop_of(self.names, self.running)[0]
        return None

    def look(self, *, pool: bool) -> Seen:
        """A consistent look if one can be had in PATIENCE_NS, else a torn one with its label."""
        looker, objects = self._looker, self.objects
        assert looker is not None
        assert objects is not None
        begun_ns = time.monotonic_ns()
        last: Seen | None = None
        label = ""
        tries = 0
        while True:
            late = tries >= _MOST_TRIES or time.monotonic_ns() - begun_ns > PATIENCE_NS
            try:
                reading = take(
                    self.reader,
                    objects.thread,
                    lambda: looker.take(standing_of(self.names, self._frames).step, pool=pool),
                    changing=self.names.changing,
                    loop=self.names.steps,
                    counter=self._counter,
                    seen=self._settled if not late else self._any,
                    tries=1,
                )
            except Gone:
                raise
            except _Moving:
                time.sleep(_PAUSE_S)
                continue
            except Unreadable as error:
                self.reader.memory.check()
                tries += 1
                label = error.message
                if late:
                    return last or Seen(None, label, self._stand(), self._step(), consistent=False)
                time.sleep(_PAUSE_S)
                continue
            tries += 1
            standing = standing_of(self.names, reading.frames)
            last = Seen(reading.value, str(reading), standing, self._counted, reading.label == "consistent")
            if late or last.consistent:
                return last
            self._await_next_step()

    def _settled(self, frames: tuple[Frame, ...]) -> None:
        self._frames = frames
        if any(frame.function in self.names.changing for frame in frames):
            raise _Moving("in the middle of a change")
        standing = standing_of(self.names, frames)
        if standing.step is None and standing.phase != "idle":
            raise _Moving("between two steps")

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


def _version(reader: Reader, module: str) -> str | None:
    try:
        names = reader.module_dict(reader.modules()[module])
        found = read(reader, names["__version__"], Limits(depth=0))
    except (InferdbgError, KeyError):
        return None
    return found if isinstance(found, str) else None
