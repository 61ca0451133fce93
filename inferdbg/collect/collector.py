"""One round: every probe that is due is asked, in order of authority, and what they say becomes one Snapshot."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.server import Server
from inferdbg.facts.snapshot import SECTIONS, Snapshot, Target

from .asking import AskedHere, AskedInChild, Asking
from .clock import Clock, SystemClock
from .merge import filled
from .probe import Probe

PATIENCE_NS = 50_000_000
"""How long a round waits for probes that are read in a child, all together; what comes later is in the next round."""


_SLACK_NS = 100_000_000
"""A process's start is told in hundredths of a second."""
_OUTLIVED, _AGAIN = "it tells of the server that was here before", "attach again to see the new one as deep"


def of_server(
    life: int | None, began_ns: int | None, told: int | None, sections: Mapping[str, Struct]
) -> dict[str, Struct]:
    """Of what a probe tells, what speaks of the server of that ``life``, which began at ``began_ns``, and not of one
    before: a Snapshot is of one server, and probes notice a restart one after the other. ``told``: the life that this
    probe speaks of; where it does not know, what it read before the start is of the one before."""
    if told is not None and told != life:
        return {}
    if told is not None or began_ns is None:
        return dict(sections)
    return {name: section for name, section in sections.items() if _read_ns(section) >= began_ns - _SLACK_NS}


def _read_ns(section: Struct) -> int:
    origin: Origin = section.origin  # type: ignore[attr-defined]  # every section has one
    return origin.mono_ns


def _start_ns(sections: Mapping[str, Struct]) -> int | None:
    server = sections.get("server")
    return server.started_mono_ns if isinstance(server, Server) else None


class Collector:
    """Asks ``probes`` about one target. Earlier probes are believed, later ones fill what is still None."""

    def __init__(self, target: Target, probes: Sequence[Probe], clock: Clock | None = None) -> None:
        self.target = target
        self._clock = SystemClock() if clock is None else clock
        self._asked: list[Asking] = [
            AskedInChild(probe, self._clock) if probe.isolated else AskedHere(probe, self._clock) for probe in probes
        ]
        self._seq = 0
        self._last_ns = 0

    def round(self, patience_ns: int = PATIENCE_NS) -> Snapshot:
        """The target as it is now. One that looks only once gives the slow ones more patience: they are waited for up
        to it, or to their own deadlines."""
        now_ns = self._clock.mono_ns()
        wall_ns = self._clock.wall_ns()
        for asked in self._asked:
            asked.begin(now_ns)
        for asked in self._asked:
            asked.finish(max(0, now_ns + patience_ns - self._clock.mono_ns()))
        given = [(asked, asked.sections()) for asked in self._asked]
        life = max((asked.life for asked in self._asked if asked.life is not None), default=None)
        began = (_start_ns(sections) for asked, sections in given if asked.life == life and life is not None)
        began_ns = next((at_ns for at_ns in began if at_ns is not None), None)
        sections: dict[str, Struct] = {}
        seen_ns = None
        reports: list[ProbeReport] = []
        for asked, all_told in given:
            told = of_server(life, began_ns, asked.life, all_told)
            for name, section in told.items():
                sections[name] = filled(sections[name], section) if name in sections else section
            if seen_ns is None and len(told) == len(all_told):
                seen_ns = asked.mono_ns
            report = asked.report(self._clock.mono_ns())
            outlived = all_told and not told and report.status in ("ok", "torn")
            reports.append(replace(report, status="stale", message=_OUTLIVED, hint=_AGAIN) if outlived else report)
        mono_ns = max(self._last_ns, now_ns if seen_ns is None else seen_ns)  # time never runs back
        self._last_ns = mono_ns
        self._seq += 1
        return replace(
            Snapshot(
                seq=self._seq,
                wall_ns=wall_ns - (now_ns - mono_ns),
                mono_ns=mono_ns,
                target=self.target,
                probes=tuple(reports),
            ),
            **{name: section for name, section in sections.items() if name in SECTIONS},
        )

    def close(self) -> None:
        """Ends the children and lets go of what probes hold."""
        for asked in self._asked:
            asked.close()
