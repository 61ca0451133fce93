"""Stands in for a probe that is not asked: says why its sections are empty and what to type to fill them."""

from dataclasses import dataclass

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import ProbeStatus


@dataclass
class Withheld:
    """``name`` and ``sections`` of the probe; it fills nothing."""

    name: str
    sections: tuple[str, ...]
    message: str
    hint: str = ""
    status: ProbeStatus = "absent"
    cadence_ns: int = 3600 * SECOND
    deadline_ns: int = SECOND
    isolated: bool = False

    def read(self, now_ns: int) -> Reading:
        return Reading({}, self.status, self.message, self.hint)

    def close(self) -> None:
        """Nothing is held open."""
