"""Reads a black box, of a living engine or a dead one: trusts nothing in it, changes nothing, never waits.

Everything is copied out with ``pread``. A mapping would save the copy (0.3 ms for a hundred thousand blocks) and kill
us with SIGBUS when somebody truncates the file under it; a short read is an error message.
"""

import fcntl
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from msgspec import Struct

from inferdbg.blackbox.layout import Layout, Place, broken, parse_layout, table_place
from inferdbg.blackbox.writer import (
    ENTRY_TYPES,
    EVENT,
    EVENT_CRC_FROM,
    EVENT_WORDS_OFFSET,
    EXIT_OFFSET,
    HEADER,
    INTENT_OFFSET,
    IS_PADDING,
    SIZES,
    STATIC_BYTES,
    STATIC_WORDS_OFFSET,
    STEP,
    STEP_BYTES,
    STEP_WORDS_OFFSET,
    boot_id,
)
from inferdbg.errors import InferdbgError

TRIES = 5
"""Copies of the columns made before we say ``torn``; each takes well below a millisecond."""
_SPINS = 50
_INTENT = struct.Struct("=4q")
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_WORD = struct.Struct("=Q")
_HALF = struct.Struct("=I")
_THREE_WORDS = struct.Struct("=3Q")
_STATIC_WORDS = struct.Struct("=5Q")


class Change(NamedTuple):
    """A change that was half done: see writer.BlackBox. Codes as the engine wrote them."""

    operation: int
    block: int
    request: int


class Moment(Struct, frozen=True):
    """Columns that belong together: but for what ``change`` names, they agree. ``torn``: they
    changed under every try, so they may disagree anywhere."""

    columns: dict[str, bytes]
    generation: int
    change: Change | None
    torn: bool


class StepRecord(NamedTuple):
    """One step. ``fields``: as writer.STEP. ``work``: numbers, kinds, tokens and contexts as writer.ENTRY_TYPES, an
    item a scheduled request; None when it was overwritten."""

    fields: tuple[int, ...]
    work: tuple[bytes, bytes, bytes, bytes] | None


class StepsRead(NamedTuple):
    """``finished``: oldest first. ``running``: planned and not finished yet. ``last``: ordinal of the last finished
    one, to go on from. ``dropped``: finished since, overwritten before we looked."""

    finished: list[StepRecord]
    running: StepRecord | None
    last: int
    dropped: int


class EventRecord(Struct, frozen=True, gc=False):
    """``place``: bytes since the ring's beginning. The others as in writer.EVENT."""

    place: int
    sequence: int
    mono_ns: int
    step: int
    kind: int
    request: int
    other: int
    block: int
    tokens: int
    text: str


class EventsRead(NamedTuple):
    """``events``: oldest first. ``last``: sequence number of the last one, to go on from. ``dropped``: overwritten, or
    damaged, before we looked."""

    events: list[EventRecord]
    last: int
    dropped: int


_Run = list[tuple[str, Place]]
_SMALL_COLUMN, _SMALL_GAP = 16384, 4096


