"""The Python stacks of a server's processes, by py-spy, which reads them from outside and stops nobody."""

import os
import re
import time
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from inferdbg import text
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.stacks import Call, ProcessStacks, ThreadStack
from inferdbg.facts.sections.stacks import Stacks as Section

from .rights import denied_memory
from .thread_files import MOST_THREADS, read_threads, with_kernel
from .tools import Unread, program, run

MOST_CALLS = 64
_TRIES = 3
"""A stack that moves while it is read cannot always be walked."""
_ONE_S, _ALL_S = 3.0, 8.0
_LONGEST = 300
"""Characters of a name: templates of C++ have thousands."""
_ADDRESS = re.compile(r"0x[0-9a-f]+")
"""A native call without a symbol: as gdb, we call it ``??``."""
NO_PYTHON = "it runs no Python that py-spy knows"
_SAYS_SO = ("find a python interpreter", "find python version", "not a python", "no python")


@dataclass
class Stacks:
    """``pids``: the processes that are looked at, with their ``roles`` ("": not known)."""

    pids: tuple[int, ...]
    roles: tuple[str, ...]

    name = "stacks"
    sections = ("stacks",)
    cadence_ns = 2 * SECOND
    deadline_ns = 10 * SECOND
    isolated = True

    def read(self, now_ns: int) -> Reading:
        if program("py-spy") is None:
            return Reading({}, "absent", "py-spy is not installed", "pip install py-spy")
        end = time.monotonic() + _ALL_S
        found = tuple(
            _look(pid, role or None, min(_ONE_S, end - time.monotonic()))
            for pid, role in zip(self.pids, self.roles, strict=True)
        )
        section = {"stacks": Section(Origin(self.name, now_ns), found)}
        silent = next((one for one in found if one.why), None)
        if silent is None:
            return Reading(section)
        message = f"{silent.role or 'process'} {silent.pid}: {silent.why}"
        if any(one.threads for one in found):
            return Reading(section, message=message)
        denied = next((no for one in found if exists(one.pid) and (no := denied_memory(one.pid)) is not None), None)
        if denied is not None:
            return Reading({}, "denied", denied.why, denied.cure)
        return Reading({}, "absent" if silent.why == NO_PYTHON else "failed", message)

    def close(self) -> None:
        """Nothing is held open."""


def _look(pid: int, role: str | None, seconds: float) -> ProcessStacks:
    """Within so many seconds."""
    try:
        if exists(pid) and (denied := denied_memory(pid)) is not None:
            raise Unread(denied.why, denied.cure)
        threads = py_spy(pid, seconds)
        return ProcessStacks(pid, role, with_kernel(threads, read_threads(pid)), tool="py-spy")
    except Unread as refusal:
        return ProcessStacks(pid, role, why=refusal.why)


def py_spy(pid: int, seconds: float, *, stop: bool = False, native: bool = False) -> tuple[ThreadStack, ...]:
    """Without a stop, unless it is asked for; ``native`` calls cannot be had without. Raises Unread."""
    argv = ["dump", "--json", "--pid", str(pid), *(["--native"] if native else [] if stop else ["--nonblocking"])]
    why, end = "the processes before it took all the time", time.monotonic() + seconds
    for _ in range(_TRIES):
        left_s = end - time.monotonic()
        if left_s <= 0 or not exists(pid):
            break
        done = run("py-spy", argv, left_s)
        if done.code == 0:
            try:
                return parse(done.out)
            except msgspec.DecodeError as error:
                why = f"py-spy's answer is no list of stacks: {text.safe(str(error))}"
                continue
        why = refusal(done.err.decode("utf-8", "replace"))
        if why == NO_PYTHON:
            break
    raise Unread(why if exists(pid) else "it has ended")


def exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Frame(Struct):
    """As py-spy 0.4 writes it; other fields are passed over. ``module``: the library of a native call."""

    name: str
    filename: str
    short_filename: str | None = None
    module: str | None = None
    line: _Number = 0


class _Thread(Struct):
    thread_name: str | None = None
    os_thread_id: _Number | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[_Frame] = []


_threads = msgspec.json.Decoder(list[_Thread])


def parse(encoded: bytes) -> tuple[ThreadStack, ...]:
    """What ``py-spy dump --json`` prints, innermost calls first. msgspec.DecodeError where it is not that."""
    return tuple(
        ThreadStack(
            text.safe(thread.thread_name or ""),
            thread.os_thread_id,
            tuple(
                Call(
                    "??" if _ADDRESS.fullmatch(frame.name) else text.safe(frame.name, _LONGEST),
                    text.safe(frame.short_filename or frame.filename, _LONGEST),
                    frame.line,
                    frame.module is not None,
                )
                for frame in thread.frames[:MOST_CALLS]
            ),
            thread.active,
            thread.owns_gil,
        )
        for thread in _threads.decode(encoded)[:MOST_THREADS]
    )


def refusal(said: str) -> str:
    """py-spy's own words in one line, or what they mean."""
    if any(words in said.lower() for words in _SAYS_SO):
        return NO_PYTHON
    words = " ".join(text.safe(said.partition("Stack backtrace")[0]).split())
    return words.removeprefix("Error: ")[:200] or "py-spy failed and does not say why"
