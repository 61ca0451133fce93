"""Is the engine alive and moving? Judged from outside its thread, so that a hung engine cannot keep it from being told.

Healthy: it has no work, or lately it computed tokens, answered or dropped a request, or got on inside a step (a kernel,
a layer, a phase: one step over long prompts may take long). Not healthy: it had work for longer than max(2 s, 5 × a
median step) and none of that happened (a stuck step as well as steps that do nothing), or its thread has died.
"""

from __future__ import annotations

import statistics
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Literal

from ..state import Column, Phase, Pulse

RECENT_STEPS = 127
PATIENCE_NS = 2_000_000_000
PATIENCE_STEPS = 5
ITERATION_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(slots=True)
class Vitals:
    """Written by the engine's thread only, read by others at any moment; times are time.monotonic_ns().

    ``busy``: it has work. ``moved_ns``: when it last got on, or began to have work. ``iteration_counts[i]``: steps
    that computed at most ITERATION_BOUNDS[i] tokens (one entry more: above), ``iteration_sum`` their tokens.
    """

    busy: bool = False
    moved_ns: int = 0
    failure: str | None = None
    recent_step_ns: array[int] = field(default_factory=lambda: array("Q", bytes(8 * RECENT_STEPS)))
    steps: int = 0
    iteration_counts: array[int] = field(default_factory=lambda: array("Q", bytes(8 * (len(ITERATION_BOUNDS) + 1))))
    iteration_sum: int = 0

    def stepped(self, took_ns: int, tokens: int) -> None:
        self.recent_step_ns[self.steps % RECENT_STEPS] = took_ns
        self.steps += 1
        self.iteration_counts[bisect_left(ITERATION_BOUNDS, tokens)] += 1
        self.iteration_sum += tokens

    def median_step_ns(self) -> int:
        """0 before the first step."""
        known = self.recent_step_ns[: min(self.steps, RECENT_STEPS)]
        return int(statistics.median(known)) if known else 0


class PulseWatch:
    """Looks at the pulse now and then, and remembers when something last moved inside one step. That steps follow each
    other is no progress: a livelock does that too."""

    _WORDS = (Pulse.STEP, Pulse.PHASE, Pulse.LAYER, Pulse.KERNEL, Pulse.LAUNCHED, Pulse.COMPLETED)

    def __init__(self, pulse: Column) -> None:
        self.moved_ns = 0
        self._pulse = pulse
        self._seen = self._read()

    def look(self, now_ns: int) -> None:
        seen = self._read()
        if seen != self._seen and seen[0] == self._seen[0] and seen[1] != Phase.IDLE:
            self.moved_ns = now_ns
        self._seen = seen

    def _read(self) -> tuple[int, ...]:
        return tuple(self._pulse[word] for word in self._WORDS)


@dataclass(frozen=True, slots=True)
class Health:
    """``seconds``: since the engine last got on, 0 when it has no work. ``phase`` and ``step`` are its pulse's."""

    state: Literal["ok", "stalled", "failed"]
    phase: str
    step: int
    seconds: float
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    def body(self) -> dict[str, object]:
        body: dict[str, object] = {
            "status": self.state,
            "phase": self.phase,
            "step": self.step,
            "seconds": round(self.seconds, 3),
        }
        return body | {"detail": self.detail} if self.detail else body


def judge(vitals: Vitals, pulse: Column, *, now_ns: int, owed_since_ns: int | None, pulse_moved_ns: int = 0) -> Health:
    """``owed_since_ns``: since when some client waits for the engine without a break, None when none does.
    ``pulse_moved_ns``: from PulseWatch; 0 when it saw nothing move."""
    phase, step = Phase(pulse[Pulse.PHASE]).name.lower(), pulse[Pulse.STEP]
    if vitals.failure is not None:
        return Health("failed", phase, step, (now_ns - vitals.moved_ns) / 1e9, f"the engine died: {vitals.failure}")
    if not vitals.busy and owed_since_ns is None:
        return Health("ok", phase, step, 0.0)
    since_ns = max(vitals.moved_ns, pulse_moved_ns if vitals.busy else owed_since_ns or 0)
    still_ns = max(0, now_ns - since_ns)
    limit_ns = max(PATIENCE_NS, PATIENCE_STEPS * vitals.median_step_ns())
    if still_ns <= limit_ns:
        return Health("ok", phase, step, still_ns / 1e9)
    detail = f"no progress for {still_ns / 1e9:.1f} s with work to do, in phase {phase} of step {step}"
    return Health("stalled", phase, step, still_ns / 1e9, detail)
