"""The collector's end of a disposable child: asks, takes answers without ever waiting for them, kills and replaces."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from dataclasses import fields, is_dataclass

import msgspec

from .probe import Probe
from .wire import MAX_MESSAGE_BYTES, Answer, Ask, packed, unpacked


class ChildDied(Exception):
    """The child is gone, or talks nonsense; the text says how."""


class Child:
    """One process that reads one probe."""

    def __init__(self, probe: Probe) -> None:
        kind = type(probe)
        arguments = ["inferdbg.collect.isolated", kind.__module__, kind.__qualname__, _plain(probe)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", *arguments],  # -P: the folder one stands in may hold anything
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if os.path.isabs(path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal is for us
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        os.set_blocking(self._from.fileno(), False)
        self._received = bytearray()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, now_ns: int) -> None:
        """ChildDied when it is not there any more."""
        try:
            self._to.write(packed(Ask(now_ns)))
        except BrokenPipeError:
            raise ChildDied(self._end()) from None

    def take(self, patience_ns: int = 0) -> Answer | None:
        """Its answer, if it comes within ``patience_ns``. ChildDied when none will ever come."""
        ready, _, _ = select.select([self._from], [], [], patience_ns / 1e9)
        while ready:
            try:
                chunk = os.read(self._from.fileno(), 1 << 20)
            except BlockingIOError:
                return None
            if not chunk:
                raise ChildDied(self._end())
            self._received += chunk
            try:
                message = unpacked(self._received)
                if message is not None:
                    self._received.clear()
                    return msgspec.msgpack.decode(message, type=Answer)
            except (ValueError, msgspec.DecodeError) as error:
                raise ChildDied(f"its reader talks nonsense: {error}") from None
            if len(self._received) > MAX_MESSAGE_BYTES + 4:
                raise ChildDied(f"its reader sent more than {MAX_MESSAGE_BYTES} bytes")
        return None

    def kill(self) -> None:
        """Sends SIGKILL and does not wait: a process that sleeps in the kernel dies when the kernel lets it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._to.close()
        self._from.close()

    def gone(self) -> bool:
        """Whether it has ended; takes its remains away."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """A moment's patience with one that was killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)

    def _end(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.05)
        code = self._process.returncode
        if code is None:
            return "its reader closed its output"
        if code < 0:
            return f"its reader was killed by signal {-code} ({_signal_name(-code)})"
        return f"its reader ended with exit code {code}"


def _plain(probe: Probe) -> str:
    """The fields of a probe, from which the child makes its own."""
    if not is_dataclass(probe):
        raise TypeError(f"{type(probe).__name__} is isolated, so it must be a dataclass of plain fields")
    return msgspec.json.encode(
        {field.name: getattr(probe, field.name) for field in fields(probe) if field.init}
    ).decode()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "?"
