"""How what several probes say of one section becomes one section: the first is believed, later ones fill gaps."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.kernels import Kernel
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts
from inferdbg.facts.sections.steps import Steps

_PARTS = (ModelFacts, EngineConfig)
"""Structs within a section of which one source knows some fields and another others."""
_KEYS: Mapping[type, str] = {Request: "number", Kernel: "name", Process: "pid"}
"""What rows of a section are joined by."""


def filled(first: Struct, later: Struct) -> Struct:
    """``first`` with what it does not know taken from ``later``: fields that are None, rows by their id, and in rows,
    in the model and in the configuration again the fields that are None. The origin stays that of ``first``; who
    counted what it did not is said beside it."""
    found: dict[str, Any] = {}
    for name in first.__struct_fields__:
        known, other = getattr(first, name), getattr(later, name, UNSET)
        if other is UNSET or other is None or other == ():
            continue
        if known is None:
            found[name] = other
        elif isinstance(known, _PARTS):
            part = filled(known, other)
            if part is not known:
                found[name] = part
        elif isinstance(known, tuple) and type(other[0]) in _KEYS:
            joined = _joined(known, other, _KEYS[type(other[0])])
            if joined != known:
                found[name] = joined
    if isinstance(first, Scheduler) and isinstance(later, Scheduler):
        found.pop("counted", None)
        if "generated_tokens_total" in found:
            found["counted"] = later.totals_origin
    return replace(first, **found) if found else first


def _joined(first: tuple[Struct, ...], later: tuple[Struct, ...], key: str) -> tuple[Struct, ...]:
    others = {getattr(row, key): row for row in later}
    rows = [filled(row, others.pop(getattr(row, key))) if getattr(row, key) in others else row for row in first]
    return (*rows, *others.values())


def carried(section: Struct) -> Struct:
    """The section as it stands in a later Snapshot without a new reading: what is new since then is nothing."""
    if isinstance(section, (Steps, Events)) and (section.items or section.dropped):
        return replace(section, items=(), dropped=0)
    return section
