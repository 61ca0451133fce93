"""Tells when a shared machine lets us have its memory: what others do there makes ours answer half as fast for minutes.

Beside what is measured 60,000 words are read from all over 8 MiB. Judged are only windows of time in which a word took
`CALM_NS` or less: between 4 (all of it is at hand) and 10 where nobody disturbs, 16 and more in a bad hour.
"""

import statistics
import time
from typing import NamedTuple

import numpy as np

CALM_NS = 13.0
_MEMORY = np.arange(1 << 20)
_PLACES = np.random.default_rng(0).permutation(len(_MEMORY))[:60_000].copy()


def answer_ns() -> float:
    """How long a word of memory takes just now, when many are asked for at once."""
    begun = time.thread_time()
    _MEMORY[_PLACES].sum()
    return (time.thread_time() - begun) * 1e9 / len(_PLACES)


class Window(NamedTuple):
    """What was measured in a stretch of time, ms, and how long a word of memory took meanwhile."""

    costs_ms: list[float]
    answer_ns: float

    @property
    def calm(self) -> bool:
        return self.answer_ns <= CALM_NS


class Windows:
    """Windows in the order of time; those that are judged are the calm ones."""

    def __init__(self) -> None:
        self._all: list[Window] = []

    def add(self, costs_ms: list[float], answers_ns: list[float]) -> None:
        self._all.append(Window(costs_ms, statistics.median(answers_ns)))

    @property
    def calm_count(self) -> int:
        return sum(window.calm for window in self._all)

    def costs_ms(self, *, calm: bool) -> list[float]:
        return [cost for window in self._all if window.calm or not calm for cost in window.costs_ms]

    def in_words(self) -> str:
        middle = statistics.median(window.answer_ns for window in self._all)
        return (
            f"{self.calm_count} of {len(self._all)} windows calm: a word of memory in {CALM_NS:g} ns or less "
            f"({middle:.1f} in the median)"
        )
