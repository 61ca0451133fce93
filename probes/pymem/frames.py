"""Where the threads of a target stand: functions, lines, instructions and local variables, innermost frame first.

    _PyRuntime ─► interpreter ─► thread ─► frame ─► frame …          layouts.py says at which offsets
                                             ├─► code: name, file, lines, names of locals
                                             ├─ address of the instruction that it runs
                                             └─ locals, then the value stack

A running thread's stack changes while it is walked, so all frames are read twice: what differs is walked again, and a
stack that never stood still says so.
"""

import struct
from collections.abc import Collection, Iterator

from msgspec import Struct

from .memory import Unreadable
from .objects import read
from .reader import Reader
from .values import Limits, Obj

_MOST_THREADS = 10_000
_MOST_FRAMES = 2_000
_MOST_LOCALS = 10_000
_TRIES = 10
_FRAME = 80
_CODE = 216
_CSTACK_OWNERS = (3, 4)  # frames that stand for C code between Python frames
_CELL, _FREE = 0x40, 0x80
_PATH_LENGTH = 4096


class Frame(Struct, frozen=True):
    """One call. ``instruction``: address of what it runs or will return to (3.10: offset in its code), which tells
    whether it moved. ``address``, ``code``: of the frame and its code object."""

    function: str
    file: str
    line: int | None
    instruction: int
    address: int
    code: int


class Thread(Struct, frozen=True):
    """``native_id``: as in /proc/PID/task, None where that version does not keep it. ``name``: what Python calls it,
    else the kernel. ``settled``: False when the stack changed each time it was walked, and cannot be trusted."""

    address: int
    native_id: int | None
    name: str | None
    frames: tuple[Frame, ...]
    settled: bool = True

    def frame(self, function: str) -> Frame | None:
        """The innermost call of a function."""
        return next((frame for frame in self.frames if frame.function == function), None)


def threads(reader: Reader) -> list[Thread]:
    """All threads that Python knows, of all interpreters, the oldest first."""
    names = _names(reader)
    found = []
    for interpreter in reversed(reader.interpreters()):
        for address in reversed(_thread_addresses(reader, interpreter)):
            try:
                native_id, ident = _ids(reader, address)
                name = names.get(ident) or (reader.memory.thread_name(native_id) if native_id is not None else None)
                frames, settled = stack(reader, address)
            except Unreadable:
                continue  # it has ended meanwhile
            found.append(Thread(address, native_id, name, frames, settled))
    return found


def _thread_addresses(reader: Reader, interpreter: int) -> list[int]:
    found: list[int] = []
    thread = reader.word(interpreter + reader.layout.threads)
    while thread and thread not in found and len(found) < _MOST_THREADS:
        found.append(thread)
        try:
            thread = reader.word(thread + reader.layout.next_thread)
        except Unreadable:
            break
    return found


def _ids(reader: Reader, thread: int) -> tuple[int | None, int]:
    """(native id, what threading.get_ident() says)."""
    layout = reader.layout
    native_id = None if layout.native_id is None else reader.word(thread + layout.native_id)
    return native_id, reader.word(thread + layout.thread_id)


def _names(reader: Reader) -> dict[int, str]:
    """Names that the module threading gives, by ident; {} where it is not loaded or cannot be read now."""
    try:
        module = reader.modules().get("threading")
        active = None if module is None else reader.module_dict(module).get("_active")
        if active is None:
            return {}
        found = read(reader, active, Limits(depth=2, hidden=frozenset({"_target", "_args", "_kwargs"})))
    except Unreadable:
        return {}
    names = {}
    if isinstance(found, dict):
        for ident, thread in found.items():
            name = thread.attributes.get("_name") if isinstance(thread, Obj) else None
            if isinstance(ident, int) and isinstance(name, str):
                names[ident] = name
    return names


def stack(reader: Reader, thread: int, within: Collection[str] = ()) -> tuple[tuple[Frame, ...], bool]:
    """The frames of a thread, and whether they stood still while they were read. Unreadable when it has ended.

    ``within``: of the innermost call of one of these functions, and those around it, it is enough that they stood
    still: what they call may come and go, as in one that asks again and again for an answer.
    """
    last: tuple[Frame, ...] | None = None
    failure = None
    for _ in range(_TRIES):
        try:
            top, raw = _walk(reader, thread)
            numbered = list(_frames(reader, raw))
            inner = next((number for number, frame in numbered if frame.function in within), 0)
            again, missing = reader.memory.read_many([(address, _span(reader)) for address, _ in raw[inner:]])
            settled = not missing and again == b"".join(part for _, part in raw[inner:])
            settled = settled and (inner > 0 or _top(reader, thread) == top)
        except Unreadable as error:
            failure = error
            continue
        last = tuple(frame for _, frame in numbered)
        if settled:
            return last, True
    if last is None:
        raise failure or Unreadable(f"no stack of the thread at {thread:#x}")
    return last, False


def _span(reader: Reader) -> int:
    return _FRAME if reader.layout.code_start is not None else 104


def _top(reader: Reader, thread: int) -> int:
    layout = reader.layout
    frame = reader.word(thread + layout.frame)
    return reader.word(frame + layout.cframe) if frame and layout.cframe is not None else frame


def _walk(reader: Reader, thread: int) -> tuple[int, list[tuple[int, bytes]]]:
    """The raw frames, innermost first."""
    top = frame = _top(reader, thread)
    raw: list[tuple[int, bytes]] = []
    seen = set()
    while frame:
        if frame in seen or len(raw) >= _MOST_FRAMES:
            raise Unreadable(f"the stack of the thread at {thread:#x} does not end")
        seen.add(frame)
        part = reader.memory.read(frame, _span(reader))
        raw.append((frame, part))
        (frame,) = struct.unpack_from("<Q", part, reader.layout.previous)
    return top, raw


