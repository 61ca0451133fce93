"""What must be remembered between two looks: numbers of requests, since when a phase lasts, what ended, who held what.

Only consistent looks make history: a torn one would tell of ends and preemptions that never were.
"""

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.pulse import Phase, Pulse
from inferdbg.facts.sections.steps import Step, Steps

from . import sections
from .engine import Engine, Seen
from .front import FrontRequest
from .look import Look, Row
from .reuse import Told

_MOST_EVENTS = 4096


class Past:
    """Of one engine. ``numbers``: of the requests that it knows now, by id, in order of first sight; ``upcoming``: the
    number of the next one."""

    def __init__(self, upcoming: int = 1) -> None:
        self.numbers: dict[str, int] = {}
        self.upcoming = upcoming
        self._phase: tuple[int | None, str, int] | None = None
        self._moved: tuple[int | None, int] | None = None
        self._seen_from_ns: int | None = None
        self._rows: dict[str, Row] = {}
        self._cached: dict[str, int] = {}
        self._owners: np.ndarray | None = None
        self._cache: KVCache | None = None
        self._finished: int | None = None
        self._running: Step | None = None
        self._event_seq = 0
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)

    def sections(
        self,
        engine: Engine,
        seen: Seen,
        front: Mapping[str, FrontRequest],
        wall_to_mono_ns: int,
        origin: Origin,
        *,
        many: bool,
        told: Mapping[str, Told] | None = None,
    ) -> dict[str, Struct]:
        """``many``: the pool is read less often than the rest. ``told``: by id of the request."""
        now_ns, names, facts = origin.mono_ns, engine.names, engine.facts
        found: dict[str, Struct] = {"server": sections.server(facts, names.engine, engine.version, engine.pid, origin)}
        pulse = self._pulse(seen, origin)
        if pulse is not None:
            found["pulse"] = pulse
        look = seen.look
        if look is None:
            return found
        self._number(look.rows)
        found["scheduler"] = sections.scheduler(look, seen.step, names.statuses, origin)
        found["requests"] = sections.requests(
            look, self.numbers, front, facts, names.statuses, wall_to_mono_ns, origin, told or {}
        )
        cache = self._kvcache(look, facts, origin, many=many)
        if cache is not None:
            found["kvcache"] = cache
        if seen.step is not None:
            found["steps"] = self._steps(seen, look, seen.step, engine, origin)
        if seen.consistent:
            self._happened(look, seen.step, now_ns)
        found["events"] = Events(origin, tuple(self._events))
        self._events.clear()
        return found

    def since(self, step: int | None, phase: str, now_ns: int) -> int:
        """When we first saw the engine in this phase of this step."""
        if self._phase is None or self._phase[:2] != (step, phase):
            self._phase = (step, phase, now_ns)
        return self._phase[2]

    def _pulse(self, seen: Seen, origin: Origin) -> Pulse | None:
        phase: Phase | None = seen.standing.phase
        if phase is None or seen.step is None:
            return None
        if self._seen_from_ns is None:
            self._seen_from_ns = origin.mono_ns
        if self._moved is None or self._moved[0] != seen.step:
            self._moved = (seen.step, origin.mono_ns)
        since_ns = self.since(seen.step, phase, origin.mono_ns)
        heartbeat_ns = None if phase == "idle" else self._moved[1]
        return Pulse(origin, heartbeat_ns, seen.step, phase, since_ns, seen_from_ns=self._seen_from_ns)

    def _number(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.id not in self.numbers:
                self.numbers[row.id] = self.upcoming
                self.upcoming += 1

    def _kvcache(self, look: Look, facts: Mapping[str, object], origin: Origin, *, many: bool) -> KVCache | None:
        block_size = facts.get("config.block_size")
        if not isinstance(block_size, int) or not 0 < block_size < 1 << 16:
            return None
        if look.pool is not None:
            self._owners = sections.owners(look, self.numbers, look.pool, self._owners)
            cache = sections.kvcache(
                look,
                look.pool,
                self._owners.tobytes(),
                block_size,
                origin,
                columns_ns=origin.mono_ns if many else None,
            )
            balanced = facts.get("groups") in (1, None) and not facts.get("defers frees")
            self._cache = cache if balanced else replace(cache, refcount=None, shared_blocks=None)
        elif self._cache is not None and look.free_blocks is not None:
            self._cache = sections.counted_again(self._cache, look.free_blocks, origin)
        return self._cache

    def _steps(self, seen: Seen, look: Look, step: int, engine: Engine, origin: Origin) -> Steps:
        """Steps end unseen between two looks: they are counted, and not made up."""
        running = None
        if seen.consistent and seen.standing.step is not None:
            started_ns = self._running.start_ns if self._running is not None and self._running.step == step else None
            running = sections.running_step(look, step, started_ns or origin.mono_ns, self.numbers, engine.facts)
        finished = step if seen.standing.step is None else step - 1
        over = self._running if self._running is not None and self._running.step <= finished else None
        since = finished - self._finished if self._finished is not None else 0
        self._finished = max(finished, self._finished or 0)
        if over is not None or running is not None:
            self._running = running
        items = (over,) if over is not None else ()
        return Steps(origin, items, max(0, since - len(items)), running)

    def _happened(self, look: Look, step: int | None, now_ns: int) -> None:
        rows = {row.id: row for row in look.rows}
        first = not self._rows and self._event_seq == 0

        def say(kind: str, row: Row, tokens: int | None = None) -> None:
            self._event_seq += 1
            self._events.append(Event(self._event_seq, now_ns, step, kind, request=self.numbers[row.id], tokens=tokens))

        for row in look.rows:
            before = self._rows.get(row.id)
            if before is None:
                if row.running and not first:
                    say("scheduled", row)
                continue
            if (row.preemptions or 0) > (before.preemptions or 0):
                say("preempted", row, tokens=sections.computed(before) or 0)
            if row.running and not before.running:
                say("scheduled", row)
            if row.outputs and not before.outputs:
                say("first token", row)
        if look.total == len(look.rows):
            for name, row in self._rows.items():
                if name not in rows:
                    say("finished", row, tokens=row.outputs or 0)
                    self.numbers.pop(name, None)
        self._rows = rows
