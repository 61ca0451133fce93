"""A small engine under synthetic traffic, in child processes that end with us whatever happens to us."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import IO

import msgspec

from inferdbg.errors import InferdbgError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PATIENCE_S = 5.0


class Serving(msgspec.Struct, frozen=True):
    """The line that `inferdbg serve --json` writes when it is ready."""

    url: str
    pid: int
    model: str
    box: str | None = None


class Demo:
    """``with Demo(arguments of serve) as serving:`` starts engine and traffic and takes both down at the end.

    Start it on the main thread: the children ask the kernel for a SIGTERM when the thread that made them ends.
    """

    def __init__(self, serve: tuple[str, ...], load: tuple[str, ...]) -> None:
        self._serve = serve
        self._load = load
        self._children: list[subprocess.Popen[bytes]] = []
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Serving:
        """Raises InferdbgError with the engine's own words when it does not start."""
        self._log = tempfile.TemporaryFile()
        try:
            engine = self._start("serve", *self._serve, "--port", "0", "--drain", "0s", "--json")
            assert engine.stdout is not None
            line = engine.stdout.readline()
            if not line:
                engine.wait()
                raise InferdbgError("the demo's engine did not start", self._last_words())
            serving = msgspec.json.decode(line, type=Serving)
            self._start("load", serving.url, *self._load)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return serving

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The traffic first, so that no request is in flight when the engine goes, and its box with it."""
        for child in reversed(self._children):
            child.terminate()
            try:
                child.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()
        if self._log is not None:
            self._log.close()

    def _start(self, *argv: str) -> "subprocess.Popen[bytes]":
        assert self._log is not None
        child = subprocess.Popen(
            [sys.executable, "-m", "inferdbg", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if argv[0] == "serve" else subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,  # the terminal's Ctrl-C is for us alone
            preexec_fn=_ends_with(os.getpid()),
        )
        self._children.append(child)
        return child

    def _last_words(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read(1 << 16).decode("utf-8", "replace").strip().removeprefix("error: ")


def _ends_with(parent: int) -> Callable[[], None]:
    """Run in the child before its program: asks for SIGTERM at our end, and ends when that has come already."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask
