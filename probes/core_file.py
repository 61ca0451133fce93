"""The core file of a vLLM's engine core: its requests, blocks and step in the moment when the file was written."""

import os
from contextlib import closing
from dataclasses import dataclass

from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.server import Server

from .maps.vllm_v1 import MAP
from .memory.engine import Engine
from .memory.past import Past
from .memory.reuse import Reuses
from .pymem.opening import open_core

_IDENT_AND_TYPE = b"\x7fELF", 16, b"\x04\x00"
"""A file begins with its first, and is a core where the last stands at the second (elf(5), ET_CORE)."""


@dataclass
class CoreFile:
    """Raises InferdbgError for what is no core, or none of a CPython that we know. Nothing in it changes: it is read
    once, and what is in it is as old as the file's last change."""

    path: str

    name = "core file"
    sections = ("server", "pulse", "scheduler", "requests", "kvcache", "steps", "events")
    cadence_ns = 3600 * SECOND
    deadline_ns = 60 * SECOND
    isolated = False

    def read(self, now_ns: int) -> Reading:
        """``now_ns``: when the file was written, by WrittenThen."""
        with closing(open_core(self.path)) as reader:
            engine = Engine(reader, MAP)
            engine.refresh(now_ns)
            if engine.objects is None:
                return Reading({}, "absent", f"no thread in it is in {MAP.loop}: it is no engine core of vLLM")
            seen = engine.look(pool=True)
            told = Reuses().of(engine, seen)
            sections = Past().sections(engine, seen, {}, 0, Origin(self.name, now_ns), told=told, many=False)
        server = sections.get("server")
        if isinstance(server, Server):
            sections["server"] = replace(server, state="core file")
        if seen.look is None:
            return Reading(sections, "torn", f"requests and blocks could not be read: {seen.label}", mono_ns=now_ns)
        words = "" if seen.consistent else f"numbers may not fit together: written {seen.label}"
        return Reading(sections, "ok" if seen.consistent else "torn", words, mono_ns=now_ns)

    def close(self) -> None:
        """Nothing is held open."""


class WrittenThen:
    """A clock that stands at the moment when a file was last changed, also for subtraction. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._ns = os.stat(path).st_mtime_ns

    def mono_ns(self) -> int:
        return self._ns

    def wall_ns(self) -> int:
        return self._ns


def is_core(path: str) -> bool:
    """By its first bytes. Raises OSError."""
    magic, place, kind = _IDENT_AND_TYPE
    with open(path, "rb") as file:
        head = file.read(place + len(kind))
    return head.startswith(magic) and head[place:] == kind
