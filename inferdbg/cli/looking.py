"""Shows a Source: on a screen where there is one, else one look as text or JSON; a verdict becomes the exit code."""

import gc
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from inferdbg import text
from inferdbg.cli.output import Output
from inferdbg.config import Moment
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.diagnosis.finding import Finding
    from inferdbg.facts.snapshot import Snapshot
    from inferdbg.facts.source import Source
    from inferdbg.facts.window import Window

SECOND_LOOK_S = 0.25
"""After which a step that looks stuck is looked at again: whether its kernels move takes two looks to tell."""
LONGER_LOOK_S = 1.0
"""The same while no step is over yet and nothing says how long a kernel here may take."""
SECOND = 1_000_000_000
RATES_S = 0.5
"""Between the two looks of a text, so that it has rates."""
_MOST_PAUSES = 5


def on_screen(
    source: "Source", interval_ns: int, at_ns: int | None = None, *, place: str = "", recorded: bool = False
) -> bool:
    """Until the person leaves; a moment that was asked for is held at first. True when the next of several servers is
    to be shown, of which this one is at ``place``, ``1/3``. Raises what ended the recording of it, if it is
    ``recorded``."""
    gc.disable()  # loading makes no garbage, and looking for it takes a tenth of the time until the first picture
    try:
        from inferdbg.diagnosis.diagnose import diagnose
        from inferdbg.tui.app import run

        if not (sys.__stderr__ is not None and sys.__stderr__.isatty()):
            sys.__stderr__ = sys.__stdout__  # type: ignore[misc]  # where textual draws: `2>log` must not swallow the screen
        to_next = run(source, diagnose, interval_ns / 1e9, at_ns, place)
    finally:
        gc.unfreeze()  # what the screen froze when it stood, itself among it
        gc.enable()
    if recorded and source.problem is not None:
        raise source.problem
    if to_next:
        gc.collect()  # one screen and all it remembers, before the next
    return to_next


def as_text(out: Output, source: "Source", at_ns: int | None = None) -> int:
    """The overview of one moment; exit code 1 when something is wrong with it."""
    from inferdbg.tui.plain import overview_text

    window, findings = look(source, at_ns, rates=True)
    problem = ". ".join(filter(None, (source.problem.message, source.problem.hint))) if source.problem else ""
    for line in overview_text(window, findings, source.title, problem):
        out.show(line)
    return _code(window, findings)


def as_object(out: Output, source: "Source", at_ns: int | None = None, *, blocks: bool) -> int:
    """See snapshot_json; exit code 1 when something is wrong."""
    from inferdbg.cli.snapshot_json import as_json

    window, findings = look(source, at_ns, rates=False)
    out.show_json(as_json(window.now, findings, source.problem, blocks=blocks))
    return _code(window, findings)


def has_answered(window: "Window") -> bool:
    """No probe's first answer is still on the way: before that nothing can be said to be well."""
    return not any(report.status == "stale" and report.answered_ns is None for report in window.now.probes)


def look(
    source: "Source", at_ns: int | None = None, *, rates: bool, pause: Callable[[float], None] = time.sleep
) -> "tuple[Window, list[Finding]]":
    """The Window at that moment (None: now) and what is wrong. A live source is looked at once more where one look
    does not tell. Raises InferdbgError when nothing could be read of it."""
    from inferdbg.diagnosis.diagnose import diagnose
    from inferdbg.diagnosis.lately import normal_step_ns

    source.advance()
    if source.live and rates:
        pause(RATES_S)
        source.advance()
        for _ in range(_MOST_PAUSES):  # a server that is asked every two seconds
            if not _counters_are_carried(source.window()):
                break
            pause(RATES_S)
            source.advance()
    window = source.window(at_ns)
    refuse_blindness(window)
    findings = diagnose(window)
    unknown = normal_step_ns(window) is None and any(
        finding.severity == "stuck" and finding.confidence == "likely" for finding in findings
    )
    if source.live and (unknown or any(finding.confidence == "possible" for finding in findings)):
        pause(LONGER_LOOK_S if normal_step_ns(window) is None else SECOND_LOOK_S)
        source.advance()
        window = source.window(at_ns)
        findings = diagnose(window)
    for _ in range(_MOST_PAUSES):
        if not source.live or not _stands(window) or any(finding.severity == "stuck" for finding in findings):
            break
        pause(SECOND_LOOK_S if len(window.snapshots) == 1 else LONGER_LOOK_S)
        source.advance()
        window = source.window(at_ns)
        findings = diagnose(window)
    return window, findings


