"""What each kernel did since the engine's start: calls, time, and the work the model says it was."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Kernel(Struct, frozen=True, gc=False, omit_defaults=True):
    """Cumulative. ``busy_ns`` is measured; ``flops`` and ``moved_bytes`` are modelled from the batch and the model."""

    name: str
    calls: int
    busy_ns: int
    flops: int | None = None
    moved_bytes: int | None = None


class Kernels(Struct, frozen=True, gc=False, omit_defaults=True):
    origin: Origin
    items: tuple[Kernel, ...] = ()
