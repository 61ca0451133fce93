"""The memory of a dead process: an ELF core file, completed from the files that were mapped when it was written.

    ELF header │ program headers │ notes: NT_FILE (who was mapped where), NT_PRSTATUS … │ segments, page by page

Pages that equal their file (code, constants) are left out of a core. They are read from the file, if it still is the
same: its build id, or else its first page, must equal what the core holds of it.
"""

import bisect
import mmap
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from inferdbg import text
from inferdbg.errors import InferdbgError

from . import elf
from .memory import MOST_BYTES, MappedFile, Range, Unreadable

_ET_CORE = 4
_SYSROOT = "look at it on the machine that wrote it, or in the same container: its libraries are needed"
_NT_FILE = 0x46494C45
_NT_PRPSINFO = 3
_MOST_SEGMENTS = 1_000_000
_MOST_NOTES = 64 << 20


class Segment(NamedTuple):
    """``size`` bytes of memory that stand at ``offset`` of the core."""

    start: int
    size: int
    offset: int


class Backing(NamedTuple):
    """Part of a file that was mapped at ``start``."""

    start: int
    end: int
    offset: int
    path: str


class Core:
    """The memory that a core file holds. ``sysroot``: folder under which the files of its machine lie.

    Raises InferdbgError when the file is no core of ours. What a cut one lacks is Unreadable; ``missing_bytes`` says
    how much that is.
    """

    def __init__(self, path: str, sysroot: str = "") -> None:
        self.path = path
        self._sysroot = sysroot.rstrip("/")
        try:
            with open(path, "rb") as opened:
                self._image = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise InferdbgError(f"{path} cannot be read: {error}") from error
        self._segments: list[Segment] = []
        self._backings: list[Backing] = []
        self.missing_bytes = 0
        try:
            self._read_headers()
        except (struct.error, ValueError, OverflowError) as error:
            raise InferdbgError(f"{path} is a core file that was cut: its headers are not all there") from error
        self._segments.sort()
        self._backings.sort()
        self._starts = [segment.start for segment in self._segments]
        self._backing_starts = [backing.start for backing in self._backings]
        self._originals: dict[str, mmap.mmap | str] = {}

    @property
    def name(self) -> str:
        return f"core file {self.path}"

    def _read_headers(self) -> None:
        image = self._image
        if image[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", image, 16) != (_ET_CORE,):
            raise InferdbgError(f"{self.path} is no core file of a 64 bit, little endian machine")
        table, sections = struct.unpack_from("<QQ", image, 32)
        size, count = struct.unpack_from("<HH", image, 54)
        if count == 0xFFFF:  # more than fit: the number stands in the first section header
            (count,) = struct.unpack_from("<I", image, sections + 44)
        if size != 56 or count > _MOST_SEGMENTS:
            raise InferdbgError(f"{self.path} has {count} program headers of {size} bytes")
        for number in range(count):
            header = elf.Header(*struct.unpack_from("<IIQQQQQQ", image, table + 56 * number))
            if header.type == 4 and header.filesz <= _MOST_NOTES:
                for owner, kind, content in elf.notes(image[header.offset : header.offset + header.filesz]):
                    if owner == b"CORE" and kind == _NT_FILE:
                        self._backings += mapped_files(content)
            elif header.type == 1 and header.filesz:
                there = max(0, min(header.filesz, len(image) - header.offset))
                self.missing_bytes += header.filesz - there
                if there:
                    self._segments.append(Segment(header.vaddr, there, header.offset))

    def read(self, address: int, size: int) -> bytes:
        if size < 0 or size > MOST_BYTES:
            raise Unreadable(f"{size} bytes at {address:#x} are more than is read in one go")
        parts = []
        at, left = address, size
        while left > 0:
            part = self._part(at, left)
            parts.append(part)
            at, left = at + len(part), left - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part(self, address: int, size: int) -> bytes:
        """Bytes from ``address`` on, at least one: up to where the segment or the mapping ends."""
        number = bisect.bisect_right(self._starts, address) - 1
        if number >= 0:
            segment = self._segments[number]
            inside = address - segment.start
            if inside < segment.size:
                at = segment.offset + inside
                return self._image[at : at + min(size, segment.size - inside)]
        following = self._starts[number + 1] if number + 1 < len(self._starts) else 1 << 64
        number = bisect.bisect_right(self._backing_starts, address) - 1
        if number >= 0 and address < self._backings[number].end:
            backing = self._backings[number]
            end = min(backing.end, following, address + size)
            original = self._original(backing.path)
            at = backing.offset + address - backing.start
            found = original[at : at + end - address]
            if found:
                return found
        raise Unreadable(f"{size} bytes at {address:#x} are not in {self.name}")

    def read_many(self, ranges: Sequence[Range], into: bytearray | None = None) -> tuple[bytearray, list[int]]:
        total = sum(size for _, size in ranges)
        if total > MOST_BYTES:
            raise Unreadable(f"{total} bytes in one go are more than is read of {self.name}")
        buffer = bytearray(total) if into is None else into
        done, missing = 0, []
        for number, (address, size) in enumerate(ranges):
            try:
                buffer[done : done + size] = self.read(address, size)
            except Unreadable:
                buffer[done : done + size] = bytes(size)
                missing.append(number)
            done += size
        return buffer, missing

    def files(self) -> list[MappedFile]:
        return [MappedFile(backing.start, backing.path) for backing in self._backings if backing.offset == 0]

    def open_file(self, file: MappedFile) -> bytes | None:
        try:
            return bytes(self._original(file.path)[:])
        except Unreadable:
            return None

    def _original(self, path: str) -> mmap.mmap:
        """The file as it is now; Unreadable when it is another one than then."""
        if path not in self._originals:
            self._originals[path] = self._find_original(path)
        found = self._originals[path]
        if isinstance(found, str):
            raise Unreadable(found, _SYSROOT)
        return found

    def complaint(self) -> InferdbgError | None:
        """The first file of which pages were wanted, and which is not there or not the same any more."""
        found = next((original for original in self._originals.values() if isinstance(original, str)), None)
        if found is None and self.missing_bytes:
            return InferdbgError(
                f"{self.name} is cut off: {text.size(self.missing_bytes)} are missing, what was looked for among them",
                "the next one whole: ulimit -c unlimited, and room on the disk",
            )
        return None if found is None else InferdbgError(found, _SYSROOT)

    def _find_original(self, path: str) -> mmap.mmap | str:
        try:
            with open(self._sysroot + path, "rb") as opened:
                original = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            return f"{path}, of which {self.name} left pages out, cannot be read: {error}"
        base = next((file.base for file in self.files() if file.path == path), None)
        if base is None:
            return original

        def now(address: int, size: int) -> bytes:
            if len(found := original[address : address + size]) != size:
                raise Unreadable(f"{path} ends before {address + size}")
            return found

        was, is_now = elf.build_id(self._own, base), elf.build_id(now, 0)
        if was and is_now and was != is_now:
            return f"{path} was replaced: build {is_now.hex()[:12]} now, {was.hex()[:12]} in {self.name}"
        if not (was and is_now):
            first = elf.first_page(self._own, base)
            if first is not None and first != original[: len(first)]:
                return f"{path} is not the file that was mapped when {self.name} was written"
        return original

    def _own(self, address: int, size: int) -> bytes:
        """What the core itself holds, not what files would add."""
        number = bisect.bisect_right(self._starts, address) - 1
        segment = self._segments[number] if number >= 0 else Segment(0, 0, 0)
        inside = address - segment.start
        if inside + size > segment.size:
            raise Unreadable(f"{size} bytes at {address:#x} were left out of {self.name}")
        return self._image[segment.offset + inside : segment.offset + inside + size]

    def thread_name(self, native_id: int) -> str | None:
        return None

    def check(self) -> None:
        """A core does not change."""

    def close(self) -> None:
        self._image.close()
        for original in self._originals.values():
            if isinstance(original, mmap.mmap):
                original.close()


def mapped_files(note: bytes) -> list[Backing]:
    """NT_FILE: count, size of a page, (start, end, page offset) each, then the paths, each ended by a zero."""
    count, page = struct.unpack_from("<QQ", note)
    if count > _MOST_SEGMENTS or 16 + 24 * count > len(note):
        raise ValueError(f"{count} mapped files in a note of {len(note)} bytes")
    paths = note[16 + 24 * count :].split(b"\0")
    found = []
    for number in range(min(count, len(paths))):
        start, end, pages = struct.unpack_from("<QQQ", note, 16 + 24 * number)
        found.append(Backing(start, end, pages * page, os.fsdecode(paths[number])))
    return found