def _frames(reader: Reader, raw: list[tuple[int, bytes]]) -> Iterator[tuple[int, Frame]]:
    """Those that run Python code, with their numbers among all."""
    layout = reader.layout
    for number, (address, part) in enumerate(raw):
        if layout.owner is not None and part[layout.owner] in _CSTACK_OWNERS:
            continue
        (code,) = struct.unpack_from("<Q", part, layout.code)
        code &= ~3 if layout.tagged else ~0
        if not code or reader.type_of(code).name != "code":
            continue
        if layout.code_start is None:
            (instruction,) = struct.unpack_from("<i", part, layout.instruction)
        else:
            (instruction,) = struct.unpack_from("<Q", part, layout.instruction)
        yield number, _frame(reader, address, code, instruction)


def _frame(reader: Reader, address: int, code: int, instruction: int) -> Frame:
    layout = reader.layout
    head = reader.memory.read(code, _CODE)
    known = reader.codes.get(code)
    if known is None or known[0] != head[16:]:
        name_at, file_at = (
            struct.unpack_from("<Q", head, offset)[0] for offset in (layout.code_name, layout.code_file)
        )
        name, file = reader.string(name_at), reader.string(file_at, _PATH_LENGTH)
        known = reader.codes[code] = head[16:], name, file, _line_table(reader, head), {}
    _, function, file, lines, at = known
    if instruction in at:
        return Frame(function, file, at[instruction], instruction, address, code)
    (first_line,) = struct.unpack_from("<i", head, layout.code_line)
    if layout.code_start is None:
        line = line_of_3_10(lines, first_line, 2 * instruction)
    else:
        line = line_at(lines, first_line, instruction - code - layout.code_start)
    at[instruction] = line
    return Frame(function, file, line, instruction, address, code)


def _line_table(reader: Reader, head: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", head, reader.layout.code_lines)
    size = reader.word(table + 16)
    if size > 1 << 20:
        raise Unreadable(f"a table of lines of {size} bytes")
    return reader.memory.read(table + 32, size)


def line_of_3_10(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of a code offset in bytes: pairs of (bytes of code, change of line); -128: no line.

    Objects/lnotab_notes.txt of 3.10.
    """
    line, end = first_line, 0
    for size, change in zip(table[::2], table[1::2], strict=False):
        change = change - 256 if change > 127 else change
        end += size
        if change == -128:
            if offset < end:
                return None
            continue
        line += change
        if offset < end:
            return line
    return None


def line_at(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of a code offset in bytes, 3.11 on. Objects/locations.md of 3.11: each entry begins with a byte of
    which bit 7 is set, bits 3-6 are a form and bits 0-2 the number of code units less one."""
    line, end, at = first_line, 0, 0
    while at < len(table):
        form, units = table[at] >> 3 & 15, (table[at] & 7) + 1
        end += 2 * units
        at += 1
        if form in (13, 14):
            change, shift = 0, 0
            while at < len(table) and shift < 60:
                byte = table[at]
                at += 1
                change |= (byte & 63) << shift
                shift += 6
                if not byte & 64:
                    break
            line += -(change >> 1) if change & 1 else change >> 1
        elif 10 <= form <= 12:
            line += form - 10
        if offset < end:
            return None if form == 15 else line
        while at < len(table) and not table[at] & 128:
            at += 1
    return None


def local_variables(reader: Reader, frame: Frame) -> dict[str, int]:
    """Addresses of a frame's locals by name, cells opened; what is not set yet is left out.

    Unreadable when the frame is not what it was: read it again.
    """
    layout = reader.layout
    names, kinds = _local_names(reader, frame.code)
    slots = reader.words(frame.address + layout.locals, len(names))
    if reader.word(frame.address + layout.code) & (~3 if layout.tagged else ~0) != frame.code:
        raise Unreadable(f"the call of {frame.function} has ended")
    found = {}
    for name, kind, slot in zip(names, kinds, slots, strict=True):
        value = slot
        if layout.tagged:
            if value & 3 == 3:
                continue  # a small int of the interpreter's own
            value &= ~3
        if value and kind & (_CELL | _FREE) and reader.type_of(value).name == "cell":
            value = reader.word(value + 16)
        if value:
            found[name] = value
    return found


def local_words(reader: Reader, frame: Frame) -> bytes:
    """The raw slots of a frame's locals: a call that did not go on has the same ones."""
    if reader.layout.code_start is not None:
        count = reader.word(reader.word(frame.code + 96) + 16)
    else:
        count = sum(reader.word(reader.word(frame.code + offset) + 16) for offset in (72, 88, 80))
    if count > _MOST_LOCALS:
        raise Unreadable(f"{frame.function} has {count} local variables")
    return reader.memory.read(frame.address + reader.layout.locals, 8 * count)


def _local_names(reader: Reader, code: int) -> tuple[list[str], bytes]:
    """(names, kinds) in the order of their slots; kinds: 0x20 local, 0x40 cell, 0x80 free."""
    if reader.layout.code_start is not None:
        names = reader.strings(reader.word(code + 96), _MOST_LOCALS)
        return names, reader.memory.read(reader.word(code + 104) + 32, len(names))
    variables, cells, free = (reader.strings(reader.word(code + offset), _MOST_LOCALS) for offset in (72, 88, 80))
    return variables + cells + free, bytes([0x20] * len(variables) + [_CELL] * len(cells) + [_FREE] * len(free))
