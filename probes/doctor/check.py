"""What a check found, and where it looks."""

import contextlib
import os
import signal
import subprocess
from typing import Literal

from msgspec import Struct

from inferdbg import text

from ..processes import read_file

Result = Literal["ok", "warn", "fail", "unknown"]
MOST_SAID = 1 << 16


class Check(Struct, frozen=True):
    """``id``: stable, for programs. ``result``: fail where evidence will be missing, warn where some may be, or where
    looking costs more than it has to; unknown where it could not be tried, ``found`` says why. ``why``: it matters.
    ``cure``: a line to type; empty where nothing is to do."""

    id: str
    result: Result
    found: str
    why: str
    cure: str = ""


class Place(Struct, frozen=True):
    """``root``: of the file system, another one in tests. ``pids``: processes of the target, the first one its own;
    none where nothing was named. ``box_folder``: where black boxes lie. ``uid``: whose login it is about."""

    root: str = "/"
    pids: tuple[int, ...] = ()
    box_folder: str = "/dev/shm"
    uid: int = 0

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def read(self, name: str) -> str | None:
        """The first 64 KiB of a file; None where it may not be read or is not there."""
        found = read_file(self.path(name))
        return None if found is None else found.decode("utf-8", "replace")

    def number(self, name: str) -> int | None:
        found = (self.read(name) or "").split()
        return int(found[0]) if found and found[0].lstrip("-").isdigit() else None


def said_by(argv: list[str], *, seconds: float = 5.0) -> str | None:
    """What a program prints within so many seconds; None where it fails or does not answer: a driver that hangs keeps
    whoever asks it, so it is left behind."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel dies when that lets it
            process.wait(1.0)
        return None
    return said[:MOST_SAID].decode("utf-8", "replace") if process.returncode == 0 else None


def first_line(said: str | None) -> str:
    return text.safe((said or "").strip().partition("\n")[0], 120)