def _stands(window: "Window") -> bool:
    """A step that nobody but we timed, and that did not move since our first look: only looking on tells more."""
    first, last = window.snapshots[0].pulse, window.now.pulse
    if first is None or last is None or last.phase in ("idle", "starting", "stopping"):
        return False
    timed_by_us = last.phase_since_ns >= window.snapshots[0].mono_ns
    return timed_by_us and (first.step, first.phase) == (last.step, last.phase)


def _counters_are_carried(window: "Window") -> bool:
    """All looks so far saw one reading of the server's counts: no rate can be told."""
    last, server = window.now.scheduler, window.now.server
    if last is None or (server is not None and server.state != "alive"):
        return False
    read = {snapshot.scheduler.totals_origin for snapshot in window.snapshots if snapshot.scheduler is not None}
    return last.totals_origin.provenance == "reported" and sum(one.provenance == "reported" for one in read) < 2


def moment_of(source: "Source", at: Moment | None) -> int | None:
    """The mono_ns that a person means; None for the last moment. Raises InferdbgError for one that is not in it."""
    if at is None:
        return None
    source.advance()
    first_ns, last_ns = source.span()
    if at.from_start_ns is not None:
        at_ns = first_ns + at.from_start_ns
    elif at.from_end_ns is not None:
        at_ns = last_ns - at.from_end_ns
    else:
        at_ns = _at_clock(source.window().now, at.clock_s or 0, first_ns)
    if not first_ns <= at_ns <= last_ns + SECOND:  # a clock shows whole seconds
        now = source.window().now
        start, end = (text.clock(now.wall_ns - now.mono_ns + ns) for ns in (first_ns, last_ns))
        raise InferdbgError(
            f"that moment is not in {source.title}",
            f"it goes from {start} to {end}, {text.duration(last_ns - first_ns)}",
            Exit.USAGE,
        )
    return at_ns


def _at_clock(now: "Snapshot", clock_s: int, first_ns: int) -> int:
    """The first time after (or less than a second before) ``first_ns`` that a clock here showed that time of day."""
    wall_minus_mono = now.wall_ns - now.mono_ns
    began = time.localtime((first_ns + wall_minus_mono) // SECOND)
    began_s = began.tm_hour * 3600 + began.tm_min * 60 + began.tm_sec
    whole_second_ns = (first_ns + wall_minus_mono) // SECOND * SECOND - wall_minus_mono
    return max(first_ns, whole_second_ns + (clock_s - began_s) % 86400 * SECOND)


def refuse_blindness(window: "Window") -> None:
    """Raises InferdbgError when no probe could see anything: an empty screen would say nothing."""
    from inferdbg.facts.snapshot import OF_THE_MACHINE, SECTIONS

    if any(getattr(window.now, name) is not None for name in SECTIONS if name not in OF_THE_MACHINE):
        return
    if any(report.status == "stale" and report.answered_ns is None for report in window.now.probes):
        return  # its first answer is on the way
    for report in window.now.probes:
        if report.message:
            raise InferdbgError(f"nothing of {window.now.target.name} can be read: {report.message}", report.hint)
    raise InferdbgError(f"nothing of {window.now.target.name} can be read", "inferdbg probes")


def _code(window: "Window", findings: "list[Finding]") -> int:
    """A server of which nothing is seen but that somebody said that there is one was not checked."""
    from inferdbg.facts.snapshot import OF_THE_MACHINE, SECTIONS

    if any(finding.severity != "note" for finding in findings):
        return Exit.FINDINGS
    untelling = ("server", *OF_THE_MACHINE)
    seen = any(getattr(window.now, name) is not None for name in SECTIONS if name not in untelling)
    return Exit.FINE if seen else Exit.NOTHING_CHECKED
