"""What each recent step ran: prefill chunks and decodes against the token budget, and the time of each phase."""

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

WorkKind = Literal["prefill", "decode"]
PREFILL, DECODE = 1, 2
"""Values of the column ``kinds``."""
_KINDS: dict[int, WorkKind] = {PREFILL: "prefill", DECODE: "decode"}
_CODES: dict[WorkKind, int] = {kind: code for code, kind in _KINDS.items()}


class Work(Struct, frozen=True, array_like=True, gc=False):
    """One request's share of a step: ``tokens`` computed for it, on top of ``context`` tokens already in its cache."""

    request: int
    kind: WorkKind
    tokens: int
    context: int


class Shares(Struct, frozen=True, omit_defaults=True, gc=False):
    """The work of a step as columns: 256 objects a step cost more than all the rest of a look at a large engine.
    Little-endian, an item a scheduled request:

        requests  u32  number of the request
        kinds     u8   PREFILL or DECODE
        tokens    u32  as in Work
        contexts  u32  as in Work
    """

    requests: bytes = b""
    kinds: bytes = b""
    tokens: bytes = b""
    contexts: bytes = b""

    @classmethod
    def of(cls, work: Iterable[Work]) -> "Shares":
        items = tuple(work)
        return cls(
            packed(share.request for share in items),
            bytes(_CODES[share.kind] for share in items),
            packed(share.tokens for share in items),
            packed(share.context for share in items),
        )

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def decodes(self) -> int:
        return self.kinds.count(DECODE)

    def rows(self) -> tuple[Work, ...]:
        kinds = [_KINDS[code] for code in self.kinds]
        return tuple(map(Work, unpacked(self.requests), kinds, unpacked(self.tokens), unpacked(self.contexts)))

    def prefills(self) -> tuple[Work, ...]:
        """The rows of prefill chunks only: few, whatever the batch."""
        return self._rows("prefill", self.prefill_places())

    def first_decodes(self, most: int) -> tuple[Work, ...]:
        """At most so many of the other rows."""
        places = (place for place, kind in enumerate(self.kinds) if kind == DECODE)
        return self._rows("decode", list(islice(places, most)))

    def _rows(self, kind: WorkKind, places: Sequence[int]) -> tuple[Work, ...]:
        if not places:
            return ()
        requests, tokens, contexts = unpacked(self.requests), unpacked(self.tokens), unpacked(self.contexts)
        return tuple(Work(requests[place], kind, tokens[place], contexts[place]) for place in places)

    def prefill_places(self) -> list[int]:
        found: list[int] = []
        place = self.kinds.find(PREFILL)
        while place >= 0:
            found.append(place)
            place = self.kinds.find(PREFILL, place + 1)
        return found


NO_SHARES = Shares()


def packed(numbers: Iterable[int]) -> bytes:
    """As a column of u32."""
    return array("I", numbers).tobytes()


def unpacked(column: bytes) -> "memoryview[int]":
    """A column of u32 as numbers."""
    return memoryview(column).cast("I")


class Step(Struct, frozen=True, omit_defaults=True, gc=False):
    """Durations in ns; ``idle_ns`` is the gap between the end of the step before and ``start_ns``. Of a step that was
    only seen in passing they are None, and ``start_ns`` is when it was first seen; ``budget``: None where the engine
    does not tell.
    ``shares`` may have been overwritten in the ring before we read it, or be left out of an older Snapshot of a Window:
    then they are empty and ``work_lost`` is true."""

    step: int
    start_ns: int
    schedule_ns: int | None
    prepare_ns: int | None
    forward_ns: int | None
    sample_ns: int | None
    commit_ns: int | None
    idle_ns: int | None
    budget: int | None
    prefill_tokens: int
    decode_tokens: int
    running: int
    waiting: int
    shares: Shares = NO_SHARES
    work_lost: bool = False

    @property
    def work(self) -> tuple[Work, ...]:
        """The shares as rows, made anew each time."""
        return self.shares.rows()

    @property
    def total_ns(self) -> int | None:
        """None when one of its parts is not known."""
        schedule, prepare, forward, sample, commit = (
            self.schedule_ns, self.prepare_ns, self.forward_ns, self.sample_ns, self.commit_ns
        )  # fmt: skip
        if schedule is None or prepare is None or forward is None or sample is None or commit is None:
            return None
        return schedule + prepare + forward + sample + commit


class Steps(Struct, frozen=True, gc=False, omit_defaults=True):
    """Steps finished since the previous Snapshot, oldest first; ``dropped`` were overwritten before we looked, or went
    by between two looks.
    ``running``: the one that was planned and is not over (what a hung engine was working on); its times are not known
    yet, ``start_ns`` is when its plan was made."""

    origin: Origin
    items: tuple[Step, ...] = ()
    dropped: int = 0
    running: Step | None = None
