"""Every book of the scheduler held against every other: columns, queues, slots, rows, prefix table."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from .consistency import Disagreement, disagreements
from .state import Counter

if TYPE_CHECKING:
    from .scheduler import Scheduler


def check_scheduler(scheduler: Scheduler) -> list[Disagreement]:
    """What contradicts; nothing when all is well. Between two changes only."""
    limits, pool, table, counters = scheduler.limits, scheduler.pool, scheduler.table, scheduler.columns["counters"]
    found = disagreements(scheduler.columns, block_size=limits.block_size, blocks_per_row=limits.blocks_per_row)
    found += (Disagreement(block, 0, what) for block, what in pool.prefix.disagreements())
    known = scheduler.requests()
    wrong = list(table.disagreements(known))
    order = [request.number for request in chain(scheduler.running, scheduler.waiting)]
    if order != sorted(set(order)):
        wrong.append("the queues are not in order of arrival")
    seats = sum(1 + len(request.parked) for request in scheduler.running)
    if seats > limits.max_running:
        wrong.append(f"{seats} requests run where {limits.max_running} may")
    if scheduler.numbers_by_id() != sorted(request.number for request in known):
        wrong.append("the requests by id are not those in the queues")
    counted = [counters[word] for word in (Counter.RUNNING, Counter.WAITING)]
    if counted != [len(scheduler.running), len(known) - len(scheduler.running)]:
        wrong.append(f"running and waiting are counted as {counted}")
    for request in scheduler.running:
        index, filled = divmod(table.computed_tokens[request.slot], limits.block_size)
        if filled and index < pool.held[request.slot] and pool.hash[pool.block_at(request, index)]:
            wrong.append(f"request {request.number} would write into a block of the prefix table")
    return found + [Disagreement(-1, 0, what) for what in wrong]
