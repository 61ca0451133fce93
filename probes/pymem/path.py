"""Names objects for people, as Python would: ``scheduler.running[0].status``, ``requests['abc']``; and prints trees."""

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import structs

from inferdbg.errors import Exit, InferdbgError
from inferdbg.text import counted, safe

from .coroutines import awaited
from .frames import Frame, Thread, local_variables, threads
from .memory import Unreadable
from .objects import contents, read
from .opening import open_core, open_process
from .reader import Reader
from .values import USUAL, Limits, Member, Obj, Unread, Value

_NAME = re.compile(r"\.?\s*([^\W\d]\w*)")
_SUGGESTED = 12
_WIDTH = 60


class Key(NamedTuple):
    """A step in square brackets: a place in a list, or a key of a dict."""

    value: Value


Step = str | Key


def parse(path: str) -> list[Step]:
    """The steps of a path; InferdbgError says at which letter it stops making sense."""
    steps: list[Step] = []
    at = 0
    while at < len(path):
        if path[at] == "[" and steps:
            end = _closing(path, at)
            try:
                steps.append(Key(ast.literal_eval(path[at + 1 : end].strip())))
            except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
                inside = path[at + 1 : end]
                raise _no_path(path, at + 1, f"{inside!r} is no number, text or tuple; texts need quotes") from error
            at = end + 1
            continue
        found = _NAME.match(path, at)
        if found is None or (steps and path[at] != "."):
            raise _no_path(path, at, "a name, .name or [key] is expected")
        steps.append(found[1])
        at = found.end()
    if not steps:
        raise _no_path(path, 0, "it is empty")
    return steps


def _closing(path: str, start: int) -> int:
    """Where the bracket that opens at ``start`` closes, those in quotes apart."""
    quote, depth = "", 0
    for at in range(start, len(path)):
        letter = path[at]
        if quote:
            if letter == quote and path[at - 1] != "\\":
                quote = ""
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "[(") - (letter in "])")
            if not depth:
                return at
    raise _no_path(path, start, "this bracket is not closed")


def _no_path(path: str, at: int, why: str) -> InferdbgError:
    return InferdbgError(
        f"{path!r} is no path: {why}, at letter {at + 1}", "such as scheduler.running[0].status", Exit.USAGE
    )


class NotCalled(InferdbgError):
    """Nothing in this process has the name that a path begins with."""


def follow(reader: Reader, roots: Mapping[str, int], path: str) -> int:
    """Address of the object that a path leads to. ``roots``: addresses by the names that it may begin with.

    InferdbgError says what there is instead.
    """
    first, *rest = parse(path)
    assert isinstance(first, str)
    if first not in roots:
        raise _missing(f"nothing is called {first!r} here", first, list(roots), NotCalled)
    address, way = roots[first], first
    for step in rest:
        address = _attribute(reader, address, way, step) if isinstance(step, str) else _item(reader, address, way, step)
        way += f".{step}" if isinstance(step, str) else f"[{step.value!r}]"
    return address


def _attribute(reader: Reader, address: int, way: str, name: str) -> int:
    found = contents(reader, address)
    if name in found.attributes:
        return found.attributes[name]
    what = f"{way} is a {found.type.name} and has no attribute {name!r}"
    if found.keys is not None and any(key == name for key in found.keys):
        raise InferdbgError(what, f"it has such a key: {way}[{name!r}]", Exit.USAGE)
    raise _missing(what, name, list(found.attributes))


def _item(reader: Reader, address: int, way: str, key: Key) -> int:
    found = contents(reader, address)
    if found.items is None:
        raise _missing(f"{way} is a {found.type.name} and has no items", "", list(found.attributes))
    if found.keys is not None:
        for known, item in zip(found.keys, found.items, strict=True):
            same = known.name == key.value if isinstance(known, Member) else known == key.value
            if same and isinstance(known, bool) == isinstance(key.value, bool):
                return item
        keys = [str(known) if isinstance(known, Member) else repr(known) for known in found.keys]
        raise _missing(f"{way} has no key {key.value!r}", repr(key.value), keys)
    if not isinstance(key.value, int):
        raise InferdbgError(f"{way} is a {found.type.name}: {key.value!r} is no place in it", code=Exit.USAGE)
    if not -len(found.items) <= key.value < len(found.items):
        there = f"0 to {len(found.items) - 1}" if found.items else "none"
        raise InferdbgError(f"{way} has {counted(len(found.items), 'item')}, no {key.value}: {there}", code=Exit.USAGE)
    return found.items[key.value]


def _missing(what: str, name: str, known: Sequence[str], error: type[InferdbgError] = InferdbgError) -> InferdbgError:
    """What there is instead, the nearest first."""
    import difflib

    near = difflib.get_close_matches(name, known, 3, 0.6) if name else []
    others = [one for one in known if one not in near]
    shown = [safe(one, 80) for one in (near + others)[:_SUGGESTED]]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    there = f"there are: {', '.join(shown)}{more}" if shown else "there is nothing in it"
    return error(what, there, Exit.USAGE)


