"""Where the engine's thread stands: what it does, whether it waits for requests, and the call that runs a step."""

from collections.abc import Sequence
from typing import NamedTuple

from inferdbg.facts.sections.pulse import Phase

from ..maps import EngineMap
from ..pymem.frames import Frame

_ENDS = ("shutdown", "_send_engine_dead")
"""What the call that starts an engine core also does when its loop is over."""


class Standing(NamedTuple):
    """``phase``: None where the engine's loop is not being called. ``step``: the call that runs a step. ``within``:
    the innermost function that the map knows."""

    phase: Phase | None
    step: Frame | None
    within: str | None


def standing_of(names: EngineMap, frames: Sequence[Frame]) -> Standing:
    """``frames``: innermost first."""
    functions = [frame.function for frame in frames]
    if names.loop not in functions:
        starting = names.starting in functions and not any(function in _ENDS for function in functions)
        return Standing("starting" if starting else None, None, names.starting if starting else None)
    inner = frames[: functions.index(names.loop) + 1]
    called = functions[: len(inner)]
    step = next((frame for frame in inner if frame.function in names.steps), None)
    if names.idle and all(function in called for function in names.idle):
        return Standing("idle", step, names.idle[0])
    within = next((function for function in called if function in names.phases), None)
    return Standing(names.phases[within] if within is not None else None, step, within)
