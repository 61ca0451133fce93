"""What happened since the previous Snapshot: who was preempted by whom, evicted for whom, copied, finished, said."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Event(Struct, frozen=True, omit_defaults=True, gc=False):
    """``kind``: rejected, scheduled, first token, preempted, evicted, copied on write, finished, aborted, failed,
    fault, logged; of KV events stored, removed, cleared. ``step``: None where the source knows no steps.
    ``request``: number of whom it befell; ``other``: number of whom it was done for;
    ``block`` and ``tokens``: what it was about; ``text``: the reason or the log line."""

    seq: int
    mono_ns: int
    step: int | None
    kind: str
    request: int | None = None
    other: int | None = None
    block: int | None = None
    tokens: int | None = None
    text: str = ""


class Events(Struct, frozen=True, gc=False, omit_defaults=True):
    origin: Origin
    items: tuple[Event, ...] = ()
    dropped: int = 0
