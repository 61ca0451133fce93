"""Reads what an engine holds at one moment: requests, block tables, pool, what is being computed. Nothing is judged."""

from collections.abc import Callable, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..maps import EngineMap
from ..pymem.bulk import Column, items, items_of_many, table
from ..pymem.frames import Frame, local_variables
from ..pymem.memory import Unreadable
from ..pymem.objects import contents, read_all
from ..pymem.pages import Words
from ..pymem.reader import Reader
from ..pymem.slots import Slots
from ..pymem.values import Limits, Member, Unread, Value
from .found import Objects, chosen
from .numbering import Indices, Numbering

MOST_SHOWN = 1024
"""Requests that do not run and are shown; those beyond are only counted."""
_MOST_RUNNING = 1 << 14
_SIZE_AT = {"deque": 16, "set": 24}
_NUMBER = Limits(depth=0, text=200)


class Row(NamedTuple):
    """A request as the engine has it; None is what this version does not tell. ``key``: address of its id."""

    id: str
    status: str
    prompt_tokens: int | None
    computed_tokens: int | None
    in_flight: int | None
    outputs: int | None
    max_output_tokens: int | None
    preemptions: int | None
    arrival: float | None
    priority: int | None
    client: int | None
    key: int
    running: bool
    blocks: bytes


class PoolSeen(NamedTuple):
    """Columns over the pool, a row a block. ``hash``: its first 8 bytes, 0: none. ``next``: number of the next free
    block, -1: none, or the end of the list."""

    references: NDArray[np.int64]
    hash: Words
    next: Indices
    first_free: int


class Look(NamedTuple):
    """``rows``: in order of arrival. ``waiting``: ids in the order in which they will be looked at. ``total``: requests
    that the engine knows, shown or not. ``scheduled``: tokens of the step under way by the id of the request, None:
    there is none. ``doubtful``: rows left out because they changed while they were read."""

    rows: tuple[Row, ...]
    total: int
    running: int
    waiting_total: int
    waiting: tuple[str, ...]
    free_blocks: int | None
    scheduled: dict[str, int] | None
    pool: PoolSeen | None
    doubtful: int


