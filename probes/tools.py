"""Runs another program that looks at a process, with a deadline that holds whatever hangs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

_DYING_S = 2.0


class Unread(Exception):
    """A tool showed nothing. ``why`` and ``cure``: lines for people."""

    def __init__(self, why: str, cure: str = "") -> None:
        super().__init__(why)
        self.why, self.cure = why, cure


class Done(NamedTuple):
    code: int
    out: bytes
    err: bytes


def program(name: str) -> str | None:
    """Where it is: beside our own Python first."""
    return shutil.which(name, path=os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))))


def run(name: str, argv: Sequence[str], seconds: float) -> Done:
    """Raises Unread where it is not there or does not end in time. It is asked to end first (a debugger lets go of its
    target then), killed next; one that not even that ends, for it hangs in the kernel, is left behind."""
    path = program(name)
    if path is None:
        raise Unread(f"{name} is not installed")
    try:
        process = subprocess.Popen(
            [path, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise Unread(f"{name} cannot be started: {error.strerror}") from None
    try:
        out, err = process.communicate(timeout=seconds)
        return Done(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        raise Unread(f"{name} did not finish within {seconds:.0f} s") from None
    finally:
        if process.poll() is None:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    for ask in (process.terminate, process.kill):
        ask()
        try:
            process.communicate(timeout=_DYING_S)
            return
        except subprocess.TimeoutExpired:
            continue
