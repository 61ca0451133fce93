"""Says what a reading is worth: where the thread that changes things stood before and after it.

Reading twice proves nothing: a process that was stopped in the middle of a change is equal twice and half-changed. What
tells is where its thread stands. Outside the functions that change things, at the same instruction and with the same
local variables before and after, with the same step number: the reading is ``consistent``. Inside one of them: ``mid``.
Elsewhere afterwards: ``spans``.
"""

from collections.abc import Callable, Collection
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from .frames import Frame, local_words, stack
from .memory import Unreadable
from .reader import Reader

T = TypeVar("T")
Label = Literal["consistent", "mid", "spans"]


class Reading(Struct, Generic[T], frozen=True):
    """``value`` as it was taken. ``function``: of ``mid``, the one it stood in. ``steps``: of ``spans``, how far the
    counter moved; 0: it went from one part of a step to another; None: nobody counted. ``frames``: the thread's stack
    before it, innermost first."""

    value: T
    label: Label
    frames: tuple[Frame, ...]
    function: str | None = None
    steps: int | None = None

    def __str__(self) -> str:
        if self.label == "mid":
            return f"mid {self.function}"
        if self.label == "consistent":
            return "consistent"
        if self.steps is None:
            return "spans an unknown time"
        return f"spans {self.steps} steps" if self.steps else "spans part of a step"


def take(
    reader: Reader,
    thread: int,
    value: Callable[[], T],
    *,
    changing: Collection[str],
    loop: str | Collection[str] | None = None,
    counter: Callable[[], int] | None = None,
    seen: Callable[[tuple[Frame, ...]], None] | None = None,
    tries: int = 3,
) -> Reading[T]:
    """Takes a value, and again while it is not consistent, ``tries`` times at most; the last is given.

    ``thread``: address of the one that changes things (``frames.Thread``). ``changing``: functions in which what is
    read may be half-changed. ``loop``: the function that calls them, or several of which one does, and those in which
    it only waits: what the innermost of these calls may move meanwhile, but not itself; None: nothing may.
    ``counter``: reads a number that each step raises. ``seen``: is told the stack before the value is taken; when it
    raises Unreadable the value is not.
    Unreadable when the value or the stack could not be read in any try.
    """
    loops = (loop,) if isinstance(loop, str) else loop or ()
    last: Reading[T] | None = None
    failure: Unreadable | None = None
    for _ in range(max(1, tries)):
        try:
            last = _once(reader, thread, value, changing, loops, counter, seen)
        except Unreadable as error:
            reader.memory.check()
            failure = error
            continue
        if last.label == "consistent":
            break
    if last is None:
        raise failure or Unreadable("nothing was read")
    return last


def _once(
    reader: Reader,
    thread: int,
    value: Callable[[], T],
    changing: Collection[str],
    loops: Collection[str],
    counter: Callable[[], int] | None,
    seen: Callable[[tuple[Frame, ...]], None] | None,
) -> Reading[T]:
    first = counter() if counter is not None else None
    before, settled = stack(reader, thread, loops)
    if seen is not None:
        seen(before)
    place = _place(reader, before, loops)
    found = value()
    after, settled_after = stack(reader, thread, loops)
    last = counter() if counter is not None else None
    steps = last - first if first is not None and last is not None else None
    if steps:
        return Reading(found, "spans", before, steps=steps)
    for frame in (*before, *after):
        if frame.function in changing:
            return Reading(found, "mid", before, function=frame.function)
    if settled and settled_after and place == _place(reader, after, loops):
        return Reading(found, "consistent", before)
    return Reading(found, "spans", before, steps=steps)


def _place(reader: Reader, frames: tuple[Frame, ...], loops: Collection[str]) -> list[tuple[int, int, int, bytes]]:
    """Where the calls from the outermost to one of ``loops`` stand: frame, code, instruction, local variables."""
    inner = next((number for number, frame in enumerate(frames) if frame.function in loops), 0)
    return [(one.address, one.code, one.instruction, local_words(reader, one)) for one in frames[inner:]]
