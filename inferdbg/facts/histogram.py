"""Cumulative histograms with fixed bounds: raw as the server keeps them; percentiles come from differences."""

from msgspec import Struct


class Histogram(Struct, frozen=True, gc=False):
    """Counts since the server's start. ``bounds[i]`` is the upper edge (inclusive, ns) of ``counts[i]``;
    ``counts`` has one entry more than ``bounds``, for what lies above the last edge. ``sum_ns`` is the total."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    sum_ns: int

    @property
    def count(self) -> int:
        return sum(self.counts)

    def since(self, earlier: "Histogram") -> "Histogram":
        """What was added after ``earlier``; the whole of this one when the server restarted in between or the
        bounds differ."""
        if earlier.bounds != self.bounds or any(a < b for a, b in zip(self.counts, earlier.counts, strict=True)):
            return self
        return Histogram(
            self.bounds,
            tuple(a - b for a, b in zip(self.counts, earlier.counts, strict=True)),
            self.sum_ns - earlier.sum_ns,
        )

    def percentile(self, q: float) -> float | None:
        """The value (ns) below which a share ``q`` (0..1) of the observations lies, linear inside its bucket, as
        Prometheus' histogram_quantile does; the last bound when it lies above; None when nothing was observed."""
        total = self.count
        if total == 0:
            return None
        rank = q * total
        seen = 0
        lower = 0
        for upper, count in zip(self.bounds, self.counts, strict=False):
            if count and seen + count >= rank:
                return lower + (upper - lower) * max(0.0, rank - seen) / count
            seen += count
            lower = upper
        return float(self.bounds[-1])
