"""Queues between the engine's threads, threads that are missing, and requests that only one side knows."""

from collections.abc import Iterator, Mapping

from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.wiring import DeadThread, Queue, Stray, Wiring

from ..pymem.memory import Unreadable
from ..pymem.opening import open_process
from ..pymem.path import follow
from ..pymem.reader import Reader
from .engine import Engine, Seen
from .front import Front, FrontRequest

_FRONT_EVERY_NS = 900_000_000
_TRY_AGAIN_NS = 10_000_000_000


class Wires:
    """``problem``: why the front end's requests are not known."""

    def __init__(self, engine: Engine, front_pid: int | None) -> None:
        self.engine = engine
        self.problem = ""
        self._front_pid = front_pid
        self._reader: Reader | None = None
        self._front: Front | None = None
        self._requests: dict[str, FrontRequest] | None = None
        self._front_ns: int | None = None
        self._try_ns = 0
        self._queues: dict[str, int] | None = None
        self._missing_since: dict[str, int] = {}
        self._strays: dict[tuple[str, str], int] = {}

    def front_requests(self, now_ns: int) -> Mapping[str, FrontRequest]:
        """What the front end waits for, by id; once a second. Empty where it cannot be looked at."""
        due = self._front_ns is None or now_ns - self._front_ns >= _FRONT_EVERY_NS
        if self._front_pid is not None and due and now_ns >= self._try_ns:
            try:
                self._requests = self._look(self._front_pid)
                self._front_ns, self.problem = now_ns, ""
            except InferdbgError as error:
                self._requests = None
                self.problem = f"the front end's requests are not known: {error.message}"
                self._close_front()
                self._try_ns = now_ns + _TRY_AGAIN_NS
        return self._requests or {}

    def section(self, seen: Seen, numbers: Mapping[str, int], origin: Origin) -> Wiring:
        now_ns = origin.mono_ns
        return Wiring(
            origin=origin,
            queues=tuple(self._lengths()),
            threads=tuple(thread.name or "?" for thread in self.engine.running),
            dead_threads=tuple(self._dead(now_ns)),
            front_requests=len(self._requests) if self._requests is not None else None,
            engine_requests=seen.look.total if seen.look is not None else None,
            strays=tuple(self._compare(seen, numbers, now_ns)),
        )

    def close(self) -> None:
        self._close_front()

    def _look(self, pid: int) -> dict[str, FrontRequest]:
        if self._reader is None:
            self._reader = open_process(pid)
        self._reader.memory.check()
        if self._front is None:
            self._front = Front(self._reader, self.engine.names)
        return self._front.requests()

    def _close_front(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._front = None

    def _lengths(self) -> Iterator[Queue]:
        """A deque has its length at +16."""
        objects, reader = self.engine.objects, self.engine.reader
        if objects is None:
            return
        if self._queues is None:
            self._queues = {}
            for word, paths in self.engine.names.queues.items():
                for path in paths:
                    try:
                        place = follow(reader, {"self": objects.root}, path)
                        if reader.type_of(place).kind == "deque":
                            self._queues[word] = place
                            break
                    except InferdbgError:
                        reader.memory.check()
        for word, place in self._queues.items():
            try:
                yield Queue(word, reader.word(place + 16))
            except Unreadable:
                continue

    def _dead(self, now_ns: int) -> Iterator[DeadThread]:
        """Those that the map names and that are not there."""
        there = [thread.name or "" for thread in self.engine.running]
        for name, does in self.engine.names.threads.items():
            if any(name in one for one in there):
                self._missing_since.pop(name, None)
            else:
                yield DeadThread(name, does, self._missing_since.setdefault(name, now_ns))

    def _compare(self, seen: Seen, numbers: Mapping[str, int], now_ns: int) -> Iterator[Stray]:
        """Requests on one side only. With several cores or front ends one of them does not know all."""
        front, look = self._requests, seen.look
        if front is None or look is None or self.engine.facts.get("engines") not in (1, None):
            return
        if any(row.client for row in look.rows):
            return
        if not seen.consistent or self._front_ns != now_ns:
            known = list(self._strays)
        else:
            ids = {row.id for row in look.rows}
            whole = look.total == len(look.rows)
            known = [("front end", name) for name in front if whole and name not in ids]
            known += [("engine", name) for name in ids if name not in front]
            self._strays = {key: self._strays.get(key, now_ns) for key in known}
        for side, name in known:
            since_ns = self._strays[side, name]
            if side == "engine":
                yield Stray(name, "engine", since_ns, numbers.get(name))
            else:
                yield Stray(name, "front end", since_ns)
