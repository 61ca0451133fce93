"""What the kernel of the target's machine reported lately: kills, crashes, errors of GPUs, links, memory and disks."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

Kind = Literal[
    "oom kill",
    "segfault",
    "trap",
    "xid",
    "sxid",
    "gpu lost",
    "driver mismatch",
    "driver failed",
    "hung task",
    "lockup",
    "memory error",
    "pcie error",
    "disk error",
    "file server",
]
Blame = Literal["program", "hardware", "driver", "either", "consequence"]
"""Whose fault an Xid tells of, as NVIDIA's catalog has it; ``consequence``: of another that came before."""


class KernelEvent(Struct, frozen=True, gc=False, omit_defaults=True):
    """``text``: the telling line without its time. ``line``: its number in a file, from 1. ``mono_ns``: by the kernel's
    own clock, which may run some ms a day apart from CLOCK_MONOTONIC; ``wall_ns`` where only the time of day is known.

    ``pid``, ``process``: whom it befell, in the kernel's own PID namespace. ``device``: its PCI address.
    ``code``: the Xid, the number of a link. ``what``: in words. ``blame`` and ``advice``: of an Xid.

    Of a crash: ``address`` that it touched, ``access`` in words, ``library`` and the ``offset`` in it. Of an OOM kill:
    ``rss_bytes`` that the victim held, ``group`` whose limit was reached (None: the machine's memory), ``asked_by``."""

    kind: Kind
    text: str
    line: int = 0
    mono_ns: int | None = None
    wall_ns: int | None = None
    pid: int | None = None
    process: str | None = None
    device: str | None = None
    code: int | None = None
    what: str = ""
    blame: Blame | None = None
    advice: str = ""
    address: int | None = None
    access: str | None = None
    library: str | None = None
    offset: int | None = None
    rss_bytes: int | None = None
    group: str | None = None
    asked_by: str | None = None


class KernelLog(Struct, frozen=True, gc=False, omit_defaults=True):
    """``items``: the last events, oldest first; ``source``: where they were read; ``since_ns``: from when on nothing
    is missing."""

    origin: Origin
    source: str
    items: tuple[KernelEvent, ...] = ()
    since_ns: int | None = None
