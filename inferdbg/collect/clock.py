"""The clock that the collector reads; outside the engine nobody else does."""

import time
from typing import Protocol


class Clock(Protocol):
    """``mono_ns`` for subtraction (CLOCK_MONOTONIC), ``wall_ns`` for people."""

    def mono_ns(self) -> int: ...
    def wall_ns(self) -> int: ...


class SystemClock:
    """This machine's."""

    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()
