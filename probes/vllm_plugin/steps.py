"""What each step of vLLM runs and how long it takes, also where the next one is scheduled before this one is done."""

from array import array
from collections import deque
from typing import TYPE_CHECKING

from .hooking import Foreign
from .requests import Kept

if TYPE_CHECKING:
    from inferdbg.blackbox.writer import StepRing


class Plan:
    """One call of schedule(): parallel ``kept``, ``numbers``, ``kinds``, ``tokens``, ``contexts``, and its limits."""

    __slots__ = (
        "contexts", "decode", "ended_ns", "in_ring", "kept", "kinds", "limits", "numbers", "output", "prefill",
        "started_ns", "step", "tokens",
    )  # fmt: skip

    def __init__(self, output: Foreign, step: int, started_ns: int) -> None:
        self.output = output
        self.step = step
        self.started_ns = started_ns
        self.ended_ns = 0
        self.kept: list[Kept] = []
        self.numbers = array("I")
        self.kinds = array("B")
        self.tokens = array("I")
        self.contexts = array("I")
        self.prefill = 0
        self.decode = 0
        self.limits = (0, 0, 0, 0, 0)
        self.in_ring = False


class Steps:
    """Writes plans into the ring of a box. The ring knows one running step, so a plan that was made ahead goes in when
    the one before it is done: what the ring calls running is what the workers compute."""

    def __init__(self, ring: "StepRing") -> None:
        self._ring = ring
        self._waiting: deque[Plan] = deque()
        self._last_end_ns = 0

    @property
    def running(self) -> bool:
        return bool(self._waiting)

    def planned(self, plan: Plan) -> None:
        self._waiting.append(plan)
        self._begin()

    def taken(self, output: Foreign) -> "Plan | None":
        """The plan of that SchedulerOutput. Plans before it never came back."""
        while self._waiting:
            plan = self._waiting[0]
            if plan.output is output:
                return plan
            if all(plan.output is not output for plan in self._waiting):
                return None
            self._waiting.popleft()
        return None

    def finished(self, plan: Plan, taken_ns: int, ended_ns: int) -> None:
        """``taken_ns``: when its results came. Times of steps that overlap are cut so that they add up to the time
        that passed: what was done while the step before still ran does not count."""
        before = self._last_end_ns or plan.started_ns
        start = max(plan.started_ns, before)
        forward_from = max(plan.ended_ns, before)
        if plan.in_ring:
            self._ring.finish(
                start,
                forward_from - start,
                0,
                max(0, taken_ns - forward_from),
                0,
                max(0, ended_ns - taken_ns),
                max(0, plan.started_ns - before),
            )
        self._last_end_ns = ended_ns
        if self._waiting and self._waiting[0] is plan:
            self._waiting.popleft()
        self._begin()

    def _begin(self) -> None:
        plan = self._waiting[0] if self._waiting else None
        if plan is None or plan.in_ring:
            return
        self._ring.plan(plan.step, plan.limits, plan.numbers, plan.kinds, plan.tokens, plan.contexts)
        plan.in_ring = True
