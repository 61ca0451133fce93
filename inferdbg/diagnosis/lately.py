"""What happened in the last minute, in the numbers that several rules judge by."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from statistics import median

from inferdbg.facts.sections.events import Event
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Counter, Window

MINUTE = 60 * SECOND
_ENOUGH_TO_COUNT = 10 * SECOND
_STEPS_THAT_TELL_NORMAL = 64


def normal_step_ns(window: Window) -> int | None:
    """Median length of the last steps, of those that did at least half of what the running one does where there are
    any: a prompt of 2,000 tokens is not stuck because it takes longer than a decode. None when no step is known."""
    steps = [step for step in window.steps(_STEPS_THAT_TELL_NORMAL) if step.total_ns is not None]
    running = window.now.steps.running if window.now.steps is not None else None
    work = running.prefill_tokens + running.decode_tokens if running is not None else 0
    alike = [step for step in steps if 2 * (step.prefill_tokens + step.decode_tokens) >= work]
    return median_ns(alike or steps) if steps else _by_counting(window)


def median_ns(steps: Iterable[Step]) -> int:
    """Median length of those whose length is known; at least one must be."""
    return round(median(step.total_ns for step in steps if step.total_ns is not None))


def _by_counting(window: Window) -> int | None:
    """Of an engine whose steps are only seen in passing: how many went by between two looks, while it was busy."""
    moved = [
        (now.mono_ns - before.mono_ns) // (now.pulse.step - before.pulse.step)
        for before, now in pairwise(window.snapshots)
        if before.pulse is not None
        and now.pulse is not None
        and "idle" not in (before.pulse.phase, now.pulse.phase)
        and now.pulse.step > before.pulse.step
    ]
    return round(median(moved[-_STEPS_THAT_TELL_NORMAL:])) if moved else None


def patience_ns(window: Window) -> int:
    """How long an engine may be silent before it counts as stuck: 1.5 s, or four normal steps where those are longer,
    so that whoever looks after 2 s, or five normal steps, is told."""
    return max(3 * SECOND // 2, 4 * (normal_step_ns(window) or 0))


def events_of(window: Window, *kinds: str, over_ns: int = MINUTE) -> list[Event]:
    """Events of these kinds in the last ``over_ns``, oldest first, also those older than the Window's first look: an
    engine keeps a ring of them."""
    found = [event for kind in kinds for event in window.events_by_kind.get(kind, ())]
    if len(kinds) > 1:
        found.sort(key=_when)
    return found[bisect_left(found, window.now.mono_ns - over_ns, key=_mono_ns) :]


def steps_of(window: Window, over_ns: int = MINUTE) -> list[Step]:
    """Steps begun in the last ``over_ns``, oldest first."""
    return list(newest_steps(window, over_ns))[::-1]


def newest_steps(window: Window, over_ns: int = MINUTE) -> Iterator[Step]:
    """The same, newest first: for whom the last ones are enough."""
    horizon_ns = window.now.mono_ns - over_ns
    for snapshot in reversed(window.snapshots):
        for step in reversed(snapshot.steps.items if snapshot.steps is not None else ()):
            if step.start_ns < horizon_ns:
                return
            yield step


def first_count_ns(window: Window) -> int | None:
    """When the oldest of the server's own counts that are remembered were read: what was so then may have begun long
    before."""
    return next((one.scheduler.origin.mono_ns for one in window.snapshots if one.scheduler is not None), None)


def counters_tell(window: Window) -> bool:
    """The Window is long enough that rises of counters say more than the engine's rings do."""
    return window.span_ns >= _ENOUGH_TO_COUNT


def rose(window: Window, counter: Counter, *kinds: str) -> tuple[int, int]:
    """How often something happened lately, and in how many ns: by its counter in a long Window, in a short one by the
    events that the engine kept, where those are more."""
    by_counter = window.delta(counter, MINUTE) or 0
    span_ns = min(MINUTE, window.span_ns)
    if counters_tell(window):
        return by_counter, span_ns
    events = events_of(window, *kinds)
    if len(events) > by_counter:
        return len(events), window.now.mono_ns - events[0].mono_ns
    return by_counter, span_ns


def stalled_share(window: Window, resource: str, *, full: bool = False) -> float | None:
    """Of the last ten seconds, how much at least one task (``full``: all of them) waited for that; None where it is
    not known."""

    def lost_ns(snapshot: Snapshot) -> int | None:
        found = snapshot.processes.stalled if snapshot.processes is not None else ()
        return next((one.full_ns if full else one.some_ns for one in found if one.resource == resource), None)

    rate = window.rate(lost_ns, _ENOUGH_TO_COUNT, "processes")
    return None if rate is None else min(1.0, rate / SECOND)


def request_named(window: Window, number: int) -> str:
    """The client's name for it where it is still known, else its number."""
    for request in requests_now(window):
        if request.number == number:
            return request.id
    return f"request {number}"


def requests_now(window: Window) -> tuple[Request, ...]:
    return window.now.requests.items if window.now.requests is not None else ()


def place_of(pulse: Pulse) -> str:
    """Where in a step the engine is: ``forward, layer 7, kernel attention launched and not completed``."""
    words: list[str] = [pulse.phase]
    if pulse.phase in ("forward", "sample"):
        if pulse.layer is not None:
            words.append(f"layer {pulse.layer}")
        if pulse.kernel is not None:
            words.append(f"kernel {pulse.kernel}" + (" launched and not completed" if in_kernel(pulse) else ""))
    return ", ".join(words)


def in_kernel(pulse: Pulse) -> bool:
    """A kernel was launched and has not returned."""
    launched, completed = pulse.kernels_launched, pulse.kernels_completed
    return pulse.kernel is not None and launched is not None and completed is not None and launched > completed


_mono_ns, _when = attrgetter("mono_ns"), attrgetter("mono_ns", "seq")
