"""Finds an engine's long-lived objects by a map, once; what this version does not have is named, not guessed."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from inferdbg.errors import InferdbgError

from ..maps import EngineMap, Names
from ..pymem.frames import Frame, Thread, local_variables
from ..pymem.memory import Unreadable
from ..pymem.objects import read
from ..pymem.path import follow
from ..pymem.reader import Reader
from ..pymem.slots import Slots
from ..pymem.values import Limits, Member, Value

_FACT = Limits(depth=1, objects=100, text=300)
_ROOT = "self"

Fact = int | str | bool | None


class Objects(Struct, frozen=True):
    """``thread``: address of the one that runs the engine. ``root``: the engine. ``places``: address by our word.
    ``scheduler``, ``free_queue``: what is read at every look. ``missing``: what this version does not have, as paths.
    """

    thread: int
    root: int
    places: dict[str, int]
    scheduler: Slots
    free_queue: Slots | None
    facts: dict[str, Fact]
    missing: tuple[str, ...]


def find_objects(reader: Reader, names: EngineMap, running: Iterable[Thread]) -> Objects:
    """``running``: the threads of the process. Unreadable when none of them runs the engine's loop, or it has no
    scheduler that the map knows."""
    thread, frame = loop_of(names, running)
    root = local_variables(reader, frame).get(_ROOT)
    if root is None:
        raise Unreadable(f"{names.loop} has no {_ROOT}")
    missing: list[str] = []
    places = {
        word: place
        for word, paths in names.objects.items()
        if (place := _place(reader, root, paths, missing)) is not None
    }
    if "scheduler" not in places:
        raise Unreadable(f"the engine has no {names.objects['scheduler'][0]}")
    scheduler = Slots(reader, places["scheduler"], _all(names.scheduler))
    missing += absent(names.scheduler, scheduler, "scheduler")
    free_queue = None
    if "free queue" in places:
        free_queue = Slots(reader, places["free queue"], _all(names.free_queue))
        missing += absent(names.free_queue, free_queue, "free queue")
    facts = {word: _fact(reader, root, paths) for word, paths in names.facts.items()}
    missing += [names.facts[word][0] for word, value in facts.items() if value is None and word not in _OPTIONAL]
    return Objects(thread.address, root, places, scheduler, free_queue, facts, tuple(missing))


_OPTIONAL = ("model.head_size", "connector")
"""Facts that need not be there."""


def loop_of(names: EngineMap, running: Iterable[Thread]) -> tuple[Thread, Frame]:
    for thread in running:
        frame = thread.frame(names.loop)
        if frame is not None:
            return thread, frame
    raise Unreadable(f"no thread of it is in {names.loop}")


def chosen(names: Names, known: Iterable[str]) -> str | None:
    """The name that one thing has here."""
    there = set(known)
    return next((name for name in names if name in there), None)


def absent(wanted: Mapping[str, Names], slots: Slots, owner: str) -> list[str]:
    return [f"{owner}.{names[0]}" for names in wanted.values() if not any(name in slots for name in names)]


def _all(wanted: Mapping[str, Names]) -> list[str]:
    return [name for names in wanted.values() for name in names]


def _place(reader: Reader, root: int, paths: Names, missing: list[str]) -> int | None:
    for path in paths:
        try:
            return follow(reader, {_ROOT: root}, path)
        except InferdbgError:
            reader.memory.check()
    missing.append(paths[0].removeprefix(f"{_ROOT}."))
    return None


def _fact(reader: Reader, root: int, paths: Names) -> Fact:
    for path in paths:
        try:
            value = read(reader, follow(reader, {_ROOT: root}, path), _FACT)
        except InferdbgError:
            reader.memory.check()
            continue
        fact = _plain(value)
        if fact is not None:
            return fact
    return None


def _plain(value: Value) -> Fact:
    """Of a list its first, of a tuple how many, of an enum its value, of a torch.dtype and the like nothing."""
    if isinstance(value, Member):
        return value.value if isinstance(value.value, str | int) else value.name
    if isinstance(value, list):
        return _plain(value[0]) if value else None
    if isinstance(value, tuple):
        return len(value)
    return value if isinstance(value, int | str | bool) else None
