"""Windows out of pages: the moment one looks at, whole, and the two minutes before it, light.

A Window of the past must fit in memory whatever the engine does, so what is many is kept for its newest part only:
the work of steps and events. A Snapshot of the past that is beyond says so (``work_lost``, ``dropped``).
Live and replay build their Windows by these same rules, so they are equal.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from inferdbg.text import clock

from .codec import Moment, decode_light, decode_whole, event_count, with_events, with_work, work_count
from .pages import Page, PageStore, damaged

PAST_NS = 120_000_000_000
MOST_SNAPSHOTS = 600
"""Of a Window: two minutes at the usual four a second, half a minute at twenty. What a seek costs is mostly these."""
KEPT_WORK = 16_384
"""Scheduled requests, a step counting as ``_STEP_WORK`` of them."""
_STEP_WORK = 32
KEPT_EVENTS = 4_096
_EVENTS_IN_CACHE = 64
_CACHED_PAGES = 160


class Budget:
    """What the past may still keep, spent from now backwards."""

    def __init__(self) -> None:
        self._work, self._events = KEPT_WORK, KEPT_EVENTS

    def spend(self, steps: int, work: int, events: int) -> tuple[bool, bool]:
        """Takes one Snapshot's share; whether there was anything left for its work, and for its events."""
        kept = self._work > 0, self._events > 0
        self._work -= work + _STEP_WORK * steps
        self._events -= events
        return kept

    @property
    def spent(self) -> bool:
        return self._work <= 0 and self._events <= 0


def step_count(snapshot: Snapshot) -> int:
    return 0 if snapshot.steps is None else len(snapshot.steps.items)


def work_share(snapshot: Snapshot) -> int:
    """What the Snapshot takes of KEPT_WORK, when nothing was left out of it."""
    return work_count(snapshot) + _STEP_WORK * step_count(snapshot)


