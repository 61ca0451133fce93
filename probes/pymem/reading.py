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
    loop: str | None = None,
    counter: Callable[[], int] | None = None,
    tries: int = 3,
) -> Reading[T]:
    """Takes a value, and again while it is not consistent, ``tries`` times at most; the last is given.

    ``thread``: address of the one that changes things (``frames.Thread``). ``changing``: functions in which what is
    read may be half-changed. ``loop``: the function that calls them: what it calls may move meanwhile, but not itself;
    None: nothing may. ``counter``: reads a number that each step raises.
    Unreadable when the value or the stack could not be read in any try.
    """
    last: Reading[T] | None = None
    failure: Unreadable | None = None
    for _ in range(max(1, tries)):
        try:
            last = _once(reader, thread, value, changing, loop, counter)
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
    loop: str | None,
    counter: Callable[[], int] | None,
) -> Reading[T]:
    first = counter() if counter is not None else None
    before, settled = stack(reader, thread)
    place = _place(reader, before, loop)
    found = value()
    after, settled_after = stack(reader, thread)
    last = counter() if counter is not None else None
    steps = last - first if first is not None and last is not None else None
    if steps:
        return Reading(found, "spans", before, steps=steps)
    for frame in (*before, *after):
        if frame.function in changing:
            return Reading(found, "mid", before, function=frame.function)
    if settled and settled_after and place == _place(reader, after, loop):
        return Reading(found, "consistent", before)
    return Reading(found, "spans", before, steps=steps)


def _place(reader: Reader, frames: tuple[Frame, ...], loop: str | None) -> list[tuple[int, int, int, bytes]]:
    """Where the calls from the outermost to ``loop`` stand: frame, code, instruction, local variables."""
    inner = next((number for number, frame in enumerate(frames) if frame.function == loop), 0)
    return [(one.address, one.code, one.instruction, local_words(reader, one)) for one in frames[inner:]]
