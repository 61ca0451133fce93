"""The scheduler's counters and histograms by name, as a Window wants to be asked for them."""

from collections.abc import Callable
from typing import TypeAlias

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

MINUTE = 60 * SECOND
Buckets: TypeAlias = Callable[[Snapshot], Histogram | None]


def generated(snapshot: Snapshot) -> int | None:
    return snapshot.scheduler.generated_tokens_total if snapshot.scheduler is not None else None


def prefilled(snapshot: Snapshot) -> int | None:
    return snapshot.scheduler.prefilled_tokens_total if snapshot.scheduler is not None else None


def ttft(snapshot: Snapshot) -> Histogram | None:
    return snapshot.scheduler.ttft if snapshot.scheduler is not None else None


def itl(snapshot: Snapshot) -> Histogram | None:
    return snapshot.scheduler.itl if snapshot.scheduler is not None else None


def minute_delta(window: Window, counter: str) -> int | None:
    """What a counter of the scheduler section rose by in the last minute; None when that is not known."""

    def read(snapshot: Snapshot) -> int | None:
        found: int | None = getattr(snapshot.scheduler, counter) if snapshot.scheduler is not None else None
        return found

    return window.delta(read, MINUTE) if len(window.snapshots) > 1 else None
