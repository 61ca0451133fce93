"""The Python stacks of a server's processes, by py-spy, which reads them from outside and stops nobody."""

import os
import shutil
import subprocess
import sys
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

MOST_CALLS = 64
_MOST_THREADS = 512
_TRIES = 3
"""A stack that moves while it is read cannot always be walked."""
_ONE_S, _ALL_S = 3.0, 8.0
_NO_PYTHON = "it runs no Python that py-spy knows"
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
        program = _program()
        if program is None:
            return Reading({}, "absent", "py-spy is not installed", "pip install py-spy")
        end = time.monotonic() + _ALL_S
        found = tuple(
            _look(program, pid, role or None, min(_ONE_S, end - time.monotonic()))
            for pid, role in zip(self.pids, self.roles, strict=True)
        )
        section = {"stacks": Section(Origin(self.name, now_ns), found)}
        silent = next((one for one in found if one.why), None)
        if silent is None:
            return Reading(section)
        message = f"{silent.role or 'process'} {silent.pid}: {silent.why}"
        if any(one.threads for one in found):
            return Reading(section, message=message)
        denied = next((no for one in found if _exists(one.pid) and (no := denied_memory(one.pid)) is not None), None)
        if denied is not None:
            return Reading({}, "denied", denied.why, denied.cure)
        return Reading({}, "absent" if silent.why == _NO_PYTHON else "failed", message)

    def close(self) -> None:
        """Nothing is held open."""


def _program() -> str | None:
    """Beside our own Python first."""
    return shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))))


def _look(program: str, pid: int, role: str | None, seconds: float) -> ProcessStacks:
    """Within so many seconds."""
    if not _exists(pid):
        return ProcessStacks(pid, role, why="it has ended")
    denied = denied_memory(pid)
    if denied is not None:
        return ProcessStacks(pid, role, why=denied.why)
    why, end = "the processes before it took all the time", time.monotonic() + seconds
    for _ in range(_TRIES):
        left_s = end - time.monotonic()
        if left_s <= 0:
            break
        try:
            done = subprocess.run(
                [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=left_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ProcessStacks(pid, role, why=f"py-spy did not finish within {seconds:.0f} s")
        except OSError as error:
            return ProcessStacks(pid, role, why=f"py-spy cannot be started: {error.strerror}")
        if done.returncode == 0:
            try:
                return ProcessStacks(pid, role, parse(done.stdout))
            except msgspec.DecodeError as error:
                why = f"py-spy's answer is no list of stacks: {text.safe(str(error))}"
                continue
        why = refusal(done.stderr.decode("utf-8", "replace"))
        if why == _NO_PYTHON or not _exists(pid):
            break
    return ProcessStacks(pid, role, why=why if _exists(pid) else "it has ended")


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Frame(Struct):
    """As py-spy 0.4 writes it; other fields are passed over."""

    name: str
    filename: str
    short_filename: str | None = None
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
                Call(text.safe(frame.name), text.safe(frame.short_filename or frame.filename), frame.line)
                for frame in thread.frames[:MOST_CALLS]
            ),
            thread.active,
            thread.owns_gil,
        )
        for thread in _threads.decode(encoded)[:_MOST_THREADS]
    )


def refusal(said: str) -> str:
    """py-spy's own words in one line, or what they mean."""
    if any(words in said.lower() for words in _SAYS_SO):
        return _NO_PYTHON
    words = " ".join(text.safe(said.partition("Stack backtrace")[0]).split())
    return words.removeprefix("Error: ")[:200] or "py-spy failed and does not say why"
