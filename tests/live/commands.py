"""Runs inferdbg as a person does: real processes, with a deadline each."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

INFERDBG = (sys.executable, "-m", "inferdbg")
DEADLINE_S = 60.0


@dataclass
class Done:
    code: int
    out: str
    err: str


def inferdbg(*argv: str) -> Done:
    """Runs a verb to its end."""
    done = subprocess.run([*INFERDBG, *argv], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass
class Serving:
    process: "subprocess.Popen[str]"
    url: str
    pid: int
    box: str

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)


@contextlib.contextmanager
def serving(folder: Path, *argv: str) -> Iterator[Serving]:
    """A tiny model behind HTTP, with its box in ``folder``."""
    process = subprocess.Popen(
        [*INFERDBG, "serve", "tiny", "--port", "0", "--json", "--blackbox-dir", str(folder), "--drain", "0s", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        said = json.loads(line)
        yield Serving(process, said["url"], said["pid"], said["box"])
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def traffic(url: str, *argv: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A few clients in a closed loop, until the end of the block."""
    process = subprocess.Popen(
        [*INFERDBG, "load", url, "--mix", "batch", "--concurrency", "3", *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def eventually(look: Callable[[], Done], holds: Callable[[Done], bool]) -> Done:
    """Looks until it holds; fails with the last look after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        done = look()
        if holds(done):
            return done
        assert time.monotonic() < deadline, done
        time.sleep(0.1)
