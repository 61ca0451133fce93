"""The writing side of a black box: a file in memory that *is* an engine's state, so that it outlives the engine.

One file, standard library only: it is carried into other people's interpreters. ``layout.py`` draws the file.

What a reader can rely on. Every word is 8-byte aligned and CPython stores it in one piece, in program order. A process
that was killed leaves all its stores behind, so a box found dead is exact on every machine. A live reader on x86 sees
stores in their order; on ARM another core may see them swapped within some nanoseconds, which the second read of a
generation or ring word does not always notice: there, a live picture can be wrong for one reading.
"""

import errno
import fcntl
import json
import mmap
import os
import stat
import struct
import tempfile
import time
import zlib
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

Typecode = Literal["B", "H", "I", "i", "Q", "q"]
SIZES: dict[Typecode, int] = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8, "q": 8}

MAGIC = b"idbg-box"
VERSION = 1
BYTE_ORDER = 0x01020304
SUFFIX = ".box"

HEADER = struct.Struct("=8sIIQQQQQ40sQQQQ")
"""magic, version, byte order, file bytes, pid, start ticks, created wall ns, created mono ns, boot id, exit word, table
offset, table bytes, table CRC. The exit word is 0 while running and 1 + requests in flight after a clean stop."""
EXIT_OFFSET = 96
INTENT_OFFSET = 128  # i64: generation (odd while changing), operation, block, request
STEP_WORDS_OFFSET = 192  # u64: planned, finished, entries
EVENT_WORDS_OFFSET = 256  # u64: head, tail, next sequence
STATIC_WORDS_OFFSET = 320  # u64: slot in force, bytes and CRC of slot 0, bytes and CRC of slot 1
TABLE_OFFSET = 512
ALIGNMENT = 64
STATIC_BYTES = 32 * 1024  # of one slot, there are two
MAX_BOX_BYTES = 1 << 29  # neither written nor read beyond

STEP = struct.Struct("=9Q6IQI4x")
"""ordinal (0 while being written), step, start, schedule, prepare, forward, sample, commit, idle ns; budget, prefill
tokens, decode tokens, running, waiting, scheduled requests; first entry; entries kept."""
STEP_BYTES = STEP.size
STEP_TIMES = struct.Struct("=7Q")  # from start to idle
STEP_TIMES_OFFSET = 16
ENTRY_TYPES: dict[str, Typecode] = {"numbers": "I", "kinds": "B", "tokens": "I", "contexts": "I"}

EVENT = struct.Struct("=IIQQQIIIiII")
"""bytes of the record (a multiple of 8), CRC of all behind it; sequence, mono ns, step; kind, request, other, block,
tokens, bytes of text. UTF-8 text follows. A record whose length has the bit IS_PADDING only fills the ring's end."""
IS_PADDING = 1
EVENT_CRC_FROM = 8
MAX_TEXT = 1024

_RINGS = (4096, 65536, 1 << 20)  # step records, entries, event bytes
_SMALLEST = (64, 1024, 8192)
_NAME_A_FOLDER = "name another folder with --blackbox-dir"


