"""The live memory of the past: pages in memory instead of a file, so that a live screen can be scrubbed back."""

from collections.abc import Sequence

from inferdbg.facts.snapshot import Snapshot

from .frames import Decompressor
from .pages import Frames, Page, PageWriter

HISTORY_BYTES = 8 << 20
HISTORY_NS = 3_600_000_000_000


class History:
    """Keeps the last Snapshots within ``max_bytes`` and ``keep_ns``; forgets whole groups of pages. A PageStore."""

    def __init__(self, max_bytes: int = HISTORY_BYTES, keep_ns: int = HISTORY_NS) -> None:
        self._max_bytes, self._keep_ns = max_bytes, keep_ns
        self._writer = PageWriter(group_bytes=max_bytes // 4)
        self._content = Decompressor().content
        self._pages: list[Page] = []
        self._data: dict[int, bytes] = {}
        self._end = self._forgotten = 0

    def append(self, snapshot: Snapshot) -> None:
        if not self._writer.add(snapshot):
            return
        closed = self._writer.close_page(self._end)
        if closed is None:
            return
        page, data = closed
        self._pages.append(page)
        self._data[page.start] = data
        self._end = page.end
        self._forget(snapshot.mono_ns)

    @property
    def bytes_held(self) -> int:
        return self._end - self._forgotten

    @property
    def first_ns(self) -> int | None:
        """mono_ns of the first Snapshot; None while there is none."""
        return self._pages[0].first_ns if self._pages else self._writer.first_ns

    @property
    def pages(self) -> Sequence[Page]:
        """The last one may still grow."""
        growing = self._writer.open_page(self._end)
        return self._pages if growing is None else [*self._pages, growing[0]]

    def read_light(self, page: Page) -> bytes:
        data = self._data.get(page.start)
        return self._growing().light if data is None else self._content(data[: page.light])

    def read_heavy(self, page: Page) -> bytes:
        data = self._data.get(page.start)
        return self._growing().heavy if data is None else self._content(data[page.light : page.light + page.heavy])

    def read_columns(self, page: Page) -> bytes:
        data = self._data.get(page.start)
        return self._growing().columns if data is None else self._content(data[page.light + page.heavy :])

    def _growing(self) -> Frames:
        growing = self._writer.open_page(self._end)
        return Frames(b"", b"", b"") if growing is None else growing[1]

    def _forget(self, now_ns: int) -> None:
        while True:
            second = next((index for index, page in enumerate(self._pages) if index and page.whole), None)
            if second is None:
                return
            if self.bytes_held <= self._max_bytes and self._pages[second].first_ns >= now_ns - self._keep_ns:
                return
            for page in self._pages[:second]:
                del self._data[page.start]
            del self._pages[:second]
            self._forgotten = self._pages[0].start