class Past:
    """Reads Snapshots and Windows from a store of pages."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._light: OrderedDict[int, list[Moment]] = OrderedDict()  # by the start of the page
        self._heavy: tuple[Page, list[bytes]] | None = None
        self.lacking: InferdbgError | None = None
        """What of the last Window could not be read."""

    def span(self) -> tuple[int, int]:
        """mono_ns of the first and the last Snapshot; there must be one."""
        pages = self._store.pages
        return pages[0].first_ns, pages[-1].last_ns

    def snapshot(self, at_ns: int) -> Snapshot:
        """The newest Snapshot not after ``at_ns`` (else the first), whole. InferdbgError where the store is damaged."""
        pages = self._store.pages
        return self._whole(pages, *self._find(pages, at_ns))

    def window(self, at_ns: int) -> Window:
        """What was known at ``at_ns``, as far as it can be read: damaged stretches before it are left out, and what of
        the moment itself is missing ``lacking`` says. InferdbgError when nothing at all can be read."""
        pages, self.lacking = self._store.pages, None
        number, place = self._find_readable(pages, at_ns)
        now = self._as_whole_as_can_be(pages, number, place)
        budget = Budget()
        budget.spend(step_count(now), work_count(now), event_count(now))
        past: list[Snapshot] = []
        for page, index, moment in self._backwards(pages, number, place):
            if moment.snapshot.mono_ns < now.mono_ns - PAST_NS or len(past) == MOST_SNAPSHOTS - 1:
                break
            past.append(self._dressed(page, index, moment, budget))
        return Window([*reversed(past), now])

    def _find(self, pages: Sequence[Page], at_ns: int) -> tuple[int, int]:
        """Number of the page and of the Snapshot in it."""
        number = max(0, bisect_right(pages, at_ns, key=lambda page: page.first_ns) - 1)
        return number, self._place(pages[number], at_ns)

    def _find_readable(self, pages: Sequence[Page], at_ns: int) -> tuple[int, int]:
        """The same; of a damaged page the last moment before it that can be read, else the first after it."""
        wanted = max(0, bisect_right(pages, at_ns, key=lambda page: page.first_ns) - 1)
        for number in (*range(wanted, -1, -1), *range(wanted + 1, len(pages))):
            try:
                return number, self._place(pages[number], at_ns)
            except InferdbgError as error:
                self.lacking = self.lacking or InferdbgError(error.message, "shown is the nearest moment that is whole")
        raise self.lacking or InferdbgError("nothing is recorded")

    def _place(self, page: Page, at_ns: int) -> int:
        """Of the newest Snapshot in a page that is not after that, else the first."""
        moments = self._moments(page)
        return max(0, bisect_right(moments, at_ns, key=lambda moment: moment.snapshot.mono_ns) - 1)

    def _backwards(self, pages: Sequence[Page], number: int, place: int) -> Iterator[tuple[Page, int, Moment]]:
        """The moments before that one, newest first."""
        while number >= 0:
            page = pages[number]
            with suppress(InferdbgError):
                moments = self._moments(page)
                for index in range(min(place, len(moments)) - 1, -1, -1):
                    yield page, index, moments[index]
            number -= 1
            place = pages[number].count

    def _dressed(self, page: Page, index: int, moment: Moment, budget: Budget) -> Snapshot:
        """A Snapshot of the past with what the budget lets it keep."""
        snapshot = moment.snapshot
        work_kept, events_kept = budget.spend(step_count(snapshot), moment.work_count, moment.event_count)
        with suppress(InferdbgError):
            if events_kept and moment.event_count:
                all_told = moment if moment.events is not None else decode_light(self._store.read_light(page))[index]
                snapshot = with_events(all_told)
            if work_kept and moment.work_count:
                snapshot = with_work(snapshot, self._heavy_lines(page)[index])
        return snapshot

    def _as_whole_as_can_be(self, pages: Sequence[Page], number: int, place: int) -> Snapshot:
        """Without requests and the columns of blocks where these are damaged: they need all that is recorded since
        they were last told whole, so up to a minute of them goes with one page."""
        try:
            return self._whole(pages, number, place)
        except InferdbgError as error:
            again = next((page for page in pages[number + 1 :] if page.whole), None)
            hint = f"they are there again from {clock(again.first_wall_ns)}" if again is not None else ""
            self.lacking = self.lacking or InferdbgError(f"without blocks and requests: {error.message}", hint)
            page = pages[number]
            return replace(self._dressed(page, place, self._moments(page)[place], Budget()), requests=None)

    def _whole(self, pages: Sequence[Page], number: int, place: int) -> Snapshot:
        page = pages[number]
        moment = self._moments(page)[place]
        if moment.events is None:
            moment = decode_light(self._store.read_light(page))[place]
        columns: list[bytes] = []
        if moment.snapshot.kvcache is not None or moment.snapshot.requests is not None:
            first = next((back for back in range(number, -1, -1) if pages[back].whole), 0)
            for one in pages[first : number + 1]:
                lines = self._store.read_columns(one).splitlines()
                columns += lines if one is not page else lines[: place + 1]
        try:
            return decode_whole(moment, self._heavy_lines(page)[: place + 1], columns)
        except msgspec.DecodeError as error:
            raise damaged(page, str(error)) from error

    def _moments(self, page: Page) -> list[Moment]:
        held = self._light.get(page.start)
        if held is not None and len(held) == page.count:  # a page that is still written grows
            self._light.move_to_end(page.start)
            return held
        try:
            moments = decode_light(self._store.read_light(page), _EVENTS_IN_CACHE)
        except msgspec.DecodeError as error:
            raise damaged(page, str(error)) from error
        if len(moments) != page.count:
            raise damaged(page, f"{len(moments)} Snapshots instead of {page.count}")
        self._light[page.start] = moments
        if len(self._light) > _CACHED_PAGES:
            self._light.popitem(last=False)
        return moments

    def _heavy_lines(self, page: Page) -> list[bytes]:
        if self._heavy is None or self._heavy[0] != page:
            lines = self._store.read_heavy(page).splitlines()
            if len(lines) != page.count:
                raise damaged(page, f"{len(lines)} Snapshots instead of {page.count}")
            self._heavy = (page, lines)
        return self._heavy[1]
