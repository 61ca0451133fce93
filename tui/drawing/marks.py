"""Marks after numbers and words for missing ones: where a number comes from, how old it is, why it is not there."""

from inferdbg import text
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Span, paragraph

SECOND = 1_000_000_000
STALE_NS = 2 * SECOND
_PROVENANCE = {"measured": "", "reported": "r", "modelled": "m", "inferred": "~"}

LEGEND = "r reported by the server · m modelled · ~ inferred · 4s that old · no mark: measured"
TRENDS = "▲ p95 of the last 10 s is a quarter above that of the minute · ▼ a fifth below"


def age(ns: int) -> str:
    """How old, without a space, so that it reads as a mark: ``4s``."""
    return text.duration(ns).replace(" ", "")


def mark(origin: Origin, now_ns: int) -> Span:
    """What follows a number of that origin: nothing, `` r``, `` m 4s``."""
    words = [_PROVENANCE[origin.provenance]]
    if now_ns - origin.mono_ns >= STALE_NS:
        words.append(age(now_ns - origin.mono_ns))
    found = " ".join(word for word in words if word)
    return Span(f" {found}" if found else "", "dim")


def reports_of(snapshot: Snapshot, section: str) -> list[ProbeReport]:
    """Every probe that would fill the section, the troubled ones first."""
    return sorted((r for r in snapshot.probes if section in r.sections), key=lambda r: r.status == "ok")


def missing(snapshot: Snapshot, section: str, width: int, what: str) -> list[Line]:
    """Why the section is not there and what to type to see it."""
    reports = reports_of(snapshot, section)
    if not reports:
        return [*paragraph(f"not seen: no probe here reads {what}", width, "unseen")]
    report = reports[0]
    probe, message, hint = (text.safe(part) for part in (report.probe, report.message, report.hint))
    if report.status == "ok":
        return [*paragraph(f"not seen: {probe} answered, but without {what}", width, "unseen")]
    said = f"not seen: {probe} {report.status}{': ' if message else ''}{message}"
    return [*paragraph(said, width, "unseen"), *paragraph(hint, width, "accent")]
