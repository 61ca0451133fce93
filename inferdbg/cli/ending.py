"""SIGINT and SIGTERM as something to wait for, so that a verb ends in order.

Not a threading.Event set by the handler: that runs on the very thread that waits, and would wait for its own lock.
"""

import os
import select
import signal
import threading
from types import FrameType


class Ending:
    """Takes both signals over from where it is made, on the main thread."""

    def __init__(self) -> None:
        self._told, self._tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGINT, signal.SIGTERM):
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
