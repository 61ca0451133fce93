"""How a target was at one moment: the one value that live, replay and post-mortem share."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import fields

from inferdbg.facts.provenance import ProbeReport
from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.gpus import Gpus
from inferdbg.facts.sections.kernel_log import KernelLog
from inferdbg.facts.sections.kernels import Kernels
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.metrics import Metrics
from inferdbg.facts.sections.prefixes import Prefixes
from inferdbg.facts.sections.processes import Processes
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server
from inferdbg.facts.sections.stacks import Stacks
from inferdbg.facts.sections.steps import Steps
from inferdbg.facts.sections.wiring import Wiring


class Target(Struct, frozen=True, gc=False, omit_defaults=True):
    """What we look at. ``name`` is what a person would call it: ``pid 58``, ``run.idbg``."""

    kind: Literal["process", "box", "recording", "url", "core"]
    name: str
    pid: int | None = None
    path: str | None = None


class Snapshot(Struct, frozen=True, gc=False, omit_defaults=True):
    """One optional field a section; None where no probe could fill it (its ProbeReport says why).

    ``wall_ns`` is for people, ``mono_ns`` (CLOCK_MONOTONIC of the target's host) for subtraction.
    """

    seq: int
    wall_ns: int
    mono_ns: int
    target: Target
    server: Server | None = None
    pulse: Pulse | None = None
    scheduler: Scheduler | None = None
    requests: Requests | None = None
    kvcache: KVCache | None = None
    steps: Steps | None = None
    kernels: Kernels | None = None
    events: Events | None = None
    prefixes: Prefixes | None = None
    processes: Processes | None = None
    metrics: Metrics | None = None
    wiring: Wiring | None = None
    stacks: Stacks | None = None
    kernel_log: KernelLog | None = None
    gpus: Gpus | None = None
    probes: tuple[ProbeReport, ...] = ()


SECTIONS: tuple[str, ...] = (
    "server",
    "pulse",
    "scheduler",
    "requests",
    "kvcache",
    "steps",
    "kernels",
    "events",
    "prefixes",
    "processes",
    "metrics",
    "wiring",
    "stacks",
    "kernel_log",
    "gpus",
)

OF_THE_MACHINE = ("kernel_log", "gpus")
"""Sections that say nothing of the server: where only they are seen, it is not."""

SECTION_TYPES: dict[str, type[Struct]] = {
    field.name: next(part for part in field.type.__args__ if part is not type(None))
    for field in fields(Snapshot)
    if field.name in SECTIONS
}
"""The Struct of each section."""
