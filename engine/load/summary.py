"""What the clients saw: counts, errors by kind, percentiles of latency; plain values that are written as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Percentiles(Struct, frozen=True):
    """Seconds; all None when nothing was measured."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    worst: float | None = None


class Progress(Struct, frozen=True):
    """One report a second. ``open``: clients that wait or read; ``silent``: of them, those without a first token.
    ``pieces_per_s``: pieces of text that arrived since the report before, about one a token."""

    elapsed_s: float
    sent: int
    open: int
    silent: int
    finished: int
    aborted: int
    errors: int
    pieces_per_s: float


class Summary(Struct, frozen=True):
    """``aborted``: clients that went away on purpose. ``cut``: still open when the run was stopped. ``output_tokens``:
    as the server reports them, else pieces of text received. ``itl``: gaps between pieces of one answer."""

    url: str
    model: str
    mix: str
    seed: int
    seconds: float
    sent: int
    finished: int
    aborted: int
    cut: int
    errors: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    output_tokens_per_s: float
    requests_per_s: float
    ttft: Percentiles
    itl: Percentiles
    e2e: Percentiles


def percentiles(values: Sequence[float]) -> Percentiles:
    """Nearest-rank percentiles."""
    if not values:
        return Percentiles(0)
    ordered = sorted(values)

    def at(percent: int) -> float:
        return ordered[-(-percent * len(ordered) // 100) - 1]

    return Percentiles(
        count=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=at(50),
        p90=at(90),
        p95=at(95),
        p99=at(99),
        worst=ordered[-1],
    )
