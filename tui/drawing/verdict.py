"""The first thing a person reads: OK, SLOW, STUCK or DEAD, why, and what to type next."""

from collections.abc import Sequence

from msgspec import Struct

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.snapshot import OF_THE_MACHINE, SECTIONS
from inferdbg.facts.window import SECOND, Window

from ..ink import Line, Span, boxed, crop_text, dim, flow, labelled, line, paragraph
from .counters import generated
from .marks import reports_of

_WORDS = {"dead": "DEAD", "stuck": "STUCK", "wrong": "WRONG", "slow": "SLOW"}
_DEPTHS = {
    "server": "server",
    "pulse": "pulse",
    "scheduler": "counters",
    "requests": "requests",
    "kvcache": "KV cache",
    "steps": "steps",
    "kernels": "kernels",
    "events": "events",
    "prefixes": "prefix tree",
    "processes": "processes",
    "metrics": "metrics",
    "wiring": "queues between threads",
    "stacks": "stacks",
    "kernel_log": "kernel log",
}


_STARTS = "starting_up"
_NEXT = "  next"
"""The label below the word; the others are as wide."""


class Verdict(Struct, frozen=True):
    """``ink`` colours the word and the frame; ``surety`` is how sure it is and since when, ``basis`` what was looked
    at."""

    word: str
    ink: str
    sentence: str
    next_step: str = ""
    surety: str = ""
    basis: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


def verdict(window: Window, findings: Sequence[Finding]) -> Verdict:
    """The first finding that is no note; without one there is nothing to see, or all is fine: what is wrong, rules
    alone say."""
    server = window.now.server
    if findings and findings[0].severity != "note":
        return _from_finding(window, findings[0])
    starting = next((finding for finding in findings if finding.cause == _STARTS), None)
    if starting is not None:
        return Verdict("STARTING", "note", text.safe(starting.summary), evidence=starting.evidence)
    if server is not None and server.state == "copied":
        said = f"a copy of the black box of pid {server.pid}, which still runs: this is how it was then"
        return Verdict("COPY", "note", said, f"inferdbg attach {server.pid}")
    if server is not None and server.state == "core file":
        whose = f", pid {server.pid}" if server.pid is not None else ""
        said = f"a core file of {server.engine}{whose}: this is how it was when that was written"
        return Verdict("CORE", "note", text.safe(said))
    if server is not None and server.state == "stopped cleanly":
        return Verdict("OK", "note", "the engine stopped cleanly: this is how it was at its end")
    seen = [_DEPTHS.get(name, name) for name in SECTIONS if name != "server" and getattr(window.now, name) is not None]
    if not set(seen) - set(OF_THE_MACHINE):
        return _nothing_seen(window)
    coming = next((one for one in window.now.probes if one.status == "stale" and one.answered_ns is None), None)
    if coming is not None and window.now.pulse is None and window.now.scheduler is None:
        return Verdict("LOOKING", "note", f"{text.safe(coming.probe)}: {text.safe(coming.message)}")
    return Verdict("OK", "ok", _well(window), basis=tuple(seen))


def verdict_lines(window: Window, findings: Sequence[Finding], width: int, *, evidence: bool = False) -> list[Line]:
    """The frame with the verdict, and below its sentence the other findings, each on a line of its own: ``so`` before
    those that follow from it."""
    said = verdict(window, findings)
    inner = width - 4
    word = f"● {said.word}"
    edge = max(len(word), len(_NEXT)) + 2
    lines = labelled(word, paragraph(said.sentence, inner - edge), edge, said.ink)
    if said.next_step:
        lines += labelled(_NEXT, paragraph(said.next_step, inner - edge, "accent"), edge)
    if said.basis:
        lines += labelled("", [(dim(_listed(said.basis, inner - edge)),)], edge)
    if evidence:
        lines += _evidence_lines(said.evidence, inner - edge, edge)
    follows = findings[0].explains if findings and findings[0].severity != "note" else ()
    for finding in findings:
        if text.safe(finding.summary) != said.sentence:
            word = "so" if finding.cause in follows else _WORDS.get(finding.severity, finding.severity).lower()
            lines += _further_lines(finding, word, inner - edge, edge, evidence=evidence)
    surety = dim(f" · {said.surety}") if said.surety else ""
    return boxed(line(Span("verdict", said.ink), surety), lines, width, said.ink)


def _listed(basis: Sequence[str], width: int) -> str:
    """In one line: those for which there is no room are counted."""
    for shown in range(len(basis), 0, -1):
        rest = f" and {len(basis) - shown} more" if shown < len(basis) else ""
        said = f"looked at {', '.join(basis[:shown])}{rest}"
        if len(said) <= width:
            break
    return crop_text(said, width)


def _further_lines(finding: Finding, word: str, width: int, edge: int, *, evidence: bool) -> list[Line]:
    lines = labelled(f"  {word}", paragraph(text.safe(finding.summary), width), edge, finding.severity)
    if evidence:
        lines += labelled(_NEXT, paragraph(text.safe(finding.next_step), width, "accent"), edge)
        lines += _evidence_lines(finding.evidence, width, edge)
    return lines


def _evidence_lines(evidence: Sequence[Evidence], width: int, edge: int) -> list[Line]:
    lines: list[Line] = []
    for piece in evidence:
        source = dim(f"{text.safe(piece.source)}  ")
        lines += flow([line(source, text.safe(piece.text))], width)
    return labelled("  seen", lines, edge)


def _from_finding(window: Window, finding: Finding) -> Verdict:
    surety: list[str] = [finding.confidence]
    lasts_ns = window.now.mono_ns - finding.since_ns if finding.since_ns is not None else 0
    if lasts_ns > 0:
        surety.append(f"for {text.lasting(lasts_ns, at_least=finding.at_least)}")
    return Verdict(
        _WORDS[finding.severity],
        finding.severity,
        text.safe(finding.summary),
        text.safe(finding.next_step),
        " · ".join(surety),
        evidence=finding.evidence,
    )


def _nothing_seen(window: Window) -> Verdict:
    names = [name for name in SECTIONS if name not in OF_THE_MACHINE]
    reports = [r for name in names for r in reports_of(window.now, name) if r.status != "ok"]
    coming = next((r for r in reports if r.status == "stale" and r.answered_ns is None), None)
    if coming is not None:
        return Verdict("LOOKING", "note", f"{text.safe(coming.probe)}: {text.safe(coming.message)}")
    troubled = reports[0] if reports else None
    if troubled is None:
        return Verdict("UNSEEN", "unseen", "nothing can be seen of this server: no probe here reads it")
    why = text.safe(f"{troubled.probe} {troubled.status}{': ' if troubled.message else ''}{troubled.message}")
    return Verdict("UNSEEN", "unseen", f"nothing can be seen of this server: {why}", text.safe(troubled.hint))


def _well(window: Window) -> str:
    scheduler = window.now.scheduler
    if scheduler is None or scheduler.running is None:
        return "nothing wrong in what can be seen"
    if not scheduler.running and not scheduler.waiting:
        return "idle: no request is running or waiting"
    rate = window.rate(generated, 10 * SECOND, "scheduler")
    speed = f" at {text.short(round(rate))} tokens/s" if rate is not None else ""
    waiting = f"{text.count(scheduler.waiting)} wait" if scheduler.waiting else "nobody waits"
    return f"{text.count(scheduler.running)} running{speed}, {waiting}"
