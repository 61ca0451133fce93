"""vLLM's own objects, read from outside while it runs, hangs or is stopped: nothing is asked, stopped or written.

What is read is bracketed by where the engine's thread stands. A reading that fell into a change, or over several steps,
is shown and says so: status ``torn``. Prompts and outputs are never read, only how long they are.
"""

import time
from dataclasses import dataclass

from msgspec import Struct

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.pulse import Pulse

from .maps import EngineMap
from .maps.vllm_v1 import MAP
from .memory.engine import Engine, Seen, what_lacks
from .memory.past import Past
from .memory.reuse import Reuses
from .memory.wires import Wires
from .pymem.opening import open_process

WHOLE_EVERY_NS = SECOND
"""How often the pool is read where it has more than _EVERY_LOOK_BLOCKS."""
_EVERY_LOOK_BLOCKS = 4096
_THREADS_EVERY_NS = SECOND


@dataclass
class VllmMemory:
    """``core_pid``: the process of the engine core; ``front_pid``: of the front end, None where there is none.
    ``first_number``: of requests, where others were numbered before.

    Raises InferdbgError where their memory may not be read, or the core is no CPython or no vLLM that we know.
    """

    core_pid: int
    front_pid: int | None = None
    first_number: int = 1

    name = "memory"
    sections = ("server", "pulse", "scheduler", "requests", "kvcache", "steps", "events", "wiring")
    cadence_ns = SECOND // 4
    deadline_ns = 5 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self.names: EngineMap = MAP
        self._engine: Engine | None = None
        self._past = Past(self.first_number)
        self._reuses = Reuses()
        self._wires: Wires | None = None
        self._pool_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        if self._engine is None:
            self._engine = Engine(open_process(self.core_pid), self.names)
            self._wires = Wires(self._engine, self.front_pid)
        engine, wires = self._engine, self._wires
        assert wires is not None
        engine.refresh(now_ns, _THREADS_EVERY_NS)
        if engine.objects is None:
            return self._without_loop(engine, now_ns)
        pool = self._pool_due(engine, now_ns)
        seen = engine.look(pool=pool)
        read_ns = time.monotonic_ns()
        origin = Origin(self.name, read_ns)
        if pool and seen.look is not None and seen.look.pool is not None:
            self._pool_ns = read_ns
        front = wires.front_requests(read_ns)
        wall_to_mono_ns = read_ns - time.time_ns()
        told = self._reuses.of(engine, seen)
        sections = self._past.sections(
            engine, seen, front, wall_to_mono_ns, origin, told=told, many=self._is_large(engine)
        )
        sections["wiring"] = wires.section(seen, self._past.numbers, origin)
        return Reading(
            sections,
            "ok" if seen.consistent else "torn",
            _words(engine, seen, wires, self._reuses.missing),
            mono_ns=read_ns,
        )

    @property
    def upcoming(self) -> int:
        """The number of the next request."""
        return self._past.upcoming

    def close(self) -> None:
        if self._wires is not None:
            self._wires.close()
        if self._engine is not None:
            self._engine.reader.close()
        self._engine = self._wires = None

    def _is_large(self, engine: Engine) -> bool:
        blocks = engine.facts.get("config.num_blocks")
        return isinstance(blocks, int) and blocks > _EVERY_LOOK_BLOCKS

    def _pool_due(self, engine: Engine, now_ns: int) -> bool:
        """Looks come a little early, too."""
        if not self._is_large(engine) or self._pool_ns is None:
            return True
        return now_ns - self._pool_ns >= WHOLE_EVERY_NS * 9 // 10

    def _without_loop(self, engine: Engine, now_ns: int) -> Reading:
        """It has not begun to run steps, or does not any more."""
        origin = Origin(self.name, now_ns)
        sections: dict[str, Struct] = {}
        standing = engine.standing
        if standing.phase is not None:
            since_ns = self._past.since(None, standing.phase, now_ns)
            sections["pulse"] = Pulse(origin, None, 0, standing.phase, since_ns)
            return Reading(sections, message="the engine core starts: it does not run steps yet")
        assert self._wires is not None
        sections["wiring"] = self._wires.section(Seen(None, "", standing, None, consistent=False), {}, origin)
        return Reading(
            sections,
            status="absent",
            message=f"no thread of process {self.core_pid} is in {self.names.loop}: its engine does not run",
            hint=f"py-spy dump --nonblocking --pid {self.core_pid}",
        )


def _words(engine: Engine, seen: Seen, wires: Wires, absent: tuple[str, ...]) -> str:
    words = what_lacks(seen, "vLLM", (*engine.missing, *absent))
    return "; ".join([*words, wires.problem] if wires.problem else words)