class Box:
    """An open box. Every method raises InferdbgError when the file is damaged or was cut short meanwhile.

    A process must not open its own box: closing it would release the lock that says that the process lives.
    """

    def __init__(self, path: str, descriptor: int, layout: Layout) -> None:
        self.path = path
        self.layout = layout
        self._descriptor = descriptor
        self._of_this_boot = layout.boot == boot_id()
        self._newest_event = 0, 0
        """Number and offset of the newest event given out, where the walk over a full ring may begin the next time."""

    @classmethod
    def open(cls, path: str) -> "Box":
        """Raises InferdbgError for what cannot be opened or is no sound box."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except PermissionError:
            raise InferdbgError(
                f"{path} may be read only by its engine's user", "run inferdbg as that user, or with sudo"
            ) from None
        except (OSError, ValueError) as error:
            raise InferdbgError(
                f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}",
                "`inferdbg top` lists the boxes found here",
            ) from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise broken(path, "it is not a file")
            header = os.pread(descriptor, HEADER.size, 0)
            offset, length = table_place(header, found.st_size, path)
            layout = parse_layout(header, os.pread(descriptor, length, offset), path)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, layout)

    def close(self) -> None:
        os.close(self._descriptor)

    def alive(self) -> bool:
        """Its engine still holds the lock. Says nothing about whether it makes progress."""
        return self._of_this_boot and _lock(self._descriptor)[0] != fcntl.F_UNLCK

    def state(self) -> Literal["alive", "dead", "stopped cleanly", "copied"]:
        """``copied``: nobody holds this file, and its engine runs: it holds another one."""
        if self.requests_left() is not None:
            return "stopped cleanly"
        if self.alive():
            return "alive"
        pid = self.layout.pid
        runs = self._of_this_boot and pid != os.getpid() and _runs_still(pid, self.layout.start_ticks)
        return "copied" if runs and _holds_another(pid, os.fstat(self._descriptor)) else "dead"

    def holder(self) -> int | None:
        """The engine's pid as we see it; None when it is dead or in a PID namespace that we cannot look into."""
        kind, pid = _lock(self._descriptor)
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    def requests_left(self) -> int | None:
        """Requests in flight at a clean stop; None when there was none: it runs, or it died."""
        word = self._words(_WORD, EXIT_OFFSET)[0]
        return word - 1 if word else None

    def facts(self) -> bytes | None:
        """The static JSON; None when it was never written, or changed under every try."""
        for _ in range(TRIES):
            words = self._words(_STATIC_WORDS, STATIC_WORDS_OFFSET)
            slot = words[0] & 1
            length, checksum = words[1 + 2 * slot], words[2 + 2 * slot]
            if not 0 < length <= STATIC_BYTES:
                return None
            encoded = self._pread(length, self.layout.static + slot * STATIC_BYTES)
            if zlib.crc32(encoded) == checksum:
                return encoded
        return None

    def read(self, names: Iterable[str]) -> Moment:
        """The columns of these names, of one moment; names that the box does not have are left out."""
        runs = _runs((name, place) for name in names if (place := self.layout.columns.get(name)) is not None)
        before = self._settle()
        for attempt in range(TRIES):
            columns = {name: found for run in runs for name, found in self._run(run)}
            after = self._words(_INTENT, INTENT_OFFSET)
            torn = after[0] != before[0]
            if not torn or attempt == TRIES - 1:
                break
            before = self._settle()
        changing = before[0] % 2 == 1 and not torn
        return Moment(columns, after[0], Change(*after[1:]) if changing else None, torn)

    def steps(self, after: int | None, limit: int) -> StepsRead:
        """Steps that finished after the one with ordinal ``after`` (None: the first look, when nothing counts as
        dropped), at most ``limit`` of them, the newest."""
        ring = self.layout.steps
        records = ring.length // STEP_BYTES
        planned, finished, head = self._words(_THREE_WORDS, STEP_WORDS_OFFSET)
        finished = min(finished, planned)
        oldest = max(1, planned - records + 1)
        start = max(oldest, finished - limit + 1, (after or 0) + 1)
        end = finished + 1 if planned > finished + 1 else planned + 1
        unpacked = list(STEP.iter_unpack(self._ring_bytes(ring, STEP_BYTES, start - 1, end - 1)))
        numbered = [fields for ordinal, fields in zip(range(start, end), unpacked, strict=True) if fields[0] == ordinal]
        work = self._work(numbered, head)
        planned_after, _, head_after = self._words(_THREE_WORDS, STEP_WORDS_OFFSET)
        sound_from = planned_after + 2 - records  # older ones may have been overwritten while we read
        capacity = self.layout.entries["numbers"].length
        found = [
            StepRecord(fields, entries if head_after - fields[15] <= capacity else None)
            for fields, entries in zip(numbered, work, strict=True)
            if fields[0] >= sound_from
        ]
        running = found.pop() if found and found[-1].fields[0] > finished else None
        dropped = 0 if after is None else max(0, finished - after) - len(found)
        return StepsRead(found, running, max(finished, after or 0), dropped)

    def events(self, after: int | None, limit: int) -> EventsRead:
        """Events with a sequence number above ``after`` (None: the first look), at most ``limit``, the newest."""
        ring = self.layout.events
        known = after or 0
        head, tail, upcoming = self._words(_THREE_WORDS, EVENT_WORDS_OFFSET)
        if upcoming <= known + 1 or not tail <= head <= tail + ring.length or tail % 8 or head % 8:
            return EventsRead([], known, 0)
        sequence, place = self._newest_event
        start = place if sequence == after and tail <= place <= head else tail
        walked = _walk(self._ring_bytes(ring, 1, start, head), start, ring.length, max(known + 1, upcoming - limit))
        tail_after = self._words(_THREE_WORDS, EVENT_WORDS_OFFSET)[1]
        events = walked if start >= tail_after else [event for event in walked if event.place >= tail_after]
        if events:
            self._newest_event = events[-1].sequence, events[-1].place
        last = events[-1].sequence if events else known
        return EventsRead(events, last, 0 if after is None else last - after - len(events))

    def _work(self, steps: list[tuple[int, ...]], head: int) -> list[tuple[bytes, bytes, bytes, bytes] | None]:
        """The entries of these steps, from as few reads as possible."""
        places = self.layout.entries
        capacity = places["numbers"].length
        lowest = max(0, head - capacity)

        def kept(fields: tuple[int, ...]) -> bool:
            return fields[14] == fields[16] and lowest <= fields[15] and fields[15] + fields[16] <= head

        start = min((fields[15] for fields in steps if kept(fields)), default=head)
        numbers, kinds, tokens, contexts = (
            self._ring_bytes(places[name], SIZES[typecode], start, head) for name, typecode in ENTRY_TYPES.items()
        )
        found: list[tuple[bytes, bytes, bytes, bytes] | None] = []
        for fields in steps:
            if kept(fields):
                first, end = fields[15] - start, fields[15] - start + fields[16]
                words = slice(4 * first, 4 * end)
                found.append((numbers[words], kinds[first:end], tokens[words], contexts[words]))
            else:
                found.append(None)
        return found

    def _settle(self) -> tuple[int, ...]:
        """The intent words, even ones if a change ends while we look."""
        words = self._words(_INTENT, INTENT_OFFSET)
        for _ in range(_SPINS):
            if words[0] % 2 == 0:
                break
            words = self._words(_INTENT, INTENT_OFFSET)
        return words

    def _ring_bytes(self, place: Place, width: int, start: int, end: int) -> bytes:
        """Items ``start`` to ``end`` of ``width`` bytes, counted since the ring's beginning; at most a ring full."""
        items = place.size // width
        first, count = start % items, min(max(end - start, 0), items)
        until_end = min(count, items - first)
        encoded = self._pread(until_end * width, place.offset + first * width)
        return encoded + self._pread((count - until_end) * width, place.offset)

    def _run(self, run: "_Run") -> Iterator[tuple[str, bytes]]:
        start = run[0][1].offset
        encoded = self._pread(run[-1][1].offset + run[-1][1].size - start, start)
        if len(run) == 1:
            yield run[0][0], encoded
            return
        for name, place in run:
            yield name, encoded[place.offset - start : place.offset - start + place.size]

    def _words(self, words: struct.Struct, offset: int) -> tuple[int, ...]:
        return words.unpack(self._pread(words.size, offset))

    def _pread(self, size: int, offset: int) -> bytes:
        found = os.pread(self._descriptor, size, offset)
        if len(found) != size:
            raise broken(self.path, "it was cut short while we read it")
        return found


