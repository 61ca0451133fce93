"""The shape of an engine's table: which of its metrics fills which field of ours, in which versions, with what catch.

A table is data: ``vllm.py``, ``llamacpp.py`` and ``sglang.py`` hold one each. Series of several engines behind one
endpoint (data parallel) are summed, unless one of them is meant; those of ranks that all tell the same are told once.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.metrics import Caveat, Label, Series
from inferdbg.facts.sections.scheduler import Rank, Scheduler
from inferdbg.facts.sections.server import EngineConfig

from .exposition import Exposition, by_name, counted

_NANOSECONDS = 1_000_000_000
HISTOGRAMS = ("ttft", "itl", "queue_time", "e2e")
"""Fields of Scheduler that are histograms: seconds there, nanoseconds here."""
_OF_A_RANK = ("running", "waiting", "prefilled_tokens_total", "generated_tokens_total")
MOST_RANKS = 256
"""A server with more of them is told as their sum alone."""


class Name(NamedTuple):
    """A metric and the ``versions`` of the engine that have it (``by 0.32``: that one has it, the first is not known).
    ``only``: labels that a series must have to count,
    ``plus``: a second metric to add. ``unless_help``: not where the server's own help text says so (a metric that
    changed its unit). ``caveat``: what a person must know of it."""

    name: str
    versions: str
    only: Mapping[str, Sequence[str | None]] = {}
    plus: str = ""
    unless_help: str = ""
    caveat: str = ""


class Row(NamedTuple):
    """A field of Scheduler and the metrics that fill it, newest first: the first that the server has is taken.
    ``observations``: of a histogram how often it was observed is meant."""

    field: str
    names: tuple[Name, ...]
    observations: bool = False


class Table(NamedTuple):
    """What an engine's metrics say. ``prefix``: how they begin. ``same``: labels by which only the first rank is taken,
    as the others hold the same. ``rank``: the label that tells data-parallel ranks apart. ``caveats``: of fields that
    stay empty on purpose. ``logged``: whether a look adds a line to its access log. ``switch``: how to make it say
    more."""

    engine: str
    prefix: str
    rows: tuple[Row, ...]
    kvcache: "Callable[[Scrape, Origin], KVCache | None]"
    config: "Callable[[Scrape], EngineConfig | None]"
    same: tuple[str, ...] = ()
    rank: str = ""
    caveats: tuple[Caveat, ...] = ()
    logged: bool = False
    switch: str = ""

    @property
    def prefixes(self) -> tuple[str, str]:
        return self.prefix, self.prefix.replace(":", "_")


class Scrape:
    """An exposition looked up by name. ``only``: a label, and what it must say where a series has it."""

    def __init__(self, exposition: Exposition, same: Sequence[str] = (), only: tuple[str, str] | None = None) -> None:
        self.exposition = exposition
        self._named = by_name(exposition)
        self._same = same
        self._only = only

    def series(self, name: str) -> list[Series]:
        """Those of the name, one of each group of ranks that tell the same; a collector in between may have changed
        the colon."""
        found = self.of_all_ranks(name)
        if self._only is not None:
            label, value = self._only
            found = [one for one in found if one.label(label) in (None, value)]
        if not self._same:
            return found
        kept: dict[tuple[Label, ...], Series] = {}
        for one in sorted(found, key=self._rank):  # of data parallel ranks each has tensor ranks of its own
            kept.setdefault(tuple(label for label in one.labels if label.name not in self._same), one)
        return list(kept.values())

    def of_rank(self, label: str, value: str) -> "Scrape":
        part = copy.copy(self)
        part._only = (label, value)
        return part

    def of_all_ranks(self, name: str) -> list[Series]:
        return self._named.get(name) or self._named.get(name.replace(":", "_")) or []

    def _rank(self, series: Series) -> list[tuple[int, str]]:
        ranks = [series.label(label) or "" for label in self._same]
        return [(len(rank), rank) for rank in ranks]

    def total(self, name: Name, *, observations: bool = False) -> int | None:
        """The sum over engines; None where the server does not have it, or gives what is no count. A server that has
        the name but not yet the labels has counted nothing."""
        if name.unless_help and name.unless_help in self.exposition.helps.get(name.name, ""):
            return None
        parts = [self.series(name.name), *([self.series(name.plus)] if name.plus else [])]
        if not all(parts):
            return None
        kept = [one for part in parts for one in part if all(one.label(key) in only for key, only in name.only.items())]
        if observations:
            return counted(sum(one.buckets.count for one in kept if one.buckets is not None))
        return added(counted(one.value) for one in kept)

    def histogram(self, name: Name) -> Histogram | None:
        """Seconds as nanoseconds, merged bucket by bucket; None when the bounds differ."""
        found = [one.buckets for one in self.series(name.name)]
        buckets = [one for one in found if one is not None]
        if not buckets or len(buckets) < len(found) or any(one.bounds != buckets[0].bounds for one in buckets):
            return None
        bounds = [counted(bound * _NANOSECONDS) for bound in buckets[0].bounds]
        counts = [added(column) for column in zip(*(one.counts for one in buckets), strict=True)]
        sum_ns = added(counted(one.sum * _NANOSECONDS) if one.sum is not None else None for one in buckets)
        if sum_ns is None or None in bounds or None in counts:
            return None
        return Histogram(_known(bounds), _known(counts), sum_ns)

    def gauge(self, name: str, **only: str | None) -> float | None:
        """The value of the first series with these labels."""
        found = (one for one in self.series(name) if all(one.label(key) == value for key, value in only.items()))
        return next((one.value for one in found), None)


def scheduler(table: Table, scrape: Scrape, origin: Origin) -> tuple[Scheduler | None, tuple[Caveat, ...]]:
    """The section, and what must be known of its numbers; None when the server has none of them."""
    values: dict[str, int | Histogram | tuple[Rank, ...]] = {}
    caveats: list[Caveat] = []
    for row in table.rows:
        for name in row.names:
            value = (
                scrape.histogram(name) if row.field in HISTOGRAMS else scrape.total(name, observations=row.observations)
            )
            if value is not None:
                values[row.field] = value
                caveats += [Caveat(f"scheduler.{row.field}", name.caveat)] if name.caveat else []
                break
    if not values:
        return None, ()
    values["ranks"] = _ranks(table, scrape)
    return Scheduler(origin, **values), (*caveats, *table.caveats)  # type: ignore[arg-type]


def _ranks(table: Table, scrape: Scrape) -> tuple[Rank, ...]:
    """Of a scrape of several data-parallel ranks each by itself."""
    labels = ranks_in(table, scrape)
    if not 1 < len(labels) <= MOST_RANKS:
        return ()
    found: list[Rank] = []
    for label in sorted(labels, key=lambda label: (len(label), label)):
        one = scrape.of_rank(table.rank, label)
        counts = {row.field: _first(one, row) for row in table.rows if row.field in _OF_A_RANK}
        computed = [counts.get(field) for field in _OF_A_RANK[2:]]
        found.append(Rank(f"DP{label}", counts.get("running"), counts.get("waiting"), added(computed)))
    return tuple(found)


def ranks_in(table: Table, scrape: Scrape) -> set[str]:
    """Labels of the data-parallel ranks that are told apart."""
    named = (scrape.series(name.name) for row in table.rows for name in row.names if row.field == "running")
    return {label for found in named for one in found if table.rank and (label := one.label(table.rank))}


def _first(scrape: Scrape, row: Row) -> int | None:
    counts = (scrape.total(name, observations=row.observations) for name in row.names)
    return next((count for count in counts if count is not None), None)


def added(counts: Iterable[int | None]) -> int | None:
    """Their sum; None when one is not known, or together they are more than can be counted."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return counted(total)


def _known(counts: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(count for count in counts if count is not None)


def table_of(tables: Iterable[Table], exposition: Exposition, engine: str) -> Table | None:
    """The one that speaks of what the server says, else of what it is taken for."""
    names = {series.name for series in exposition.series}
    spoken = (one for one in tables if any(name.startswith(one.prefixes) for name in names))
    return next(spoken, None) or next((one for one in tables if one.engine == engine), None)
