"""What a Prometheus endpoint says, name by name: the way in for numbers that no other section has a place for."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

MetricKind = Literal["counter", "gauge", "histogram", "summary", "untyped"]


class Label(Struct, frozen=True, array_like=True, gc=False):
    name: str
    value: str


class Buckets(Struct, frozen=True, gc=False, omit_defaults=True):
    """Observations since the server's start, in its own unit. ``bounds[i]`` is the upper edge (inclusive) of
    ``counts[i]``; ``counts`` has one entry more than ``bounds``, for what lies above the last edge."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float | None = None

    @property
    def count(self) -> int:
        return sum(self.counts)


class Series(Struct, frozen=True, gc=False, omit_defaults=True):
    """One name under one set of labels: a ``value`` or, of a histogram, ``buckets``. A value that the server gave as
    NaN or infinite is None."""

    name: str
    kind: MetricKind = "untyped"
    labels: tuple[Label, ...] = ()
    value: float | None = None
    buckets: Buckets | None = None

    def label(self, name: str) -> str | None:
        return next((label.value for label in self.labels if label.name == name), None)


class Caveat(Struct, frozen=True, gc=False):
    """What a person must know of a number that the server gives: ``field`` is ``scheduler.preempted_total``."""

    field: str
    words: str


class Metrics(Struct, frozen=True, gc=False, omit_defaults=True):
    """``items`` in the server's order, counters raw and cumulative. ``left_out``: series for which there was no room.
    ``caveats``: of the numbers in other sections that were taken from these."""

    origin: Origin
    items: tuple[Series, ...] = ()
    left_out: int = 0
    caveats: tuple[Caveat, ...] = ()

    def named(self, name: str) -> tuple[Series, ...]:
        return tuple(series for series in self.items if series.name == name)