class BoxError(Exception):
    """``hint``: what to do next, in a line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def default_folders(uid: int) -> list[str]:
    """Where the boxes of a user go, the first that will do: folders in memory, named after the user."""
    return [
        f"/dev/shm/inferdbg-{uid}",
        f"/run/user/{uid}/inferdbg-{uid}",
        os.path.join(tempfile.gettempdir(), f"inferdbg-{uid}"),
    ]


def boot_id() -> str:
    """Tells one boot of the machine from the next."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def start_ticks(pid: int | str = "self") -> int:
    """When a process started, in clock ticks since boot: with the pid, it names a process for ever."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


class StepRing:
    """What the last steps ran. An entry is one request's share; a step's entries lie in one piece."""

    __slots__ = ("_capacity", "_entries", "_next", "_offset", "_records", "_ring", "_words")

    def __init__(
        self, words: "memoryview[int]", ring: "memoryview[int]", entries: dict[str, "memoryview[int]"]
    ) -> None:
        self._words = words
        self._ring = ring
        self._records = len(ring) // STEP_BYTES
        self._entries = tuple(entries[name] for name in ENTRY_TYPES)
        self._capacity = len(self._entries[0])
        self._next = 0
        self._offset = 0

    def plan(
        self,
        step: int,
        limits: tuple[int, int, int, int, int],
        numbers: "array[int]",
        kinds: "array[int]",
        tokens: "array[int]",
        contexts: "array[int]",
    ) -> None:
        """A step begins. ``limits``: budget, prefill tokens, decode tokens, running, waiting."""
        words = self._words
        scheduled = len(numbers)
        capacity = self._capacity
        first = self._next
        kept = scheduled if scheduled <= capacity else 0
        at = first % capacity
        if at + kept > capacity:
            first += capacity - at
            at = 0
        self._next = end = first + kept
        ordinal = words[0] + 1
        self._offset = offset = (ordinal - 1) % self._records * STEP_BYTES
        words[2] = end  # before the entries are overwritten
        if kept:
            until = at + kept
            into = self._entries
            into[0][at:until] = numbers
            into[1][at:until] = kinds
            into[2][at:until] = tokens
            into[3][at:until] = contexts
        STEP.pack_into(
            self._ring, offset, 0, step, time.monotonic_ns(), 0, 0, 0, 0, 0, 0, *limits, scheduled, first, kept
        )
        _WORD.pack_into(self._ring, offset, ordinal)
        words[0] = ordinal

    def finish(
        self, start: int, schedule: int, prepare: int, forward: int, sample: int, commit: int, idle: int
    ) -> None:
        """The step planned last is over; times in ns."""
        STEP_TIMES.pack_into(
            self._ring, self._offset + STEP_TIMES_OFFSET, start, schedule, prepare, forward, sample, commit, idle
        )
        words = self._words
        words[1] = words[0]


class EventRing:
    """The last events, records of different length one after another; the oldest make room."""

    __slots__ = ("_capacity", "_head", "_ring", "_scratch", "_sequence", "_tail", "_textless", "_words")

    def __init__(self, words: "memoryview[int]", ring: "memoryview[int]") -> None:
        self._words = words
        self._ring = ring
        self._capacity = len(ring)
        self._head = 0
        self._tail = 0
        self._sequence = 0
        self._scratch = memoryview(bytearray(EVENT.size + MAX_TEXT + 8))
        self._textless = self._scratch[: EVENT.size], self._scratch[EVENT_CRC_FROM : EVENT.size]

    def add(self, kind: int, step: int, request: int, other: int, block: int, tokens: int, text: str) -> None:
        """Kinds count from 1. ``text`` is cut at MAX_TEXT bytes."""
        self._sequence = sequence = self._sequence + 1
        scratch = self._scratch
        length = used = EVENT.size
        record, checked = self._textless
        if text:
            encoded = text.encode("utf-8", "replace")[:MAX_TEXT]
            used += len(encoded)
            length = (used + 7) & ~7
            scratch[EVENT.size : used] = encoded
            scratch[used:length] = bytes(length - used)
            record, checked = scratch[:length], scratch[EVENT_CRC_FROM:length]
        EVENT.pack_into(
            scratch, 0, length, 0, sequence, time.monotonic_ns(), step,
            kind, request, other, block, tokens, used - EVENT.size,
        )  # fmt: skip
        _HALF.pack_into(scratch, 4, zlib.crc32(checked))
        head, capacity, ring, words = self._head, self._capacity, self._ring, self._words
        at = head % capacity
        padding = capacity - at if at + length > capacity else 0
        end = head + padding + length
        if end - self._tail > capacity:
            tail = self._tail
            while end - tail > capacity:
                tail += _HALF.unpack_from(ring, tail % capacity)[0] & ~7
            self._tail = tail
            words[1] = tail  # before they are overwritten
        if padding:
            _PADDING.pack_into(ring, at, padding | IS_PADDING, 0)
            at = 0
        ring[at : at + length] = record
        self._head = end
        words[2] = sequence + 1
        words[0] = end


_WORD = struct.Struct("=Q")
_HALF = struct.Struct("=I")
_PADDING = struct.Struct("=II")


class BlackBox:
    """A box of this process. ``columns`` are the engine's own arrays; ``intent`` is [generation, operation, block,
    request]; ``notes`` say where the box came out smaller or elsewhere than wished.

    A change of more than one store is written down first: operation, block and request, then an odd generation; an even
    one when it is complete. The box must not be opened again by this process: closing any descriptor of the file
    releases the lock by which others know that we live.
    """

    def __init__(self, path: str, descriptor: int, folder: int, memory: mmap.mmap, table: dict[str, object]) -> None:
        self.path = path
        self.notes: list[str] = []
        self._descriptor = descriptor
        self._folder = folder
        self._memory = memory
        self._table = table
        view = memoryview(memory)
        self._view = view
        self.columns: dict[str, memoryview[int]] = {
            name: _cast(view, offset, code, length) for name, code, length, offset in _rows(table["columns"])
        }
        self.intent = _cast(view, INTENT_OFFSET, "q", 4)
        self._static = _cast(view, STATIC_WORDS_OFFSET, "Q", 5)
        entries = {name: _cast(view, offset, code, length) for name, code, length, offset in _rows(table["entries"])}
        (_, _, step_bytes, step_offset), (_, _, event_bytes, event_offset) = _rows(table["rings"])
        self.steps = StepRing(
            _cast(view, STEP_WORDS_OFFSET, "Q", 3), view[step_offset : step_offset + step_bytes], entries
        )
        self.events = EventRing(
            _cast(view, EVENT_WORDS_OFFSET, "Q", 3), view[event_offset : event_offset + event_bytes]
        )

    @classmethod
    def create(
        cls,
        folder: str | None,
        columns: Sequence[tuple[str, Typecode, int]],
        *,
        rings: tuple[int, int, int] = _RINGS,
    ) -> "BlackBox":
        """Reserves the file and takes the lock; nothing of it can fail later for want of space.

        ``folder``: None for the first of ``default_folders`` that will do. ``columns``: name, typecode, length.
        ``rings``: step records, their entries, bytes of events; less where space is short. Raises BoxError.
        """
        _, total = _lay_out(columns, rings)
        if total > MAX_BOX_BYTES:
            raise BoxError(
                f"the black box would take {total:,} bytes, more than the {MAX_BOX_BYTES:,} that one may have",
                "run with fewer KV blocks (--num-blocks, or a larger --block-size), or without a box (--no-blackbox)",
            )
        if folder is not None:
            return cls._create_in(folder, columns, rings, private=False)
        reasons: list[str] = []
        for candidate in default_folders(os.geteuid()):
            try:
                box = cls._create_in(candidate, columns, rings, private=True)
            except BoxError as error:
                reasons.append(error.message)
                continue
            if reasons:
                box.notes.append(f"the box lies in {candidate}: " + "; ".join(reasons))
            return box
        raise BoxError("no black box can be made: " + "; ".join(reasons), _NAME_A_FOLDER)

    @classmethod
    def _create_in(
        cls, path: str, columns: Sequence[tuple[str, Typecode, int]], rings: tuple[int, int, int], *, private: bool
    ) -> "BlackBox":
        notes: list[str] = []
        folder = _enter(path, private=private)
        try:
            if not _in_memory(folder):
                if private:
                    with suppress(OSError):
                        os.rmdir(path)  # if we just made it
                    raise BoxError(f"{path} is on a disk", _NAME_A_FOLDER)
                notes.append(f"{path} is not in memory: the kernel's write-back can stall the engine")
            name, file = _create_file(path, folder)
            try:
                box = cls._fill(path, folder, name, file, columns, rings, notes)
            except BaseException as error:
                os.unlink(name, dir_fd=folder)
                os.close(file)
                if isinstance(error, OSError):
                    raise BoxError(
                        f"the black box cannot be set up in {path}: {error.strerror}", _NAME_A_FOLDER
                    ) from None
                raise
        except BaseException:
            os.close(folder)
            raise
        box.notes = notes
        return box

    @classmethod
    def _fill(
        cls,
        path: str,
        folder: int,
        name: str,
        file: int,
        columns: Sequence[tuple[str, Typecode, int]],
        rings: tuple[int, int, int],
        notes: list[str],
    ) -> "BlackBox":
        table, total = _reserve(path, file, columns, rings, notes)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        memory = mmap.mmap(file, total, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        box = cls(os.path.join(path, name), file, folder, memory, table)
        encoded = json.dumps(table).encode()
        memory[TABLE_OFFSET : TABLE_OFFSET + len(encoded)] = encoded
        header = HEADER.pack(
            MAGIC, VERSION, BYTE_ORDER, total, os.getpid(), start_ticks(), time.time_ns(), time.monotonic_ns(),
            boot_id().encode(), 0, TABLE_OFFSET, len(encoded), zlib.crc32(encoded),
        )  # fmt: skip
        memory[len(MAGIC) : len(header)] = header[len(MAGIC) :]
        memory[: len(MAGIC)] = MAGIC  # last: without it the file is not a box yet
        return box

    def update_static(self, facts: dict[str, object]) -> None:
        """Replaces the facts that hardly ever change. Raises BoxError when their JSON is too long."""
        encoded = json.dumps(facts).encode()
        if len(encoded) > STATIC_BYTES:
            raise BoxError(f"the facts about the engine take {len(encoded)} bytes, the box keeps {STATIC_BYTES}")
        words = self._static
        slot = 1 - words[0]
        start = _number(self._table["static"]) + slot * STATIC_BYTES
        self._memory[start : start + len(encoded)] = encoded
        words[1 + 2 * slot] = len(encoded)
        words[2 + 2 * slot] = zlib.crc32(encoded)
        words[0] = slot

    def stop(self, requests_in_flight: int) -> None:
        """A clean end. With nothing in flight there is nothing to explain: the file goes."""
        _WORD.pack_into(self._memory, EXIT_OFFSET, 1 + requests_in_flight)
        if not requests_in_flight:
            self._remove()

    def close(self) -> None:
        """Releases the lock as death does, and leaves the file. The columns stay usable, nobody expects us to."""
        os.close(self._descriptor)
        os.close(self._folder)

    def _remove(self) -> None:
        name = os.path.basename(self.path)
        with suppress(OSError):  # somebody was faster, or took the folder away
            found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            if found.st_ino == os.fstat(self._descriptor).st_ino:
                os.unlink(name, dir_fd=self._folder)


def _cast(view: "memoryview[int]", offset: int, code: Typecode, length: int) -> "memoryview[int]":
    cast: memoryview[int] = view[offset : offset + length * SIZES[code]].cast(code)
    return cast


def _rows(value: object) -> list[tuple[str, Typecode, int, int]]:
    assert isinstance(value, list)
    return value


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _enter(folder: str, *, private: bool) -> int:
    """Makes the folder if need be. A private one must be ours alone and no link."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise BoxError(f"{folder} cannot be made: {error.strerror}", _NAME_A_FOLDER) from None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if private else 0))
    except OSError as error:
        raise BoxError(f"{folder} cannot be opened as a folder: {error.strerror}", _NAME_A_FOLDER) from None
    found = os.fstat(descriptor)
    if private and found.st_uid != os.geteuid():
        os.close(descriptor)
        raise BoxError(f"{folder} belongs to user {found.st_uid}", _NAME_A_FOLDER)
    if private and stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(descriptor, 0o700)
    return descriptor


