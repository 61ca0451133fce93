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

    @property
    def has_screen(self) -> bool:
        """Whether data goes to a terminal that can be drawn on."""
        return self.data.isatty() and os.environ.get("TERM") not in (None, "", "dumb")

    def show(self, words: str) -> None:
        """Data, with a newline. Raises BrokenPipeError at once when nobody reads any more."""
        self.data.write(words)
        self.data.write(
            "\n"
        )  # on its own: under PYTHONUNBUFFERED a write that is cut short by a reader's end says nothing
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
        controls; a line break in ``hint`` stays one. Never raises: the error's own exit code stands, read or not."""
        try:
            self.say(f"{self._marked('error:', _RED + _BOLD)} {text.safe(message)}")
            for line in hint.splitlines():
                self.say(f"  {text.safe(line)}")
        except OSError:
            reader_gone()

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
    """The process's own streams; what they cannot spell becomes ``?`` and is no error. One that was closed before we
    began leads nowhere, and its number is taken, so that no file we open gets it."""
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            _lead_nowhere(number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115  for as long as we run
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    return Output(sys.stdout, sys.stderr, colour)


def reader_gone() -> None:
    """After a BrokenPipeError: what is still buffered for a stream that nobody reads goes nowhere, and the
    interpreter's end says nothing of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _lead_nowhere(stream.fileno())


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
