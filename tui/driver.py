"""The terminal as Textual drives it, but for a thread that slept a tenth of a second and looked for keys, for ever."""

import os
import select
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import TextIO

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_TYPING_S, _IDLE_S = 0.1, 1.0
_TYPING = 20
"""Empty looks until nobody types any more."""


class _Terminal:
    """What is written to a terminal that is gone is lost. The thread that writes must not end by it: the screen would
    wait for ever for room in its queue."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.fileno = file.fileno
        self.isatty = file.isatty

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


class Driver(LinuxDriver):
    """On a virtual machine each time that a thread wakes up costs a quarter of a millisecond. Keys wake it at once."""

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert self._file is not None
        self._file = _Terminal(self._file)  # type: ignore[assignment]  # all that is asked of it

    def run_input_thread(self) -> None:
        """Until ``exit_event``, which it sees a second late when the end does not come from a key."""
        parser = XTermParser(self._debug)
        try:
            self._read_keys(parser)
        finally:
            list(parser.feed(""))  # a cache keeps it, its last key and with that the whole screen

    def _read_keys(self, parser: XTermParser) -> None:
        decode = getincrementaldecoder("utf-8")("replace").decode
        typing = _TYPING
        while not self.exit_event.is_set():
            if select.select([self.fileno], [], [], _TYPING_S if typing else _IDLE_S)[0]:
                typing = _TYPING
                try:
                    written = os.read(self.fileno, 4096)
                except OSError:
                    written = b""
                if not written:
                    return  # the terminal is gone, and the screen will find out
                text = decode(written)
                for message in parser.feed(text) if text else ():  # the first half of a character
                    self.process_message(message)
            elif typing:
                typing -= 1
            for message in parser.tick():  # an escape that nothing followed is a key
                self.process_message(message)
