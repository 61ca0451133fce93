"""Where a number comes from, how old it is, and why one is missing."""

from typing import Literal

from msgspec import Struct

Provenance = Literal["measured", "reported", "modelled", "inferred"]
"""``measured``: read by us from the thing itself. ``reported``: the server said so. ``modelled``: computed from a
formula. ``inferred``: follows from other facts."""

ProbeStatus = Literal["ok", "absent", "denied", "stale", "failed", "not answering", "torn"]
"""``absent``: not on this machine. ``torn``: it changed under every try to read it."""


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who filled a section, how, and when it was true (``mono_ns``, CLOCK_MONOTONIC of the target's host)."""

    probe: str
    mono_ns: int
    provenance: Provenance = "measured"


class ProbeReport(Struct, frozen=True, gc=False, omit_defaults=True):
    """How one probe fared in one round.

    ``cost_ns`` is what the read took us; ``answered_ns`` is the mono_ns of its last good answer (None: never);
    ``message`` and ``hint`` say why something is missing and what to type to see it.
    """

    probe: str
    status: ProbeStatus
    sections: tuple[str, ...] = ()
    cost_ns: int = 0
    answered_ns: int | None = None
    message: str = ""
    hint: str = ""
