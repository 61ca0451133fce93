"""Pages: about a second of Snapshots as three zstd frames, and how Snapshots become pages and pages Snapshots.

    page       [light][heavy][columns]     each frame: a line a Snapshot; the first light line is whole
    group      page page page …            the first columns line is whole, the later ones are changes

To show a moment one reads the light frames of the two minutes before it, one heavy frame, and the columns frames from
the beginning of its group. Recordings and the live memory of the past are both made of pages.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.text import clock

from .codec import Encoder
from .frames import compressor

PAGE_NS = 950_000_000  # at four Snapshots a second: four of them
GROUP_NS = 60_000_000_000
_PAGE_SNAPSHOTS = 64
_PAGE_BYTES = 16 << 20
_GROUP_BYTES = 256 << 10


class Page(Struct, frozen=True, array_like=True):
    """Where a page lies and what it covers. ``start``: offset in the file; lengths of its frames follow in order.
    ``whole``: begins a group."""

    start: int
    light: int
    heavy: int
    columns: int
    whole: bool
    count: int
    first_ns: int
    last_ns: int
    last_wall_ns: int

    @property
    def end(self) -> int:
        return self.start + self.light + self.heavy + self.columns

    @property
    def first_wall_ns(self) -> int:
        return self.last_wall_ns - (self.last_ns - self.first_ns)


class Frames(NamedTuple):
    """The content of a page, not compressed."""

    light: bytes
    heavy: bytes
    columns: bytes


class PageStore(Protocol):
    """Pages that can be read: a file, or memory. Reading raises InferdbgError (``damaged``)."""

    @property
    def pages(self) -> Sequence[Page]:
        """In order of time."""

    def read_light(self, page: Page) -> bytes: ...
    def read_heavy(self, page: Page) -> bytes: ...
    def read_columns(self, page: Page) -> bytes: ...


def damaged(page: Page, why: str) -> InferdbgError:
    """What to say of a page that cannot be read."""
    return InferdbgError(
        f"what was recorded from {clock(page.first_wall_ns)} to {clock(page.last_wall_ns)} is damaged: {why}",
        "the rest can be read: look before or after it",
    )


class PageWriter:
    """Collects Snapshots, gives back the bytes of a page whenever one is full.

    ``group_bytes``: a group that has grown to that many bytes is followed by a new one.
    """

    def __init__(self, group_bytes: int | None = None) -> None:
        self._most_written = group_bytes
        self._encoder = Encoder()
        self._compressor = compressor()
        self._light: list[bytes] = []
        self._heavy: list[bytes] = []
        self._columns: list[bytes] = []
        self._raw_bytes = 0
        self._first: Snapshot | None = None
        self._last: Snapshot | None = None
        self._closed_wall_ns: int | None = None
        self._whole = True
        self._group_ns = 0
        self._group_limit = self._group_bytes = self._group_written = 0

    @property
    def first_ns(self) -> int | None:
        """mono_ns of the first Snapshot that is not yet in a page."""
        return self._first.mono_ns if self._light and self._first is not None else None

    def add(self, snapshot: Snapshot) -> bool:
        """Takes a Snapshot in; true when the page is full and ``close_page`` is due."""
        opening = not self._light
        if opening:
            self._first = snapshot
            self._whole = self._whole or self._group_is_full(snapshot.mono_ns)
        whole = opening and self._whole
        lines = self._encoder.encode(snapshot, whole_light=opening, whole_columns=whole)
        if whole:
            self._group_ns = snapshot.mono_ns
            self._group_written = self._group_bytes = 0
            self._group_limit = max(_GROUP_BYTES, len(lines.columns))
        else:
            self._group_bytes += len(lines.columns)
        self._light.append(lines.light)
        self._heavy.append(lines.heavy)
        self._columns.append(lines.columns)
        self._raw_bytes += sum(map(len, lines))
        self._last = snapshot
        return (
            self._closed_wall_ns is None
            or abs(snapshot.wall_ns - self._closed_wall_ns) >= PAGE_NS
            or len(self._light) >= _PAGE_SNAPSHOTS
            or self._raw_bytes >= _PAGE_BYTES
        )

    def close_page(self, start: int) -> tuple[Page, bytes] | None:
        """The page, as it lies at offset ``start``, and its bytes; None when it is empty."""
        if not self._light:
            return None
        frames = [self._compressor.compress(lines) for lines in self._lines()]
        light, heavy, columns = map(len, frames)
        page = self._page(start, light, heavy, columns)
        self._light, self._heavy, self._columns = [], [], []
        self._raw_bytes = 0
        self._closed_wall_ns = page.last_wall_ns
        self._group_written += page.end - page.start
        self._whole = False
        return page, b"".join(frames)

    def open_page(self, start: int) -> tuple[Page, Frames] | None:
        """What is not yet in a page, as the page that it would be now, not compressed."""
        if not self._light:
            return None
        return self._page(start, 0, 0, 0), self._lines()

    def _lines(self) -> Frames:
        return Frames(b"".join(self._light), b"".join(self._heavy), b"".join(self._columns))

    def _page(self, start: int, light: int, heavy: int, columns: int) -> Page:
        first, last = self._first, self._last
        assert first is not None
        assert last is not None
        return Page(
            start,
            light,
            heavy,
            columns,
            whole=self._whole,
            count=len(self._light),
            first_ns=first.mono_ns,
            last_ns=last.mono_ns,
            last_wall_ns=last.wall_ns,
        )

    def _group_is_full(self, now_ns: int) -> bool:
        return (
            abs(now_ns - self._group_ns) >= GROUP_NS
            or self._group_bytes >= self._group_limit
            or (self._most_written is not None and self._group_written >= self._most_written)
        )
