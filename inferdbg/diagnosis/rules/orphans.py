"""Engine cores and workers whose front end is gone: they serve nobody and hold memory until somebody ends them."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.roles import named
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.window import Window


def check(window: Window) -> Iterator[Finding]:
    orphans = window.now.processes.orphans if window.now.processes is not None else ()
    if not orphans:
        return
    vital = [process for process in orphans if process.role in ("engine core", "worker")] or list(orphans)
    pids = " ".join(str(process.pid) for process in vital)
    yield Finding(
        cause="orphans",
        severity="wrong",
        confidence="sure",
        summary=f"{_listed(vital)} live{'s' if len(vital) == 1 else ''} on without a front end"
        f"{_holding(vital)} and serve{'s' if len(vital) == 1 else ''} nobody",
        evidence=tuple(Evidence("processes.orphans", _held(process)) for process in vital),
        next_step=f"kill {pids}   (ends them; with -KILL where that is not enough)",
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
