"""A recording, opened: its pages found by the index at the end, or without one by walking the frames."""

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zstandard
from msgspec import Struct
from msgspec.structs import replace

from inferdbg.errors import InferdbgError

from .codec import begins_group
from .frames import (
    MAGIC,
    Decompressor,
    Frame,
    frame_at,
    next_frame,
    skippable_payload,
    trailing_skippable,
)
from .header import not_ours, parse_header
from .pages import Page, damaged

_MOST_HEADER_BYTES = 65536
_pages = msgspec.json.Decoder(list[Page])


class _Times(Struct):
    light: int
    wall_ns: int
    mono_ns: int


_times = msgspec.json.Decoder(_Times)


class Recording:
    """One file, or the parts that a rotating recorder left, as one. A PageStore.

    ``lost``: stretches of time (mono_ns of the last moment before, of the first after) that are damaged. ``torn``: the
    recorder was killed or ran out of disk, and what followed the last page is gone.
    """

    def __init__(self, path: str | Path) -> None:
        """InferdbgError when it cannot be read, is no recording, or holds no Snapshot."""
        self.path = str(path)
        self.pages: list[Page] = []
        self.lost: list[tuple[int, int]] = []
        self.torn = False
        self._zstd = Decompressor()
        self._files: list[int] = []
        self._bases: list[int] = []  # where each file begins, as if they were one
        try:
            for part in parts_of(Path(path)):
                self._add(part)
        except BaseException:
            self.close()
            raise
        if not self.pages:
            self.close()
            raise InferdbgError(
                f"{self.path} holds no readable Snapshot",
                "the recorder was ended, or the file cut off, within the first second: record again",
            )

    def read_light(self, page: Page) -> bytes:
        return self._read(page, page.start, page.light)

    def read_heavy(self, page: Page) -> bytes:
        return self._read(page, page.start + page.light, page.heavy)

    def read_columns(self, page: Page) -> bytes:
        return self._read(page, page.start + page.light + page.heavy, page.columns)

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def _read(self, page: Page, start: int, length: int) -> bytes:
        number = bisect_right(self._bases, start) - 1
        try:
            return self._zstd.content(os.pread(self._files[number], length, start - self._bases[number]))
        except (zstandard.ZstdError, OSError) as error:
            raise damaged(page, str(error)) from error

    def _add(self, path: Path) -> None:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)  # a FIFO opens, too
        except OSError as error:
            raise InferdbgError(f"{path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise not_ours(str(path))
        size = os.fstat(file).st_size
        base = self._bases[-1] + os.fstat(self._files[-1]).st_size if self._files else 0
        self._files.append(file)
        self._bases.append(base)
        start = _header_end(file, path, self._zstd)
        if start is None:
            self.torn = True
            return
        pages = indexed(file, size, self._zstd)
        if pages is None:
            self.torn = True
            data = os.pread(file, size, 0)
            pages, lost = scanned(data, start, self._zstd)
            self.lost += lost
        self.pages += [replace(page, start=page.start + base) for page in pages]


def parts_of(path: Path) -> list[Path]:
    """The file itself, else the numbered parts of a rotating recording (run.000001.idbg, … for run.idbg)."""
    if path.exists():
        return [path]
    parts = numbered_parts(path)
    if not parts:
        raise InferdbgError(f"{path} does not exist")
    return parts


def numbered_parts(path: Path) -> list[Path]:
    """Parts of a rotating recording, oldest first."""
    pattern = re.compile(re.escape(path.stem) + r"\.(\d{6,})" + re.escape(path.suffix))
    if not path.parent.is_dir():
        return []
    found = [(int(match[1]), part) for part in path.parent.iterdir() if (match := pattern.fullmatch(part.name))]
    return [part for _, part in sorted(found)]


def indexed(file: int, size: int, zstd: Decompressor) -> list[Page] | None:
    """The pages that the index at the end of the file names; None when there is none that can be believed."""
    length = trailing_skippable(os.pread(file, 16, max(0, size - 16)))
    if length is None or not 16 <= length <= size:
        return None
    frame = os.pread(file, length, size - length)
    found = frame_at(frame, 0)
    if found is None or not found.skippable or found.end != len(frame):
        return None
    try:
        pages = _pages.decode(zstd.content(skippable_payload(frame)))
    except (zstandard.ZstdError, msgspec.DecodeError):
        return None
    return pages if all(0 <= page.start < page.end <= size and page.count > 0 for page in pages) else None


def scanned(data: bytes, start: int, zstd: Decompressor) -> tuple[list[Page], list[tuple[int, int]]]:
    """Pages found by walking the frames from ``start``, and the stretches between them that are damaged. What follows
    the last whole page is a torn tail."""
    pages: list[Page] = []
    lost: list[tuple[int, int]] = []
    frames: list[Frame] = []  # of the page being put together
    harmed = False
    at = start
    while (frame := next_frame(data, at)) is not None:
        if frame.start != at:
            frames, harmed = [], True
        at = frame.end
        if frame.skippable:
            continue
        kind = _kind(zstd.beginning(data[frame.start : frame.end], 12))
        if kind == "light":
            harmed = harmed or bool(frames)
            frames = [frame]
        elif kind == ("light", "heavy", "columns")[len(frames) % 3] and frames:
            frames.append(frame)
        else:
            frames, harmed = [], True
        if len(frames) == 3:
            page = _page(data, frames, zstd)
            frames = []
            if page is None:
                harmed = True
                continue
            if harmed and pages:
                lost.append((pages[-1].last_ns, page.first_ns))
            harmed = False
            pages.append(page)
    return pages, lost


def _kind(beginning: bytes) -> str:
    """The first key of a line; empty when there is none."""
    return beginning[2 : beginning.find(b'"', 2)].decode("latin-1")


def _page(data: bytes, frames: Sequence[Frame], zstd: Decompressor) -> Page | None:
    """The page of three frames; None when one of them is damaged."""
    light, heavy, columns = frames
    try:
        lines = zstd.content(data[light.start : light.end]).splitlines()
        first_columns = zstd.content(data[columns.start : columns.end]).split(b"\n", 1)[0]
        zstd.content(data[heavy.start : heavy.end])
        first, last = _times.decode(lines[0]), _times.decode(lines[-1])
        whole = begins_group(first_columns)
    except (zstandard.ZstdError, msgspec.DecodeError, IndexError):
        return None
    return Page(
        light.start,
        light.end - light.start,
        heavy.end - heavy.start,
        columns.end - columns.start,
        whole=whole,
        count=len(lines),
        first_ns=first.mono_ns,
        last_ns=last.mono_ns,
        last_wall_ns=last.wall_ns,
    )


def _header_end(file: int, path: Path, zstd: Decompressor) -> int | None:
    """Where the first frame, the header, ends; None when not even that was written."""
    head = os.pread(file, _MOST_HEADER_BYTES, 0)
    if len(head) < _MOST_HEADER_BYTES and MAGIC.startswith(head[:4]) and frame_at(head, 0) is None:
        return None
    frame = frame_at(head, 0)
    if frame is None or frame.skippable:
        raise not_ours(str(path))
    try:
        line = zstd.content(head[: frame.end])
    except zstandard.ZstdError:
        return frame.end  # damaged; what follows may be whole
    parse_header(line, str(path))
    return frame.end