def _runs(places: Iterable[tuple[str, Place]]) -> list[_Run]:
    """Columns that are read at once: small ones that lie together. A large one is better read without a copy."""
    runs: list[_Run] = []
    for name, place in sorted(places, key=lambda one: one[1].offset):
        last = runs[-1][-1][1] if runs else None
        if (
            last is not None
            and max(place.size, last.size) <= _SMALL_COLUMN
            and place.offset - last.offset - last.size <= _SMALL_GAP
        ):
            runs[-1].append((name, place))
        else:
            runs.append([(name, place)])
    return runs


def _runs_still(pid: int, start_ticks: int) -> bool:
    """By the fields 3 and 22 of proc_pid_stat(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[19]) == start_ticks and fields[0] not in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return False


def _holds_another(pid: int, this: os.stat_result) -> bool:
    """Whether a process has the lock of a box, the first byte alone, on another file than this one (proc_locks(5))."""
    try:
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
    except (OSError, ValueError):
        return False
    held = [
        lock[5].split(":")
        for lock in locks
        if lock[1:5] == ["POSIX", "ADVISORY", "WRITE", str(pid)] and lock[6:] == ["0", "0"]
    ]
    return any(int(inode) != this.st_ino for _, _, inode in held)


def is_locked(path: str) -> bool:
    """Some process holds the file as an engine holds its box. Also for files that are no sound box; raises OSError."""
    return _lock_of(path)[0] != fcntl.F_UNLCK


def holder_of(path: str) -> int | None:
    """As Box.holder, also for files that are no sound box; raises OSError."""
    kind, pid = _lock_of(path)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def _lock_of(path: str) -> tuple[int, int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> tuple[int, int]:
    """Type and pid of the lock that would keep us from taking one on the first byte."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return kind, pid


def _walk(encoded: bytes, start: int, capacity: int, wanted_from: int) -> list[EventRecord]:
    """Events of the wanted numbers, up to the first damaged record."""
    found: list[EventRecord] = []
    at, end, view = 0, len(encoded), memoryview(encoded)
    while at + EVENT.size <= end:  # padding that is shorter has nothing behind it
        length, checksum, sequence, mono_ns, step, kind, request, other, block, tokens, text_bytes = EVENT.unpack_from(
            encoded, at
        )
        if length & IS_PADDING:
            length &= ~7
            if not length or (start + at + length) % capacity:
                break
            at += length
            continue
        if length < EVENT.size or length % 8 or at + length > end:
            break
        if sequence >= wanted_from:
            wanted_from = sequence + 1  # they only ever rise
            if zlib.crc32(view[at + EVENT_CRC_FROM : at + length]) != checksum or text_bytes > length - EVENT.size:
                break
            text_at = at + EVENT.size
            text = encoded[text_at : text_at + text_bytes].decode("utf-8", "replace") if text_bytes else ""
            found.append(EventRecord(start + at, sequence, mono_ns, step, kind, request, other, block, tokens, text))
        at += length
    return found
