"""What a source of facts looks like: one file a source, ``probes/NAME.py``.

``read()`` touches the world and gives what it saw to ``parse(bytes)``, which is pure and is what tests call:

    @dataclass
    class Temperatures:
        pid: int
        name: str = "temperatures"
        sections: tuple[str, ...] = ("temperatures",)
        cadence_ns: int = SECOND
        deadline_ns: int = SECOND
        isolated: bool = False

        def read(self, now_ns: int) -> Reading:
            found = parse(Path("/sys/class/thermal/thermal_zone0/temp").read_bytes(), Origin(self.name, now_ns))
            return Reading({"temperatures": found})

        def close(self) -> None:
            pass
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from inferdbg.facts.provenance import ProbeStatus

SECOND = 1_000_000_000


class Reading(Struct, frozen=True, omit_defaults=True):
    """What one read found: a section Struct for each name of Snapshot that it could fill.

    ``mono_ns``: the moment that the facts speak of, where the source knows it better than the asker (the last sign of
    life of a dead engine); the Snapshot takes its time from the first Reading that has one. ``life``: which server
    it speaks of, where a probe follows one after the other on a port: the start ticks of its front end. ``message`` and
    ``hint`` say why something is missing and what to type to see it.
    """

    sections: Mapping[str, Struct] = field(default_factory=dict)
    status: ProbeStatus = "ok"
    message: str = ""
    hint: str = ""
    mono_ns: int | None = None
    life: int | None = None


class Probe(Protocol):
    """One source of facts about one target.

    ``sections``: names of the Snapshot fields it may fill. ``cadence_ns``: how long a reading is good for; between two
    reads its sections are carried over with the age they have. ``deadline_ns``: longest that a read may take.

    ``isolated``: a read may block for ever (NVML on a sick GPU, /proc of a stuck process), so it runs in a disposable
    child. Then the class is a dataclass of plain fields at the top of its module: the child makes its own from them.
    Others are read on the collector's thread and must not block.
    """

    @property
    def name(self) -> str: ...
    @property
    def sections(self) -> tuple[str, ...]: ...
    @property
    def cadence_ns(self) -> int: ...
    @property
    def deadline_ns(self) -> int: ...
    @property
    def isolated(self) -> bool: ...

    def read(self, now_ns: int) -> Reading:
        """Everything seen at ``now_ns`` (CLOCK_MONOTONIC). May raise: an InferdbgError's message and hint, or any
        other error's text, stand in the ProbeReport as ``failed``."""

    def close(self) -> None:
        """Gives back what it holds open."""
