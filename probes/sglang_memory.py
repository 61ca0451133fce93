"""SGLang's own objects, read from outside: nothing is asked, stopped or written.

Its map was made by reading its source and has never met an SGLang that runs: the probe says so with every reading.
"""

import time
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Requests

from .maps.sglang import LOOPS, MAP, SEEN_AS
from .memory.batches import BatchEngine, BatchLooker, PoolTokens
from .memory.engine import Seen, what_lacks
from .memory.past import Past
from .pymem.frames import threads
from .pymem.opening import open_process
from .pymem.reader import Reader

_THREADS_EVERY_NS = SECOND


@dataclass
class SglangMemory:
    """``core_pid``: a scheduler's process. ``first_number``: of requests, where others were numbered before. Raises
    InferdbgError where its memory may not be read, or it is no CPython or no SGLang that we know."""

    core_pid: int
    front_pid: int | None = None
    first_number: int = 1

    name = "memory"
    sections = ("server", "pulse", "scheduler", "requests", "kvcache", "steps", "events")
    cadence_ns = SECOND // 4
    deadline_ns = 5 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._reader: Reader | None = None
        self._engine: BatchEngine | None = None
        self._past = Past(self.first_number)

    def read(self, now_ns: int) -> Reading:
        if self._reader is None:
            self._reader = open_process(self.core_pid)
        if self._engine is None or self._engine.objects is None:
            self._engine = BatchEngine(self._reader, replace(MAP, loop=_loop(self._reader)))
        engine = self._engine
        engine.refresh(now_ns, _THREADS_EVERY_NS)
        if engine.objects is None:
            return self._without_loop(engine, now_ns)
        seen = engine.look(pool=False)
        read_ns = time.monotonic_ns()
        origin = Origin(self.name, read_ns)
        sections = self._past.sections(engine, seen, {}, read_ns - time.time_ns(), origin, many=False)
        looker = engine.reads
        if seen.look is not None and isinstance(looker, BatchLooker):
            held = sections.get("requests")
            if isinstance(held, Requests):
                sections["requests"] = _with_extras(held, looker)
            cache = kvcache(looker.tokens, origin)
            if cache is not None:
                sections["kvcache"] = cache
        return Reading(sections, "ok" if seen.consistent else "torn", _words(engine, seen), mono_ns=read_ns)

    @property
    def upcoming(self) -> int:
        """The number of the next request."""
        return self._past.upcoming

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._engine = None

    def _without_loop(self, engine: BatchEngine, now_ns: int) -> Reading:
        phase = engine.standing.phase
        sections: dict[str, Struct] = {}
        if phase is not None:
            sections["pulse"] = Pulse(Origin(self.name, now_ns), None, 0, phase, self._past.since(None, phase, now_ns))
            return Reading(sections, message=f"the scheduler starts: it does not run steps yet; {SEEN_AS}")
        return Reading(
            sections,
            status="absent",
            message=f"no thread of process {self.core_pid} is in an event loop that we know of SGLang; {SEEN_AS}",
            hint=f"py-spy dump --nonblocking --pid {self.core_pid}",
        )


def kvcache(tokens: PoolTokens, origin: Origin) -> KVCache | None:
    """Pages as blocks: counts only, who holds which stands in a tensor that may be on the GPU. Pages that a prefix is
    kept in and no request holds are cached ones."""
    page = tokens.page_size
    if not tokens.size or not page:
        return None
    pages = tokens.size // page
    free = tokens.free // page if tokens.free is not None else None
    cached = tokens.evictable // page if tokens.evictable is not None else None
    used = max(0, pages - free - cached) if free is not None and cached is not None else None
    return KVCache(origin, pages, page, free_blocks=free, cached_blocks=cached, used_blocks=used)


def _with_extras(held: Requests, looker: BatchLooker) -> Requests:
    items = []
    for request in held.items:
        extra = looker.extras.get(request.id)
        items.append(
            replace(request, cached_tokens=extra.cached_tokens, adapter=extra.adapter) if extra is not None else request
        )
    return replace(held, items=tuple(items))


def _loop(reader: Reader) -> str:
    """The event loop that this server runs."""
    running = threads(reader)
    return next((name for name in LOOPS if any(thread.frame(name) is not None for thread in running)), LOOPS[0])


def _words(engine: BatchEngine, seen: Seen) -> str:
    return "; ".join([SEEN_AS, *what_lacks(seen, "SGLang", engine.missing)])
