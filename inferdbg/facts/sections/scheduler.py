"""Queues and counters of the scheduler: raw and cumulative since the engine's start."""

from msgspec import Struct

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin


class Rank(Struct, frozen=True, gc=False, omit_defaults=True):
    """One of several data-parallel ranks behind one address. ``computed_tokens_total``: prefilled and generated."""

    name: str
    running: int | None = None
    waiting: int | None = None
    computed_tokens_total: int | None = None


class Scheduler(Struct, frozen=True, gc=False, omit_defaults=True):
    """``*_total`` only ever rise. ``prefilled_tokens_total`` counts prompt tokens computed, recomputed ones included;
    ``recomputed_tokens_total`` those that had been computed before a preemption threw them away;
    ``prefix_*_total`` are tokens looked up and found in the prefix cache. ``drafts_total`` counts the drafts of
    speculative decoding that were verified, at most one for each request and step; the two behind it
    count their tokens. ``ranks``: what the rest sums up, where it sums up several.
    ``counted``: who read the totals and latencies, and when, where that is not who filled the rest (``totals_origin``
    is right in either case)."""

    origin: Origin
    running: int | None = None
    waiting: int | None = None
    preempted: int | None = None  # of the waiting, those that ran before
    steps_total: int | None = None
    prefilled_tokens_total: int | None = None
    generated_tokens_total: int | None = None
    recomputed_tokens_total: int | None = None
    prefix_queried_tokens_total: int | None = None
    prefix_hit_tokens_total: int | None = None
    preempted_total: int | None = None
    evicted_blocks_total: int | None = None
    copied_blocks_total: int | None = None
    drafts_total: int | None = None
    drafted_tokens_total: int | None = None
    accepted_tokens_total: int | None = None
    added_total: int | None = None
    finished_total: int | None = None
    aborted_total: int | None = None
    rejected_total: int | None = None
    failed_total: int | None = None
    ttft: Histogram | None = None
    itl: Histogram | None = None
    queue_time: Histogram | None = None
    e2e: Histogram | None = None
    ranks: tuple[Rank, ...] = ()
    counted: Origin | None = None

    @property
    def totals_origin(self) -> Origin:
        return self.counted or self.origin