def roots(reader: Reader, function: str | None = None) -> dict[str, int]:
    """What a path may begin with: local variables of a function's call, and attributes of its ``self``; without a
    function those of all calls, the innermost of the oldest thread first, and of coroutines that they wait for.
    InferdbgError when there is no such call."""
    running = threads(reader)
    found: dict[str, int] = {}
    calls = list(_calls(running, function))
    waiting: list[Frame] = []
    for frame in calls:
        try:
            variables = local_variables(reader, frame)
        except Unreadable:
            continue  # it returned meanwhile
        for name, address in variables.items():
            found.setdefault(name, address)
            waiting += awaited(reader, address)
    for frame in waiting:
        with suppress(Unreadable):
            for name, address in local_variables(reader, frame).items():
                found.setdefault(name, address)
    for frame in calls:
        try:
            itself = local_variables(reader, frame).get("self")
            for name, address in contents(reader, itself).attributes.items() if itself else ():
                found.setdefault(name, address)
        except Unreadable:
            continue
    if function is not None and not calls:
        raise _missing(f"{function} is not being called", function, sorted({one.function for one in _calls(running)}))
    return found


def _calls(running: Iterable[Thread], function: str | None = None) -> Iterator[Frame]:
    for thread in running:
        for frame in thread.frames:
            if function in (None, frame.function):
                yield frame


def show(reader: Reader, path: str, function: str | None = None, limits: Limits = USUAL) -> list[str]:
    """Lines that draw the object that a path leads to."""
    return lines(read(reader, follow(reader, roots(reader, function), path), limits), path)


PRIVATE = frozenset(
    {"prompt", "prompt_token_ids", "output_token_ids", "_output_token_ids", "all_token_ids", "_all_token_ids", "text"}
)
"""Attributes that hold what users wrote and got: seen only when the path names one."""


def object_lines(target: int | str, path: str) -> list[str]:
    """Lines that draw the object that a path leads to in a process, or in a core file by its name. InferdbgError when
    it may not be read, or what there is instead."""
    reader = open_process(target) if isinstance(target, int) else open_core(target)
    try:
        asked = {step for step in parse(path) if isinstance(step, str)}
        return show(reader, path, limits=structs.replace(USUAL, hidden=PRIVATE - asked))
    finally:
        reader.close()


def lines(value: Value, name: str, most: int = 500) -> list[str]:
    """A tree of values as text: a line each, children below their parents, at most so many lines."""
    found: list[str] = []
    for line in _draw(name, value, ""):
        if len(found) == most:
            found.append("… more than fits: name something in it, or ask for less depth")
            break
        found.append(line)
    return found


def _draw(name: str, value: Value, indent: str) -> Iterator[str]:
    yield f"{indent}{safe(name, _WIDTH)}: {_short(value)}"
    for child, inner in _children(value):
        yield from _draw(child, inner, indent + "  ")


def _children(value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Obj):
        for name, inner in value.attributes.items():
            yield f".{name}", inner
        if isinstance(value.value, tuple) and len(value.value) == len(value.attributes):
            return  # a namedtuple, whose items were just named
        yield from _children(value.value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield f"[{_short(key)}]", inner
    elif isinstance(value, list | tuple | deque) and not _flat(value):
        for number, inner in enumerate(value):
            yield f"[{number}]", inner
    elif isinstance(value, set | frozenset) and not _flat(value):
        for inner in value:
            yield "-", inner


def _flat(values: Iterable[Value]) -> bool:
    """Numbers and the like, which fit on a line."""
    return all(inner is None or isinstance(inner, bool | int | float) for inner in values)


def _short(value: Value) -> str:
    """A value on its own line, without what is below it."""
    if isinstance(value, Unread):
        size = "" if value.size is None else f" of {value.size:,}"
        return f"<{safe(value.type, _WIDTH)}{size}, {_WHY[value.why]}>"
    if isinstance(value, Member):
        return safe(str(value), _WIDTH)
    if isinstance(value, Obj):
        base = "" if value.value is None or isinstance(value.value, tuple) else f" {_short(value.value)}"
        return f"{safe(value.type, _WIDTH)}{base}"
    if isinstance(value, list | tuple | deque | set | frozenset | dict):
        kind = f"{type(value).__name__} of {len(value):,}"
        if not value or isinstance(value, dict) or not _flat(value):
            return kind
        some = ", ".join(map(repr, list(value)[:20]))
        return f"{kind}: {some}{', …' if len(value) > 20 else ''}"
    return safe(repr(value), 500)


_WHY = {
    "absent": "not set",
    "depth": "not opened",
    "budget": "left out: too much",
    "hidden": "hidden",
    "changing": "changing while it is read",
    "unreadable": "unreadable",
    "cycle": "drawn above",
}
