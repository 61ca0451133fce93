"""Secrets out of foreign text before it reaches a file: tokens, keys and passwords become ``[redacted]``.

Prompts and outputs are not in Snapshots; what is left are log lines, reasons, messages and addresses.
"""

import re
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from inferdbg.facts.snapshot import Snapshot

MASK = "[redacted]"
_SECRETS = re.compile(
    r"""
      (?P<url> \b[a-z][a-z0-9+.-]*://[^\s/:@]* : ) [^\s/@]+ (?=@)                    # scheme://user:password@
    | (?P<bearer> \b(?:bearer|basic|token)\s+ ) [A-Za-z0-9._~+/=-]{8,}                 # Authorization: Bearer …
    | (?P<named> (?:\b|_|-)(?:api[_-]?key|secret(?:[_-]?key)?|access[_-]?key(?:[_-]?id)?|passw(?:or)?d|pwd
        |(?:auth|access|refresh|hf|hub|api|session)?[_-]?token|authorization|credentials?)
        ["']?\s*[=:]\s*["']? (?:(?:bearer|basic)\s+)? ) [^\s"',;&}\])]{4,}              # api_key=…, "password": "…"
    | (?P<flag> --(?:[a-z-]*-)?(?:api-key|token|password|secret)\s+ ) [^\s-]\S*        # --api-key …
    | (?P<bare> \b(?:hf_[A-Za-z0-9]{10,}|sk-[A-Za-z0-9_-]{10,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}
        |AKIA[A-Z0-9]{12,}|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{16,}|AIza[\w-]{30,}
        |eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)\b )                                          # tokens that show what they are
    | (?P<pem> -----BEGIN\ [A-Z ]*PRIVATE\ KEY----- ) (?:.|\n)*? (?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SHOWN = ("url", "bearer", "named", "flag", "pem")


@lru_cache(maxsize=512)
def redacted_text(text: str) -> str:
    """The text without what looks like a secret; the name of the secret stays."""
    return _SECRETS.sub(_masked, text)


def redacted(snapshot: Snapshot) -> Snapshot:
    """The Snapshot with its foreign texts redacted; the same object when there was nothing to hide."""
    changed: dict[str, object] = {}
    if snapshot.events is not None and any(event.text for event in snapshot.events.items):
        items = tuple(
            event if not event.text or (text := redacted_text(event.text)) == event.text else replace(event, text=text)
            for event in snapshot.events.items
        )
        changed["events"] = replace(snapshot.events, items=items)
    if snapshot.server is not None and snapshot.server.url:
        changed["server"] = replace(snapshot.server, url=redacted_text(snapshot.server.url))
    if any(probe.message or probe.hint for probe in snapshot.probes):
        changed["probes"] = tuple(
            replace(probe, message=redacted_text(probe.message), hint=redacted_text(probe.hint))
            for probe in snapshot.probes
        )
    differs = {name: value for name, value in changed.items() if value != getattr(snapshot, name)}
    return msgspec.structs.replace(snapshot, **differs) if differs else snapshot


def _masked(match: "re.Match[str]") -> str:
    name = match.lastgroup
    return (match.group(name) if name in _SHOWN and name is not None else "") + MASK
