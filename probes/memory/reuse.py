"""What the prefix cache had for each request, and why it had no more: from hashes only, never from tokens.

The pool's blocks carry the hashes that the table of cached blocks has, so that table itself is not walked. A request's
own hashes are read once, when it is first seen; from then on it is compared for as long as it waits.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.requests import Missed, Reuse

from ..maps import Names
from ..pymem.bulk import Column, items_of_many, table
from ..pymem.memory import Unreadable
from ..pymem.objects import contents, read
from ..pymem.pages import Mask, Words
from ..pymem.reader import Reader
from ..pymem.values import Limits
from .engine import Engine, Seen
from .found import Fact, chosen
from .look import Look, PoolSeen, Row

_MOST_NEW = 64
"""Requests whose hashes are read in one look."""
_MOST_BLOCKS = 4096
"""Leading blocks of a prompt that are compared."""
_MOST_GONE = 1 << 18
"""Hashes that are remembered after their block was evicted."""
_KEYS = ("adapter", "salt", "images", "embeddings")
_MOST_PROMPTS = 4096
"""Beyond as many, those of requests that a look does not show are forgotten as if they had ended."""
_NAME = Limits(depth=0, text=200)


class Told(NamedTuple):
    """``reuse``: None where hashes are not to be had."""

    reuse: Reuse | None
    adapter: str | None


class _Prompt(NamedTuple):
    """``hashes``: the first 8 bytes of those of its full blocks, None: they could not be read."""

    hashes: Words | None
    keys: tuple[str, ...]
    adapter: str | None
    skips: bool


class _Held:
    """The hashes of a pool at one look, sorted when somebody asks."""

    def __init__(self, column: Words) -> None:
        self.column = column.copy()
        self._sorted: Words | None = None

    def has(self, hashes: Words) -> Mask:
        """Which of them are there."""
        if self._sorted is None:
            self._sorted = np.sort(self.column[self.column != 0])
        if not len(self._sorted):
            return np.zeros(len(hashes), np.bool_)
        at = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        there: Mask = self._sorted[at] == hashes
        return there


class Reuses:
    """Of one engine. ``missing``: what this version does not have of what is needed."""

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self._prompts: dict[str, _Prompt] = {}
        self._told: dict[str, Told] = {}
        self._held: _Held | None = None
        self._before: _Held | None = None
        self._none: int | None = None
        self._gone: deque[int] = deque()
        self._gone_set: set[int] = set()
        self._names: dict[str, str] | None = None

    def of(self, engine: Engine, seen: Seen) -> Mapping[str, Told]:
        """By id of the request. Only from consistent looks anything is learned."""
        look, objects = seen.look, engine.objects
        if look is None or objects is None or not seen.consistent:
            return self._told
        facts = engine.facts
        self._before = self._held
        if look.pool is not None:
            self._learn(look.pool)
        new = [row for row in look.rows if row.id not in self._prompts][:_MOST_NEW]
        if new:
            try:
                self._prompts.update(self._read(engine, new))
            except Unreadable:
                engine.reader.memory.check()
        fresh = {row.id for row in new}
        for row in look.rows:
            prompt = self._prompts.get(row.id)
            if prompt is None:
                continue
            if row.id in fresh:
                self._told[row.id] = self._first(row, prompt, facts)
            elif not row.running and look.pool is not None:
                self._told[row.id] = self._judged(row, prompt, facts, self._held)
        self._forget(look)
        return self._told

    def _first(self, row: Row, prompt: _Prompt, facts: Mapping[str, Fact]) -> Told:
        """Of one that runs already, blocks of its own may stand in the table: the one of before tells."""
        return self._judged(row, prompt, facts, self._before if row.running else self._held)

    def _judged(self, row: Row, prompt: _Prompt, facts: Mapping[str, Fact], held: _Held | None) -> Told:
        size = facts.get("config.block_size")
        if facts.get("config.prefix_caching") is False:
            return Told(Reuse(missed="caching off"), prompt.adapter)
        if prompt.hashes is None or not isinstance(size, int) or size <= 0 or facts.get("groups") not in (1, None):
            return Told(None, prompt.adapter)
        full = (row.prompt_tokens or 0) // size
        hashes = prompt.hashes[:full]
        prefix = f"{int(hashes[0]).to_bytes(8, 'little').hex()}" if len(hashes) else None
        if prompt.skips:
            return Told(Reuse(prefix, full, 0, "skipped", prompt.keys), prompt.adapter)
        if held is None or len(hashes) < min(full, _MOST_BLOCKS):
            return Told(Reuse(prefix, full, keys=prompt.keys), prompt.adapter)
        there = held.has(hashes)
        found = len(hashes) if there.all() else int(np.argmin(there))
        return Told(Reuse(prefix, full, found, self._why(hashes, found, row, size), prompt.keys), prompt.adapter)

    def _why(self, hashes: Words, found: int, row: Row, size: int) -> Missed | None:
        if found < len(hashes):
            return "evicted" if int(hashes[found]) in self._gone_set else "never seen"
        return "partial block" if (row.prompt_tokens or 0) % size else None

    def _learn(self, pool: PoolSeen) -> None:
        if self._held is not None and len(self._held.column) == len(pool.hash):
            before = self._held.column
            self._remember(before[(before != pool.hash) & (before != 0)].tolist())
        self._held = _Held(pool.hash)

    def _remember(self, left: Iterable[int]) -> None:
        for one in left:
            if one not in self._gone_set:
                self._gone.append(one)
                self._gone_set.add(one)
        while len(self._gone) > _MOST_GONE:
            self._gone_set.discard(self._gone.popleft())

    def _forget(self, look: Look) -> None:
        if look.total == len(look.rows) or len(self._prompts) > _MOST_PROMPTS:
            names = {row.id for row in look.rows}
            for name in [name for name in self._prompts if name not in names]:
                del self._prompts[name]
                self._told.pop(name, None)

    # -- reading

    def _read(self, engine: Engine, rows: Sequence[Row]) -> dict[str, _Prompt]:
        """Those that are still there, and stood still."""
        reader, objects = engine.reader, engine.objects
        assert objects is not None
        pointers = objects.scheduler.pointers()
        name = chosen(engine.names.scheduler["requests"], pointers)
        if name is None:
            return {}
        place_of = dict(reader.dict_pairs(pointers[name]))
        there = [row for row in rows if row.key in place_of]
        if not there:
            return {}
        addresses = [place_of[row.key] for row in there]
        names = self._columns(reader, engine.names.reuse, addresses[0])
        identity = chosen(engine.names.request["id"], contents(reader, addresses[0]).attributes)
        if identity is None:
            return {}
        kinds: dict[str, Column] = dict.fromkeys(names.values(), "pointer")
        kinds[identity] = "value"
        if "skips" in names:
            kinds[names["skips"]] = "value"
        found = table(reader, addresses, kinds)
        sound = ~(found.changing | found.foreign)
        if self._none is None:
            self._none = reader.module_dict(reader.modules()["builtins"])["None"]
        none = self._none
        prompts: dict[str, _Prompt] = {}
        for number, row in enumerate(there):
            if not sound[number] or found.values[identity][number] != row.id:
                continue
            at = {ours: int(found.pointers[name][number]) for ours, name in names.items() if ours != "skips"}
            keys = tuple(key for key in _KEYS if _is_something(reader, at.get(key, none), none))
            adapter = _adapter(reader, at["adapter"], engine.names.reuse["adapter name"]) if "adapter" in keys else None
            skips = "skips" in names and found.values[names["skips"]][number] is True
            prompts[row.id] = _Prompt(_hashes(reader, at.get("hashes")), keys, adapter, skips)
        return prompts

    def _columns(self, reader: Reader, wanted: Mapping[str, Names], address: int) -> dict[str, str]:
        if self._names is None:
            there = contents(reader, address).attributes
            named = {ours: chosen(theirs, there) for ours, theirs in wanted.items() if ours != "adapter name"}
            self._names = {ours: name for ours, name in named.items() if name is not None}
            self.missing = tuple(f"request.{wanted[ours][0]}" for ours, name in named.items() if name is None)
        return self._names


def _hashes(reader: Reader, address: int | None) -> Words | None:
    """Of bytes: +8 type, +16 size, +24 hash, +32 the bytes."""
    if address is None:
        return None
    try:
        pointers, _ = items_of_many(reader, [address])
        raw, missing = reader.memory.read_many([(one + 8, 32) for one in pointers[:_MOST_BLOCKS].tolist()])
        words = np.frombuffer(raw, np.uint64).reshape(-1, 4)
        kinds = set(words[:, 0].tolist())
        if missing or any(reader.type_at(kind).name != "bytes" for kind in kinds) or (words[:, 1] < 8).any():
            return None
    except Unreadable:
        reader.memory.check()
        return None
    return words[:, 3].copy()


def _is_something(reader: Reader, address: int, none: int) -> bool:
    """Not None, and no empty list."""
    if address in (0, none):
        return False
    try:
        return reader.type_of(address).kind != "list" or reader.word(address + 16) > 0
    except Unreadable:
        return False


def _adapter(reader: Reader, address: int, names: Names) -> str | None:
    try:
        there = contents(reader, address).attributes
        name = chosen(names, there)
        value = read(reader, there[name], _NAME) if name is not None else None
    except InferdbgError:
        reader.memory.check()
        return None
    return value if isinstance(value, str) else None
