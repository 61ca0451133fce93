"""What a rule says: a cause, how sure, the evidence, and one next step."""

from typing import Literal

from msgspec import Struct

Confidence = Literal["sure", "likely", "possible"]
Severity = Literal["dead", "stuck", "wrong", "slow", "note"]


class Evidence(Struct, frozen=True, omit_defaults=True):
    """One fact: where it stands (``pulse.phase_since_ns``, ``server.log:12``) and what it says."""

    source: str
    text: str


class Finding(Struct, frozen=True, omit_defaults=True):
    """``cause``: the id, stable, for programs. ``summary``: the sentence for people. ``severity`` orders: ``dead``,
    ``stuck``, ``wrong`` (answers are false or missing), ``slow``, ``note``. ``since_ns``: mono_ns of when it began, as
    far as the Window shows; ``at_least``: it was so at the first look already, and may have begun long before.
    ``explains``: causes of other findings that are only its consequence."""

    cause: str
    severity: Severity
    confidence: Confidence
    summary: str
    evidence: tuple[Evidence, ...] = ()
    next_step: str = ""
    since_ns: int | None = None
    explains: tuple[str, ...] = ()
    at_least: bool = False
