"""What the front end believes: the requests that it waits for, read from its own process."""

from collections.abc import Iterator
from typing import NamedTuple

from inferdbg.errors import InferdbgError

from ..maps import EngineMap
from ..pymem.bulk import Column, table
from ..pymem.coroutines import awaited
from ..pymem.frames import local_variables, threads
from ..pymem.memory import Unreadable
from ..pymem.objects import contents
from ..pymem.path import follow
from ..pymem.reader import Reader
from .found import chosen

_NS = 1_000_000_000
_MOST_SHOWN = 4096


class FrontRequest(NamedTuple):
    """Times are CLOCK_MONOTONIC ns, None until they happened."""

    id: str
    cached_tokens: int | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None


class Front:
    """One front end. Unreadable when none of its coroutines holds what the map calls ``front``."""

    def __init__(self, reader: Reader, names: EngineMap) -> None:
        self.reader = reader
        self.names = names
        self._states = self._find()
        self._columns: dict[str, str] | None = None
        self._times: dict[str, str] | None = None

    def requests(self) -> dict[str, FrontRequest]:
        """By id, in order of arrival."""
        addresses = [value for _, value in self.reader.dict_pairs(self._states)][:_MOST_SHOWN]
        if not addresses:
            return {}
        if self._columns is None:
            self._columns = _named(self.names.front_request, contents(self.reader, addresses[0]).attributes)
        columns = self._columns
        kinds: dict[str, Column] = {name: "pointer" if ours == "stats" else "value" for ours, name in columns.items()}
        found = table(self.reader, addresses, kinds)
        if (found.changing | found.foreign).any():
            raise Unreadable("the front end's requests change each time they are read")
        ids = found.values[columns["id"]]
        cached = found.values.get(columns.get("cached_tokens", ""), [None] * len(addresses))
        stats = found.pointers[columns["stats"]].tolist() if "stats" in columns else []
        times = self._times_of(stats)
        seen: dict[str, FrontRequest] = {}
        for number, (name, tokens) in enumerate(zip(ids, cached, strict=True)):
            if isinstance(name, str):
                at = {ours: column[number] for ours, column in times.items()}
                seen[name] = FrontRequest(name, tokens if isinstance(tokens, int) else None, **at)
        return seen

    def _times_of(self, stats: list[int]) -> dict[str, list[int | None]]:
        """Nothing where statistics are switched off: then there is None in their place."""
        try:
            if not stats or self.reader.type_of(stats[0]).kind == "none":
                return {}
            if self._times is None:
                self._times = _named(self.names.front_times, contents(self.reader, stats[0]).attributes)
            found = table(self.reader, stats, dict.fromkeys(self._times.values(), "value"))
        except InferdbgError:
            self.reader.memory.check()
            return {}
        if (found.changing | found.foreign).any():
            return {}
        return {
            ours: [int(value * _NS) if isinstance(value, float) and value > 0 else None for value in found.values[name]]
            for ours, name in self._times.items()
        }

    def _find(self) -> int:
        for variables in _variables(self.reader):
            for address in variables:
                try:
                    if self.reader.type_of(address).name != self.names.front:
                        continue
                    for path in self.names.front_states:
                        return follow(self.reader, {"front": address}, f"front.{path}")
                except InferdbgError:
                    continue
        raise Unreadable(f"{self.reader.memory.name} holds no {self.names.front}: it serves through other processes")


def _variables(reader: Reader) -> Iterator[list[int]]:
    """Local variables of all calls, and of the coroutines that they run."""
    for thread in threads(reader):
        for frame in thread.frames:
            try:
                variables = list(local_variables(reader, frame).values())
            except Unreadable:
                continue
            yield variables
            for address in variables:
                for waiting in awaited(reader, address):
                    try:
                        yield list(local_variables(reader, waiting).values())
                    except Unreadable:
                        continue


def _named(wanted: dict[str, tuple[str, ...]], there: dict[str, int]) -> dict[str, str]:
    found = {ours: chosen(theirs, there) for ours, theirs in wanted.items()}
    return {ours: name for ours, name in found.items() if name is not None}
