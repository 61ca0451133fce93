"""SIGINT, SIGTERM and SIGHUP as something to wait for, so that a verb ends in order.

Not a threading.Event set by the handler: that runs on the very thread that waits, and would wait for its own lock.
"""

import os
import select
import signal
import threading
from types import FrameType


def interrupted_by_signals() -> None:
    """Any of them ends a screen in order and the verb with code 130; without it asyncio would take SIGINT for a quit,
    and the others would leave the terminal as the screen had it."""
    for number in _asked_to_end():
        signal.signal(number, _interrupt)


class Ending:
    """Takes the signals over from where it is made, on the main thread."""

    def __init__(self) -> None:
        self._told, self._tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in _asked_to_end():
            signal.signal(number, self._noted)

    def wait(self, timeout_s: float | None) -> bool:
        """True as soon as one has come, now or before."""
        return bool(select.select([self._told], [], [], timeout_s)[0])

    def event(self) -> threading.Event:
        """Set by a thread of its own when one comes."""
        event = threading.Event()

        def watch() -> None:
            self.wait(None)
            event.set()

        threading.Thread(target=watch, name="ending", daemon=True).start()
        return event

    def _noted(self, number: int, frame: FrameType | None) -> None:
        try:
            os.write(self._tell, b"\0")
        except BlockingIOError:  # told often enough
            return


def _asked_to_end() -> tuple[signal.Signals, ...]:
    """A hangup that is ignored stays so: that is what nohup is for."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
