"""A short run of random scheduler lives; the long one is `python -m benchmarks.invariants`."""

from hypothesis import HealthCheck, settings

from .invariants_machine import SchedulerLife

TestSchedulerLife = SchedulerLife.TestCase
TestSchedulerLife.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
