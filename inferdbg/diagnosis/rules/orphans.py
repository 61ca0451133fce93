"""Engine cores and workers whose front end is gone: they serve nobody and hold memory until somebody ends them."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding, Severity
from inferdbg.diagnosis.roles import named
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.window import Window

_HEAVY = ("engine core", "worker")


def check(window: Window) -> Iterator[Finding]:
    orphans = window.now.processes.orphans if window.now.processes is not None else ()
    vital = [process for process in orphans if process.role in _HEAVY] or list(orphans)
    known = {process.pid for process in window.now.processes.items} if window.now.processes is not None else set()
    own = [process for process in vital if process.pid in known]
    others = [process for process in vital if process.pid not in known]
    if own:
        yield _finding(window, own, "wrong")
    if others:
        yield _finding(window, others, "note")


def _finding(window: Window, vital: list[Process], severity: Severity) -> Finding:
    """``note``: of another server than the one that is looked at."""
    pids = " ".join(str(process.pid) for process in vital)
    return Finding(
        cause="orphans" if severity == "wrong" else "orphans_elsewhere",
        severity=severity,
        confidence="sure",
        summary=f"{_listed(vital)} live{'s' if len(vital) == 1 else ''} on without a front end"
        f"{_holding(vital)} and serve{'s' if len(vital) == 1 else ''} nobody",
        evidence=tuple(Evidence("processes.orphans", _held(process)) for process in vital),
        next_step=f"kill -KILL {pids}   (one is stopped, and hears no other signal)"
        if any(process.state in ("T", "t") for process in vital)
        else f"kill {pids}   (ends them; with -KILL where that is not enough)",
        since_ns=_since(window),
    )


def _listed(orphans: list[Process]) -> str:
    if len(orphans) > 4:
        return f"{len(orphans)} processes of a server ({named(orphans[0])} …)"
    return " and ".join(named(process) for process in orphans)


def _holding(orphans: list[Process]) -> str:
    found = [process.pss_bytes if process.pss_bytes is not None else process.rss_bytes for process in orphans]
    known = [one for one in found if one is not None]
    return f", hold{'s' if len(orphans) == 1 else ''} {text.size(sum(known))}" if known else ""


def _held(process: Process) -> str:
    shared = f", {text.size(process.pss_bytes)} with its share of what others map" if process.pss_bytes else ""
    return f"{named(process)}: rss {text.size(process.rss_bytes)}{shared}; its parent is not a server"


def _since(window: Window) -> int | None:
    """When they were first seen to be alone, where they were not at first."""
    began = None
    for snapshot in reversed(window.snapshots):
        if snapshot.processes is None:
            continue
        if not snapshot.processes.orphans:
            return began
        began = snapshot.processes.origin.mono_ns
    return None
