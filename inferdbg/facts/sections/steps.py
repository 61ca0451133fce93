"""What each recent step ran: prefill chunks and decodes against the token budget, and the time of each phase."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

WorkKind = Literal["prefill", "decode"]


class Work(Struct, frozen=True, array_like=True, gc=False):
    """One request's share of a step: ``tokens`` computed for it, on top of ``context`` tokens already in its cache."""

    request: int
    kind: WorkKind
    tokens: int
    context: int


class Step(Struct, frozen=True, omit_defaults=True, gc=False):
    """Durations in ns; ``idle_ns`` is the gap between the end of the step before and ``start_ns``.
    ``work`` may have been overwritten in the ring before we read it, or be left out of an older Snapshot of a Window:
    then it is empty and ``work_lost`` is true."""

    step: int
    start_ns: int
    schedule_ns: int
    prepare_ns: int
    forward_ns: int
    sample_ns: int
    commit_ns: int
    idle_ns: int
    budget: int
    prefill_tokens: int
    decode_tokens: int
    running: int
    waiting: int
    work: tuple[Work, ...] = ()
    work_lost: bool = False

    @property
    def total_ns(self) -> int:
        return self.schedule_ns + self.prepare_ns + self.forward_ns + self.sample_ns + self.commit_ns


class Steps(Struct, frozen=True, gc=False, omit_defaults=True):
    """Steps finished since the previous Snapshot, oldest first; ``dropped`` were overwritten before we looked.
    ``running``: the one that was planned and is not over (what a hung engine was working on); its times are not known
    yet, ``start_ns`` is when its plan was made."""

    origin: Origin
    items: tuple[Step, ...] = ()
    dropped: int = 0
    running: Step | None = None
