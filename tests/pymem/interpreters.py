"""Every CPython that can be found here, and programs that run under them."""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from inferdbg.probes.pymem.frames import local_variables, threads
from inferdbg.probes.pymem.opening import open_process
from inferdbg.probes.pymem.reader import Reader

from .trees import Tree

SUPPORTED = [(3, minor) for minor in range(10, 15)]
TARGET = Path(__file__).parents[2] / "fixtures" / "pymem" / "target.py"
_NAME = re.compile(r"python3(\.\d+)?$")
_ASK = (
    "import sys; maps = open('/proc/self/maps').read(); "
    "print(*sys.version_info[:2], sys.implementation.name, int('/libpython' in maps))"
)


class Interpreter(NamedTuple):
    version: tuple[int, int]
    path: str


@functools.cache
def interpreters() -> dict[str, Interpreter]:
    """By version and kind, one each: with a libpython, or static, all in one file. Those that INFERDBG_PYTHONS names
    (paths with : between), this one, then those of PATH and of pyenv."""
    found: dict[str, Interpreter] = {}
    for path in _candidates():
        try:
            said = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=20, check=True).stdout
            major, minor, implementation, shared = said.split()
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        version = (int(major), int(minor))
        if implementation == "cpython" and version in SUPPORTED:
            name = f"{major}.{minor}{'' if shared == '1' else '-static'}"
            found.setdefault(name, Interpreter(version, path))
    return dict(sorted(found.items(), key=lambda item: item[1].version))


def _candidates() -> list[str]:
    named = [path for path in os.environ.get("INFERDBG_PYTHONS", "").split(":") if path]
    found = [*named, sys.executable]
    for folder in os.environ.get("PATH", "").split(":"):
        if Path(folder).name == "shims":
            found += sorted(map(str, Path(folder).parent.glob("versions/3.*/bin/python3.[0-9][0-9]")))
        elif folder:
            found += sorted(str(path) for path in Path(folder).glob("python3*") if _NAME.fullmatch(path.name))
    return found


def each_interpreter() -> list[object]:
    """For parametrize: those found, and a skipped one for each version that was not."""
    found = interpreters()
    have = {one.version for one in found.values()}
    missing = [f"{major}.{minor}" for major, minor in SUPPORTED if (major, minor) not in have]
    why = "no CPython {} in PATH or INFERDBG_PYTHONS"
    return [
        *(pytest.param(one, id=name) for name, one in found.items()),
        *(pytest.param(None, id=name, marks=pytest.mark.skip(why.format(name))) for name in missing),
    ]


class Held:
    """A running target."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.pid = process.pid

    def hold(self, tree: Tree) -> None:
        """Has it build and hold a tree."""
        self.say(json.dumps(tree))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n"


@contextlib.contextmanager
def held(interpreter: str) -> Iterator[Held]:
    process = subprocess.Popen([interpreter, str(TARGET)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Held(process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@contextlib.contextmanager
def reading(pid: int) -> Iterator[Reader]:
    reader = open_process(pid)
    try:
        yield reader
    finally:
        reader.close()


def local(reader: Reader, name: str, function: str = "hold") -> int:
    """Address of what a local variable of the target holds."""
    for thread in threads(reader):
        frame = thread.frame(function)
        if frame is not None:
            return local_variables(reader, frame)[name]
    raise LookupError(f"no call of {function}")
