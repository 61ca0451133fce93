"""What the engine does this very moment, as the engine's own memory says it: no answer from the engine is needed."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

Phase = Literal["starting", "idle", "schedule", "prepare", "forward", "sample", "commit", "stopping"]
"""``schedule``: choosing what runs. ``prepare``: building inputs. ``commit``: storing tokens, freeing, answering."""


class Intent(Struct, frozen=True, gc=False, omit_defaults=True):
    """The change of pool and tables that was half done when we looked: everything else is consistent.
    ``block`` is the block being changed (None: none yet), ``request`` the number of the request it is for."""

    operation: str
    block: int | None = None
    request: int | None = None


class Pulse(Struct, frozen=True, gc=False, omit_defaults=True):
    """Times are CLOCK_MONOTONIC ns. ``heartbeat_ns``: last sign of life; None: the engine gives none while it is idle.
    ``kernels_launched`` and ``kernels_completed`` count since the start: when the
    first is ahead, ``kernel`` is still running (or stuck). ``seen_from_ns``: the first look at an engine that does not
    tell its own times; what began then may have begun long before. None: the times are the engine's."""

    origin: Origin
    heartbeat_ns: int | None
    step: int
    phase: Phase
    phase_since_ns: int
    layer: int | None = None
    kernel: str | None = None
    kernels_launched: int | None = None
    kernels_completed: int | None = None
    generation: int | None = None
    intent: Intent | None = None
    seen_from_ns: int | None = None
