"""10,000 and more random steps over pool and scheduler, all books checked after each; prints what happened in them."""

import sys
import time

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.invariants_machine import TALLY, SchedulerLife

WANTED = 10_000


def main() -> int:
    begun = time.monotonic()
    rounds = 0
    while min(TALLY["checked rules"], TALLY["engine steps"]) < WANTED:
        rounds += 1
        run_state_machine_as_test(
            SchedulerLife,
            settings=settings(
                max_examples=200,
                stateful_step_count=60,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    for name, count in TALLY.items():
        print(f"{count:>10,}  {name}")
    print(f"no book out of balance, every output as if alone; {time.monotonic() - begun:.0f} s, {rounds} round(s)")
    missing = [name for name, count in TALLY.items() if not count]
    if missing:
        print(f"never happened: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
