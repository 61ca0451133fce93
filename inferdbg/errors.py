"""The one error that a person is meant to read: what happened, with the value, and what to type next."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    UNREACHABLE = 3
    NOTHING_CHECKED = 4
    BUG = 70  # our own: EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130
    BROKEN_PIPE = 141  # the reader of our output went away: 128 + SIGPIPE, as other tools end


class InferdbgError(Exception):
    """Says what happened and what to type next.

    The command line prints ``message``, then ``hint`` on a line of its own, and exits with ``code``.
    """

    def __init__(self, message: str, hint: str = "", code: Exit = Exit.UNREACHABLE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
