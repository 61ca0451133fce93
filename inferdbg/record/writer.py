"""Writes a recording: append-only, a page a second, an index at the end; rotates and forgets when told to."""

import os
from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.text import clock

from .frames import compressor, skippable
from .header import header_line
from .pages import Page, PageWriter
from .reader import numbered_parts
from .redact import redacted

_PARTS = 8  # that a rotating recording is kept in


class _Part(NamedTuple):
    path: Path
    size: int
    last_wall_ns: int


class RecordingWriter:
    """A recording at ``path``, which must not exist yet.

    ``keep_ns`` and ``max_bytes``: with either, the recording is numbered parts (run.000001.idbg, …), and the oldest
    are removed so that at least ``keep_ns`` and at most ``max_bytes`` stay; the part that is being written and the
    newest finished one always do. ``redact``: leaves out secrets.
    """

    def __init__(
        self, path: str | Path, *, keep_ns: int | None = None, max_bytes: int | None = None, redact: bool = True
    ) -> None:
        """InferdbgError when nothing can be written there."""
        self.path = Path(path)
        self.bytes_written = 0
        self._keep_ns, self._max_bytes, self._redact = keep_ns, max_bytes, redact
        self._rotates = keep_ns is not None or max_bytes is not None
        self._parts: deque[_Part] = deque()
        self._number = 0
        if self._rotates:
            for part in numbered_parts(self.path):
                stat = part.stat()
                self._parts.append(_Part(part, stat.st_size, stat.st_mtime_ns))
                self._number = int(part.suffixes[-2][1:])
        self._file: int | None = None
        self._closed = False
        self._begin_part()

    def write(self, snapshot: Snapshot) -> None:
        """Takes a Snapshot in; it is in the file within a second of snapshots. InferdbgError when the disk is full or
        gone: what was written before can be read, and this writer is closed."""
        if self._closed:
            raise InferdbgError(f"{self.part_path} is closed: nothing more can be written to it")
        if self._file is None:
            self._begin_part()
        if self._redact:
            snapshot = redacted(snapshot)
        if not self._end:
            self._put(compressor().compress(header_line(snapshot.target)))
        if self._writer.add(snapshot):
            self._close_page()
            if self._rotates:
                self._rotate(snapshot.wall_ns)

    def close(self) -> None:
        """Writes what is left, and the index."""
        self._closed = True
        self._end_part()

    @property
    def part_path(self) -> Path:
        """The file that is being written."""
        if not self._rotates:
            return self.path
        return self.path.with_name(f"{self.path.stem}.{self._number:06}{self.path.suffix}")

    def _end_part(self) -> None:
        if self._file is None:
            return
        self._close_page()
        if self._pages:
            self._put(skippable(compressor().compress(msgspec.json.encode(self._pages))))
        os.close(self._file)
        self._file = None

    def _begin_part(self) -> None:
        self._number += 1
        self._writer = PageWriter()
        self._pages: list[Page] = []
        self._end = 0
        path = self.part_path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise InferdbgError(f"{path} exists already", "choose another name, or remove it") from None
        except OSError as error:
            raise InferdbgError(
                f"{path} cannot be written: {error.strerror}", "choose another folder with -o"
            ) from error

    def _close_page(self) -> None:
        assert self._file is not None
        if not os.fstat(self._file).st_nlink:
            self._give_up()
            raise InferdbgError(
                f"{self.part_path} was deleted while it was written: what it held is lost", "record again"
            )
        closed = self._writer.close_page(self._end)
        if closed is not None:
            page, data = closed
            self._put(data)
            self._pages.append(page)

    def _put(self, data: bytes) -> None:
        """Writes all of it or, in the file, nothing."""
        assert self._file is not None
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._give_up()
            until = f"; until {clock(self._pages[-1].last_wall_ns)} all is there" if self._pages else ""
            raise InferdbgError(
                f"{self.part_path} cannot be written further: {error.strerror}{until}",
                "make room and record again, or keep less: --keep 1h --max-bytes 500M",
            ) from error
        self._end += len(data)
        self.bytes_written += len(data)

    def _give_up(self) -> None:
        assert self._file is not None
        os.ftruncate(self._file, self._end)
        os.close(self._file)
        self._file = None
        self._closed = True

    def _rotate(self, now_wall_ns: int) -> None:
        if self._part_is_full():
            self._end_part()
            self._parts.append(_Part(self.part_path, self._end, now_wall_ns))  # with its index
            self._pages, self._end = [], 0
        while len(self._parts) > 1 and self._too_much(now_wall_ns):
            self._parts.popleft().path.unlink(missing_ok=True)

    def _part_is_full(self) -> bool:
        span = self._pages[-1].last_ns - self._pages[0].first_ns if self._pages else 0
        return (self._keep_ns is not None and span >= self._keep_ns // _PARTS) or (
            self._max_bytes is not None and self._end >= self._max_bytes // _PARTS
        )

    def _too_much(self, now_wall_ns: int) -> bool:
        held = self._end + sum(part.size for part in self._parts)
        return (self._max_bytes is not None and held > self._max_bytes) or (
            self._keep_ns is not None and self._parts[0].last_wall_ns < now_wall_ns - self._keep_ns
        )
