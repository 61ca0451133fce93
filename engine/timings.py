"""Counts how long things took, into the buckets of the columns ``histograms.*``."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from .state import BUCKETS_NS, HISTOGRAMS, Column

SUM = len(BUCKETS_NS) + 1


class Timings:
    """One histogram a name of state.HISTOGRAMS: counts by bucket (upper edges inclusive, one more above), then the
    sum in ns."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = {name: columns[f"histograms.{name}"] for name in HISTOGRAMS}

    def observe(self, name: str, ns: int, times: int = 1) -> None:
        column = self._columns[name]
        column[bisect_left(BUCKETS_NS, ns)] += times
        column[SUM] += ns * times

    def observe_all(self, name: str, values_ns: Iterable[int]) -> None:
        """Cheap when many are equal, as the gaps between the tokens of one step and those of the step before are."""
        for ns, times in Counter(values_ns).items():
            self.observe(name, ns, times)