def _in_memory(descriptor: int) -> bool:
    """The file system is tmpfs or ramfs, says the kernel's table of mounts."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", errors="replace") as mounts:
        for line in mounts:
            left, _, right = line.partition(" - ")
            if left.split()[2] == wanted:
                return right.split()[0] in ("tmpfs", "ramfs")
    return False


def _create_file(path: str, folder: int) -> tuple[str, int]:
    base = f"{os.getpid()}-{start_ticks()}"
    for count in range(1, 1000):
        name = base + (f".{count}" if count > 1 else "") + SUFFIX
        try:
            return name, os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
            )
        except FileExistsError:
            continue  # another engine of this process, or one of an earlier boot
        except OSError as error:
            raise BoxError(f"no file can be made in {path}: {error.strerror}", _NAME_A_FOLDER) from None
    raise BoxError(f"{path} is full of boxes of process {os.getpid()}", "clear the folder")


def _reserve(
    path: str, file: int, columns: Sequence[tuple[str, Typecode, int]], rings: tuple[int, int, int], notes: list[str]
) -> tuple[dict[str, object], int]:
    """Lays out the file and reserves all its bytes, with smaller rings where they do not fit."""
    sizes = rings
    while True:
        table, total = _lay_out(columns, sizes)
        try:
            os.posix_fallocate(file, 0, total)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise BoxError(f"{total:,} bytes cannot be reserved in {path}: {error.strerror}") from None
            os.ftruncate(file, 0)
            smaller = tuple(max(least, size // 2) for size, least in zip(sizes, _SMALLEST, strict=True))
            if smaller == sizes:
                raise BoxError(
                    f"{path} has no room for the black box: it needs {total:,} bytes ({error.strerror})",
                    "free space there, name another folder with --blackbox-dir, or run with fewer KV blocks",
                ) from None
            sizes = (smaller[0], smaller[1], smaller[2])
            continue
        if sizes != rings:
            notes.append(
                f"space is short in {path}: the box keeps {sizes[0]:,} steps, {sizes[1]:,} of their entries and"
                f" {sizes[2]:,} bytes of events instead of {rings[0]:,}, {rings[1]:,} and {rings[2]:,}"
            )
        return table, total


def _lay_out(
    columns: Sequence[tuple[str, Typecode, int]], rings: tuple[int, int, int]
) -> tuple[dict[str, object], int]:
    records, entries, event_bytes = rings
    table_room = 1024 + sum(len(name) + 48 for name, _, _ in columns)
    at = _aligned(TABLE_OFFSET + table_room)
    static = at
    at = _aligned(at + 2 * STATIC_BYTES)

    def place(wanted: Sequence[tuple[str, Typecode, int]]) -> list[tuple[str, Typecode, int, int]]:
        nonlocal at
        placed = []
        for name, code, length in wanted:
            placed.append((name, code, length, at))
            at = _aligned(at + length * SIZES[code])
        return placed

    table: dict[str, object] = {
        "static": static,
        "columns": place(columns),
        "rings": place([("steps", "B", records * STEP_BYTES), ("events", "B", event_bytes)]),
        "entries": place([(name, code, entries) for name, code in ENTRY_TYPES.items()]),
    }
    return table, at


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