class Looker:
    """Reads one engine again and again; ``objects`` says where things are."""

    def __init__(self, reader: Reader, names: EngineMap, objects: Objects) -> None:
        self.reader = reader
        self.names = names
        self.objects = objects
        self.none = reader.module_dict(reader.modules()["builtins"])["None"]
        self._blocks = Numbering(np.zeros(0, np.uint64))
        self._columns: dict[str, str] | None = None
        self._again = True
        self.missing: tuple[str, ...] = ()
        self._pool_slots = (
            Slots(reader, objects.places["pool"], [name for one in names.pool.values() for name in one])
            if "pool" in objects.places
            else None
        )

    def take(self, step: Frame | None, *, pool: bool, again: bool = True) -> Look:
        """``step``: the call that runs a step, where one is under way. ``again``: as of bulk.table. Unreadable when
        nothing stood still."""
        self._again = again
        scheduler, names = self.objects.scheduler, self.names
        pointers = scheduler.pointers()
        word = {ours: chosen(theirs, pointers) for ours, theirs in names.scheduler.items()}

        def at(ours: str) -> int | None:
            name = word.get(ours)
            return pointers[name] if name is not None else None

        running_at, requests_at = at("running"), at("requests")
        if requests_at is None:
            raise Unreadable("the scheduler has no dict of requests")
        running = items(self.reader, running_at).tolist() if running_at is not None else []
        queues = [self._queue(place) for ours in ("waiting with blocks", "waiting") if (place := at(ours)) is not None]
        deferred = self._queue(at("deferred"))
        pairs = self.reader.dict_pairs(requests_at)
        held = set(running)
        shown = [value for _, value in pairs if value in held][:_MOST_RUNNING]
        others = [value for _, value in pairs if value not in held]
        wanted = set(shown) | set(others[:MOST_SHOWN])
        chosen_pairs = [pair for pair in pairs if pair[1] in wanted]
        rows, doubtful = self._rows(chosen_pairs, held)
        waiting = [one for queue in queues for one in queue]
        return Look(
            rows=tuple(rows.values()),
            total=len(pairs),
            running=len(running),
            waiting_total=len(set(waiting) | set(deferred)),
            waiting=tuple(rows[one].id for one in waiting if one in rows),
            free_blocks=self._free_blocks(),
            scheduled=self._scheduled(step, {row.key: row.id for row in rows.values()}) if step is not None else None,
            pool=self._pool() if pool else None,
            doubtful=doubtful,
        )

    def step_number(self) -> int | None:
        name = chosen(self.names.scheduler["step"], self.objects.scheduler.names)
        there = name is not None and name in self.objects.scheduler
        return self.objects.scheduler.number(name) if there and name is not None else None

    # -- requests

    def _queue(self, address: int | None) -> list[int]:
        """A deque, a set or a list, or an object with a list that is a heap."""
        if address is None or address == self.none:
            return []
        kind = self.reader.type_of(address).kind
        if kind in _SIZE_AT and not self.reader.word(address + _SIZE_AT[kind]):
            return []
        held = contents(self.reader, address)
        if held.items is not None:
            return held.items
        heap = held.attributes.get("_heap")
        return items(self.reader, heap).tolist() if heap is not None else []

    def _rows(self, pairs: list[tuple[int, int]], held: set[int]) -> tuple[dict[int, Row], int]:
        """By address, and how many were left out. ``pairs``: id and request, as their dict has them: the id is the
        very text by which the request is known everywhere."""
        if not pairs:
            return {}, 0
        keys, addresses = [key for key, _ in pairs], [address for _, address in pairs]
        columns = self._request_columns(addresses[0])
        kinds: dict[str, Column] = dict.fromkeys(columns.values(), "value")
        found = table(self.reader, addresses, kinds, again=self._again)
        tables = self._tables(dict.fromkeys(keys))
        unknown: list[Value] = [None] * len(addresses)
        told = [take(found.values[columns[ours]] if ours in columns else unknown) for ours, take in _ROW.items()]
        running, blocks = [address in held for address in addresses], [tables.get(key, b"") for key in keys]
        made = list(map(tuple.__new__, repeat(Row), zip(*told, keys, running, blocks, strict=True)))
        rows: dict[int, Row] = dict(zip(addresses, made, strict=True))
        doubtful = found.changing | found.foreign
        if doubtful.any() or set(map(type, told[0])) != {str}:  # an id that is none: a row that was torn
            sound = zip(addresses, made, doubtful.tolist(), strict=True)
            rows = {address: row for address, row, doubt in sound if not doubt and isinstance(row.id, str)}
        return rows, len(addresses) - len(rows)

    def _request_columns(self, address: int) -> dict[str, str]:
        """Our words to the names that a request has them under here."""
        if self._columns is None:
            there = contents(self.reader, address).attributes
            named = {ours: chosen(theirs, there) for ours, theirs in self.names.request.items()}
            self._columns = {ours: name for ours, name in named.items() if name is not None}
            self.missing = tuple(f"request.{self.names.request[ours][0]}" for ours in named if named[ours] is None)
            if "id" not in self._columns:
                self._columns = None
                raise Unreadable(f"requests have no {self.names.request['id'][0]}")
        return self._columns

    def _tables(self, wanted: dict[int, None]) -> dict[int, bytes]:
        """Block tables (int32) by the address of the request's id."""
        place = self.objects.places.get("tables")
        if place is None:
            return {}
        pairs = self.reader.dict_pairs(place)
        blocks, sizes = items_of_many(self.reader, [value for _, value in pairs], again=self._again)
        self._know_blocks()
        if not len(blocks) or not len(self._blocks):
            return {}
        numbers = self._blocks.of(blocks)
        if (numbers < 0).any():
            raise Unreadable("a block table holds what is no block of the pool")
        column, ends = numbers.tobytes(), list(accumulate(sizes))
        found = {
            key: column[4 * (end - size) : 4 * end] for (key, _), size, end in zip(pairs, sizes, ends, strict=True)
        }
        unknown = [key for key in found if key not in wanted]
        if unknown and len(found) - len(unknown) < len(wanted):
            self._by_text(found, unknown, wanted)
        return found

    def _by_text(self, found: dict[int, bytes], unknown: list[int], wanted: dict[int, None]) -> None:
        """An id may stand twice in memory: then its text tells."""
        names = dict(zip(unknown, read_all(self.reader, unknown, _NUMBER), strict=True))
        without = [key for key in wanted if key not in found]
        for key, name in zip(without, read_all(self.reader, without, _NUMBER), strict=True):
            same = next((other for other, text in names.items() if text == name), None)
            if same is not None:
                found[key] = found[same]

    def _scheduled(self, step: Frame, ids: dict[int, str]) -> dict[str, int] | None:
        output = local_variables(self.reader, step).get(self.names.output)
        if output is None or output == self.none:
            return None
        attributes = Slots(self.reader, output, self.names.scheduled["tokens"]).pointers()
        name = chosen(self.names.scheduled["tokens"], attributes)
        if name is None:
            return None
        pairs = self.reader.dict_pairs(attributes[name])
        unknown = [key for key, _ in pairs if key not in ids]
        texts = dict(zip(unknown, read_all(self.reader, unknown, _NUMBER), strict=True)) if unknown else {}
        numbers = self._ints([value for _, value in pairs])
        told = [ids.get(key) or texts.get(key) for key, _ in pairs]
        found = {
            name: number
            for name, number in zip(told, numbers, strict=True)
            if isinstance(name, str) and number is not None
        }
        if len(found) < len(pairs):
            raise Unreadable("what is scheduled cannot be read")
        return found

    def _ints(self, addresses: list[int]) -> list[int | None]:
        """Small ones are known by their address."""
        base = self.reader.small_ints
        found: list[int | None] = [
            (address - base >> 5) if base is not None and -160 <= address - base <= 8192 else None
            for address in addresses
        ]
        rest = [number for number, value in enumerate(found) if value is None]
        if rest:
            read = read_all(self.reader, [addresses[number] for number in rest], _NUMBER)
            for number, value in zip(rest, read, strict=True):
                found[number] = value if isinstance(value, int) else None
        return found

    # -- pool

    def _free_blocks(self) -> int | None:
        slots = self.objects.free_queue
        name = chosen(self.names.free_queue["free"], slots.names) if slots is not None else None
        return slots.number(name) if slots is not None and name is not None and name in slots else None

    def _know_blocks(self) -> None:
        """Blocks are made once, at the start."""
        if len(self._blocks) or self._pool_slots is None:
            return
        pointers = self._pool_slots.pointers()
        name = chosen(self.names.pool["blocks"], pointers)
        if name is not None:
            self._blocks = Numbering(items(self.reader, pointers[name]).copy())

    def _pool(self) -> PoolSeen | None:
        self._know_blocks()
        if not len(self._blocks):
            return None
        first = int(self._blocks.addresses[0])
        there = self.reader.type_of(first).slots or contents(self.reader, first).attributes
        named = {ours: chosen(theirs, there) for ours, theirs in self.names.block.items()}
        references, hashed, following = named["references"], named["hash"], named["next"]
        if references is None or hashed is None or following is None:
            lacks = [f"block.{self.names.block[ours][0]}" for ours, name in named.items() if name is None]
            self.missing = tuple(dict.fromkeys([*self.missing, *lacks]))
            return None
        found = table(
            self.reader,
            self._blocks.addresses,
            {references: "integer", hashed: "digest", following: "pointer"},
            again=self._again,
        )
        if (found.changing | found.foreign).any() or not found.known[references].all():
            raise Unreadable("the pool changes each time it is read")
        return PoolSeen(
            references=found.integers[references],
            hash=found.pointers[hashed],
            next=self._blocks.of(found.pointers[following]),
            first_free=self._first_free(following),
        )

    def _first_free(self, following: str) -> int:
        head = self.objects.places.get("free head")
        if head is None:
            return -1
        offset = self.reader.type_of(head).slots.get(following)
        pointer = self.reader.word(head + offset) if offset is not None else 0
        return int(self._blocks.of(np.array([pointer], np.uint64))[0])


def _as_they_are(column: list[Value]) -> list[Value]:
    return column


def _ints(column: list[Value]) -> Sequence[Value]:
    if set(map(type, column)) == {int}:  # as a rule, and in a tenth of the time
        return column
    return [value if isinstance(value, int) else None for value in column]


def _floats(column: list[Value]) -> Sequence[Value]:
    if set(map(type, column)) == {float}:
        return column
    return [float(value) if isinstance(value, int | float) else None for value in column]


def _sizes(column: list[Value]) -> list[int | None]:
    """Of what was not read itself."""
    return [value.size if isinstance(value, Unread) else None for value in column]


def _names(column: list[Value]) -> list[str]:
    """Of members of an Enum."""
    return [value.name if isinstance(value, Member) else str(value) for value in column]


_ROW: dict[str, Callable[[list[Value]], Sequence[Value]]] = {
    "id": _as_they_are,
    "status": _names,
    "prompt_tokens": _ints,
    "computed_tokens": _ints,
    "in_flight": _ints,
    "outputs": _sizes,
    "max_output_tokens": _ints,
    "preemptions": _ints,
    "arrival": _floats,
    "priority": _ints,
    "client": _ints,
}
"""What a map says of a request, in the order in which Row begins."""
