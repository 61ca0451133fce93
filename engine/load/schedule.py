"""When the next request is due: Poisson arrivals, a closed loop, bursts, and the end of it all. Reads no clock."""

from __future__ import annotations

import random
from typing import Literal

from .mix import Mix

NEVER = float("inf")
Due = Literal["usual", "burst"]


class Schedule:
    """Times are seconds on the caller's clock. ``until``: when the last request may be sent; ``requests``: how many
    in all, None for no limit."""

    def __init__(self, mix: Mix, seed: int, *, began: float, until: float, requests: int | None) -> None:
        self._mix = mix
        self._chance = random.Random(seed)
        self._until = until
        self._left = NEVER if requests is None else requests
        self._arrival = began + self._gap() if mix.rate else NEVER
        self._burst = began + mix.burst_every_s / 4 if mix.burst_every_s else NEVER

    def over(self, now: float) -> bool:
        """Nothing will ever be due again."""
        return now >= self._until or self._left <= 0

    def due(self, now: float, open_clients: int) -> list[Due]:
        """What is to be sent now; each is told once."""
        if self.over(now):
            return []
        due: list[Due] = []
        while self._arrival <= now:
            due.append("usual")
            self._arrival += self._gap()
        if not self._mix.rate:
            due += ["usual"] * (self._mix.concurrency - open_clients)
        if self._burst <= now:
            due += ["burst"] * self._mix.burst_size
            self._burst += self._mix.burst_every_s or NEVER
        del due[int(min(self._left, len(due))) :]
        self._left -= len(due)
        return due

    def next_at(self, now: float) -> float:
        """When something is due by the clock alone, or all is over."""
        return NEVER if self.over(now) else min(self._arrival, self._burst, self._until)

    def _gap(self) -> float:
        return self._chance.expovariate(self._mix.rate) if self._mix.rate else NEVER
