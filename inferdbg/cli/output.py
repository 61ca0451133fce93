"""The only file that writes: data to stdout, words for people to stderr."""

import os
import sys
from dataclasses import dataclass, field
from typing import TextIO

from inferdbg import text

_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"


@dataclass
class Output:
    """``colour``: only words on a terminal are coloured, data never is."""

    data: TextIO
    people: TextIO
    colour: bool = True
    _progress_width: int = field(default=0, init=False)

    def show(self, words: str) -> None:
        """Data, with a newline. Raises BrokenPipeError at once when nobody reads any more."""
        self.data.write(words + "\n")
        self.data.flush()

    def show_json(self, value: object) -> None:
        """One JSON value on one line; Structs as objects, bytes as base64."""
        import msgspec

        self.show(msgspec.json.encode(value).decode())

    def say(self, words: str) -> None:
        """A line for people."""
        self._end_progress()
        self.people.write(words + "\n")
        self.people.flush()

    def complain(self, message: str, hint: str = "") -> None:
        """What went wrong, and on a line of its own what to type next. Foreign text in it cannot reach the terminal's
        controls; a line break in ``hint`` stays one."""
        self.say(f"{self._marked('error:', _RED + _BOLD)} {text.safe(message)}")
        for line in hint.splitlines():
            self.say(f"  {text.safe(line)}")

    def progress(self, words: str) -> None:
        """Replaces the last such line on a terminal; says nothing elsewhere, so that logs stay short."""
        if self.people.isatty():
            self.people.write("\r" + words.ljust(self._progress_width))
            self._progress_width = len(words)
            self.people.flush()

    def _end_progress(self) -> None:
        if self._progress_width:
            self.people.write("\n")
            self._progress_width = 0

    def _marked(self, words: str, style: str) -> str:
        return f"{style}{words}{_PLAIN}" if self.colour and self.people.isatty() else words


def standard(*, colour: bool) -> Output:
    """The process's own streams; what they cannot spell becomes ``?`` and is no error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    return Output(sys.stdout, sys.stderr, colour)


def reader_gone() -> None:
    """After a BrokenPipeError: what is still buffered goes nowhere, and the interpreter's end says nothing of it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
