"""Reads what SGLang's scheduler holds at one moment. Its requests have no status: the queue or batch that they are in
tells, and prompts, outputs and cached prefixes are only counted."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..maps import EngineMap, Names
from ..maps.sglang import BATCHES, FINISHING
from ..pymem.bulk import Column, items, table
from ..pymem.frames import Frame
from ..pymem.memory import Unreadable
from ..pymem.objects import contents, read_all
from ..pymem.reader import Reader
from ..pymem.values import Limits, Value
from .engine import Engine, Seen
from .found import Objects, chosen
from .lengths import lengths
from .look import MOST_SHOWN, Look, Row

_NUMBER = Limits(depth=0, text=200)
_WALL_CLOCK_S = 1_000_000_000
"""Larger times are of the wall clock, smaller ones of the monotonic one (time.perf_counter)."""
_POINTERS = ("finished", "prompt", "outputs", "prefix", "stats", "sampling")


class Extra(NamedTuple):
    """What a request of SGLang tells beside Row."""

    cached_tokens: int | None
    adapter: str | None


class PoolTokens(NamedTuple):
    """In tokens; None: could not be read. ``evictable``: held by the cache of prefixes, by no request."""

    size: int | None
    page_size: int | None
    free: int | None
    evictable: int | None


class BatchLooker:
    """As ``look.Looker``, of SGLang. ``extras``: of the last look, by id."""

    def __init__(self, reader: Reader, names: EngineMap, objects: Objects) -> None:
        self.reader = reader
        self.names = names
        self.objects = objects
        self.none = reader.module_dict(reader.modules()["builtins"])["None"]
        self.extras: dict[str, Extra] = {}
        self.tokens = PoolTokens(None, None, None, None)
        self._lacks: dict[str, None] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(self._lacks)

    def take(self, step: Frame | None, *, pool: bool, again: bool = True) -> Look:
        """``step`` and ``pool`` are of no account: what a step computes is in no one place, and the pool is small to
        read. Unreadable when nothing stood still."""
        pointers = self.objects.scheduler.pointers()
        place = {ours: self._at(theirs, pointers) for ours, theirs in self.names.scheduler.items()}
        waiting_at = place["waiting"]
        if waiting_at is None:
            raise Unreadable("the scheduler has no queue of waiting requests")
        waiting = items(self.reader, waiting_at).tolist()
        chunked = place["chunked"]
        going = [one for ours in ("running", "current", "last") for one in self._requests_of(place[ours])]
        going += [chunked] if chunked is not None else []
        held = dict.fromkeys(going)
        for one in waiting:
            held.pop(one, None)
        rows, doubtful, ended = self._rows([*held, *waiting[:MOST_SHOWN]], set(held), chunked, again=again)
        self.tokens = self._tokens()
        free = _added(self.tokens.free, self.tokens.evictable)
        running = sum(row.running for row in rows.values())
        return Look(
            rows=tuple(rows.values()),
            total=len(held) - ended + len(waiting),
            running=running,
            waiting_total=len(waiting),
            waiting=tuple(rows[one].id for one in waiting if one in rows),
            free_blocks=free // self.tokens.page_size if free is not None and self.tokens.page_size else None,
            scheduled=None,
            pool=None,
            doubtful=doubtful,
        )

    def step_number(self) -> int | None:
        name = chosen(self.names.scheduler["step"], self.objects.scheduler.names)
        there = name is not None and name in self.objects.scheduler
        return self.objects.scheduler.number(name) if there and name is not None else None

    def _at(self, names: Names, pointers: dict[str, int]) -> int | None:
        name = chosen(names, pointers)
        return pointers[name] if name is not None and pointers[name] not in (0, self.none) else None

    def _requests_of(self, batch: int | None) -> list[int]:
        if batch is None:
            return []
        there = contents(self.reader, batch).attributes
        name = chosen(BATCHES.batch, there)
        if name is None:
            self._lacks[f"batch.{BATCHES.batch[0]}"] = None
            return []
        return items(self.reader, there[name]).tolist() if there[name] != self.none else []

    def _rows(
        self, addresses: list[int], going: set[int], chunked: int | None, *, again: bool
    ) -> tuple[dict[int, Row], int, int]:
        """By address; how many were left out because they changed; how many are finished and only not yet removed."""
        self.extras = {}
        if not addresses:
            return {}, 0, 0
        there = contents(self.reader, addresses[0]).attributes
        wanted = {**self.names.request, **BATCHES.request}
        names = {ours: name for ours, theirs in wanted.items() if (name := chosen(theirs, there)) is not None}
        timed = ("stats", "queued")
        for ours in wanted:
            if ours not in names and not (ours in timed and any(one in names for one in timed)):
                self._lacks[f"request.{wanted[ours][0]}"] = None
        if "id" not in names:
            raise Unreadable(f"requests have no {self.names.request['id'][0]}")
        kinds: dict[str, Column] = {name: "pointer" if ours in _POINTERS else "value" for ours, name in names.items()}
        found = table(self.reader, addresses, kinds, again=again)
        nothing: list[Value] = [None] * len(addresses)

        def value(ours: str) -> list[Value]:
            return found.values[names[ours]] if ours in names else nothing

        def pointers(ours: str) -> list[int]:
            return found.pointers[names[ours]].tolist() if ours in names else [0] * len(addresses)

        prompts, outputs, prefixes = (lengths(self.reader, pointers(ours)) for ours in ("prompt", "outputs", "prefix"))
        limits = self._attributes(pointers("sampling"), BATCHES.sampling, "sampling_params")
        queued = self._attributes(pointers("stats"), BATCHES.stats, "time_stats")
        sound = (~(found.changing | found.foreign)).tolist()
        finished = [one not in (0, self.none) for one in pointers("finished")]
        rows: dict[int, Row] = {}
        for at, address in enumerate(addresses):
            identity = value("id")[at]
            if not sound[at] or finished[at] or not isinstance(identity, str):
                continue
            running = address in going
            again_waiting = not running and value("retracted")[at] is True
            status = "RUNNING" if running else "RETRACTED" if again_waiting else "WAITING"
            rows[address] = Row(
                id=identity,
                status="CHUNKED" if address == chunked else status,
                prompt_tokens=prompts[at],
                computed_tokens=_computed(prompts[at], outputs[at], prefixes[at]) if running else 0,
                in_flight=None,
                outputs=outputs[at],
                max_output_tokens=_int(limits[at]),
                preemptions=_int(value("retractions")[at]),
                arrival=_wall_s(queued[at] if queued[at] is not None else value("queued")[at]),
                priority=_int(value("priority")[at]),
                client=None,
                key=address,
                running=running,
                blocks=b"",
            )
            adapter = value("adapter")[at]
            cached = _int(value("cached")[at]) if running else None
            self.extras[identity] = Extra(cached, adapter if isinstance(adapter, str) else None)
        ended = sum(finished)
        return rows, len(addresses) - len(rows) - ended, ended

    def _attributes(self, addresses: Sequence[int], names: Names, owner: str) -> list[Value]:
        """One attribute of a part of each request."""
        real = [address for address in addresses if address not in (0, self.none)]
        if not real:
            return [None] * len(addresses)
        name = chosen(names, contents(self.reader, real[0]).attributes)
        if name is None:
            self._lacks[f"{owner}.{names[0]}"] = None
            return [None] * len(addresses)
        found = table(self.reader, real, {name: "value"})
        by_address = dict(zip(real, found.values[name], strict=True))
        for address, bad in zip(real, np.asarray(found.changing | found.foreign).tolist(), strict=True):
            if bad:
                by_address[address] = None
        return [by_address.get(address) for address in addresses]

    def _tokens(self) -> PoolTokens:
        pool = self._named("pool", BATCHES.allocator, "allocator")
        tree = self._named("tree", BATCHES.tree, "tree_cache")
        size, page, evictable = self._numbers([pool.get("size"), pool.get("page_size"), tree.get("evictable")])
        free, released = lengths(self.reader, [pool.get("free", 0), pool.get("released", 0)])
        page = page if page is not None else 1
        pages = _added(free, released if pool.get("released") not in (None, self.none) else 0)
        return PoolTokens(size, page, pages * page if pages is not None else None, evictable)

    def _named(self, place: str, wanted: dict[str, Names], owner: str) -> dict[str, int]:
        address = self.objects.places.get(place)
        if address is None:
            return {}
        there = contents(self.reader, address).attributes
        names = {ours: chosen(theirs, there) for ours, theirs in wanted.items()}
        self._lacks.update({f"{owner}.{wanted[ours][0]}": None for ours, name in names.items() if name is None})
        return {ours: there[name] for ours, name in names.items() if name is not None}

    def _numbers(self, addresses: Iterable[int | None]) -> list[int | None]:
        return [_int(read_all(self.reader, [one], _NUMBER)[0]) if one else None for one in addresses]


class BatchEngine(Engine):
    """SGLang's scheduler: one that polls while it has nothing to do, and that waits for the GPU in the middle of what
    then changes its requests."""

    looker = BatchLooker

    def _once(self, *, pool: bool, whatever: bool) -> Seen:
        seen = super()._once(pool=pool, whatever=whatever)
        if seen.look is None:
            return seen
        functions = [frame.function for frame in self._frames]
        waits = any(function in self.names.waits for function in functions)
        if seen.consistent and not waits and any(function in FINISHING for function in functions):
            return seen._replace(label="mid-schedule: it writes results into its requests", consistent=False)
        if not seen.look.total and not seen.look.doubtful and seen.standing.phase in (None, "schedule", "commit"):
            standing = seen.standing._replace(phase="idle")
            return seen._replace(standing=standing, label="consistent", consistent=True)
        return seen

    def _settled(self, frames: tuple[Frame, ...]) -> None:
        """Any moment outside a change may do: between steps it polls, and stands nowhere for long."""
        self._frames = frames
        self.refuse_changing(frames)


def _computed(prompt: int | None, outputs: int | None, prefix: int | None) -> int | None:
    """All but the newest token once there is one; before that what its chunks, or others, have computed."""
    if outputs:
        return (prompt or 0) + outputs - 1
    return prefix


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _int(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _wall_s(value: Value) -> float | None:
    if not isinstance(value, int | float) or value <= 0:
        return None
    return float(value) if value > _WALL_CLOCK_S else value + time.time() - time.monotonic()
