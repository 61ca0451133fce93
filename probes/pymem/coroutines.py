"""Where a coroutine that waits stands: its frame, and those of the coroutines that it awaits, outermost first.

What an event loop runs is on no thread's stack while it waits. A coroutine carries its frame behind its own fields:

    3.12 on: +16 weak references │ +24 name │ +32 qualified name │ +40 two words of errors │ +56 origin │ +64 flags │
             +72 frame: …, locals, value stack, on which stands what it awaits       (3.11: a code object first, so +80)

_PyGenObject_HEAD of Include/internal/pycore_genobject.h (3.11: Include/cpython/genobject.h).
"""

from collections.abc import Iterator

from .frames import Frame, local_variables
from .memory import Unreadable
from .reader import Reader

_FRAME_AT, _FRAME_AT_3_11 = 72, 80
_MOST_AWAITED = 50
_MOST_STACK = 100
_KINDS = ("coroutine", "async_generator", "generator")


def awaited(reader: Reader, coroutine: int) -> Iterator[Frame]:
    """The frame of a coroutine and, as far as can be seen, of those below it. Nothing where there is none."""
    seen: set[int] = set()
    ahead = [coroutine]
    while ahead and len(seen) < _MOST_AWAITED:
        address = ahead.pop()
        if address in seen:
            continue
        seen.add(address)
        try:
            if reader.type_of(address).name not in _KINDS:
                continue
            frame = _frame(reader, address)
            local_variables(reader, frame)  # also tells whether it still is one
            ahead += _on_stack(reader, frame)
        except Unreadable:
            continue
        yield frame


def _frame(reader: Reader, coroutine: int) -> Frame:
    layout = reader.layout
    if layout.code_start is None:
        raise Unreadable("coroutines of CPython 3.10 are not read")
    address = coroutine + (_FRAME_AT_3_11 if reader.runtime.minor == (3, 11) else _FRAME_AT)
    code = reader.word(address + layout.code) & (~3 if layout.tagged else ~0)
    if reader.type_of(code).name != "code":
        raise Unreadable(f"the coroutine at {coroutine:#x} has no frame: it is over")
    return Frame(reader.string(reader.word(code + layout.code_name)), "", None, 0, address, code)


def _on_stack(reader: Reader, frame: Frame) -> list[int]:
    """What stands on its value stack, and may be left over from before: whoever uses it looks at its type."""
    count = reader.word(reader.word(frame.code + 96) + 16)
    stack_size_at = frame.code + reader.layout.code_line - 4  # co_stacksize, in front of co_firstlineno
    size = int.from_bytes(reader.memory.read(stack_size_at, 4), "little")
    if not 0 <= size <= _MOST_STACK:
        return []
    words = reader.words(frame.address + reader.layout.locals + 8 * count, size)
    mask = ~3 if reader.layout.tagged else ~0
    return [word & mask for word in reversed(words) if word & mask > 4096]
