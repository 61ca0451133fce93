"""Tells when a shared machine lets us have its memory: copying takes twice as long when the neighbours copy too.

Beside what is measured 8 MiB are copied, again and again. Judged are only windows of time in which that went at
`CALM_GB_S` or more: less than a core of any server has to itself, more than is left to a virtual one in a bad hour (3).
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

CALM_GB_S = 5.0
_LOOKS_A_WINDOW, _CALM_WINDOWS, _MOST_WINDOWS = 12, 5, 60
_MEMORY = os.urandom(8 << 20)
_COPY = bytearray(len(_MEMORY))


def copied_gb_s() -> float:
    """How fast 8 MiB are copied just now, when they are where the processor has them at hand: the best of three."""
    return len(_MEMORY) / min(_taken_s(_copy) for _ in range(3)) / 1e9


def _copy() -> None:
    _COPY[:] = _MEMORY


def _taken_s(act: Callable[[], object]) -> float:
    begun = time.thread_time()
    act()
    return time.thread_time() - begun


class Window(NamedTuple):
    """What was measured in a stretch of time, ms, and how fast memory was copied meanwhile."""

    costs_ms: list[float]
    copied_gb_s: float

    @property
    def calm(self) -> bool:
        return self.copied_gb_s >= CALM_GB_S


class Windows:
    """Windows in the order of time; those that are judged are the calm ones."""

    def __init__(self) -> None:
        self._all: list[Window] = []

    def add(self, costs_ms: list[float], copied: list[float]) -> None:
        self._all.append(Window(costs_ms, statistics.median(copied)))

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def calm_count(self) -> int:
        return sum(window.calm for window in self._all)

    def costs_ms(self, *, calm: bool) -> list[float]:
        return [cost for window in self._all if window.calm or not calm for cost in window.costs_ms]

    def in_words(self) -> str:
        middle = statistics.median(window.copied_gb_s for window in self._all)
        return (
            f"{self.calm_count} of {len(self._all)} windows calm: memory copied at {CALM_GB_S:g} GB/s or more "
            f"({middle:.1f} in the median)"
        )


def looked(look: Callable[[], object], without: Callable[[], object] = lambda: None) -> Windows:
    """Looks again and again until enough windows were calm, or too many were not; what counts is how much longer it
    takes than ``without``. Nothing in a look waits, so its processor time is what it takes."""
    windows, before = Windows(), copied_gb_s()
    for _ in range(5):
        look()
    for _ in range(_MOST_WINDOWS):
        costs_ms = []
        for _ in range(_LOOKS_A_WINDOW):
            costs_ms.append((_taken_s(look) - _taken_s(without)) * 1e3)
        after = copied_gb_s()
        windows.add(costs_ms, [before, after])
        before = after
        if windows.calm_count == _CALM_WINDOWS:
            break
    return windows


def told(what: str, windows: Windows, bound_ms: float | None = None) -> bool:
    """Prints the median of the calm windows, and says whether the bound held there; without calm ones it did not."""
    found = {calm: statistics.median(costs) for calm in (False, True) if (costs := windows.costs_ms(calm=calm))}
    calm = f"{found[True]:7.2f} ms when calm" if True in found else "      - no calm window"
    bound = f"   at most {bound_ms} ms" if bound_ms is not None else ""
    print(f"{what:60} {calm}, {found[False]:.2f} in all {windows.count}{bound}")
    return bound_ms is None or found.get(True, bound_ms + 1) <= bound_ms
