"""Where a screen gets its Windows from: live, a recording or a dead engine's box all look like this."""

from typing import Protocol

from inferdbg.errors import InferdbgError
from inferdbg.facts.window import Window


class Source(Protocol):
    """A stretch of time of one target. All times are mono_ns of the target's host.

    Times come in, so that a screen needs no clock of its own; a source that is not live never changes.
    """

    @property
    def live(self) -> bool:
        """New moments still arrive."""

    @property
    def title(self) -> str:
        """What a person calls it: ``pid 58``, ``run.idbg``."""

    @property
    def problem(self) -> InferdbgError | None:
        """What ails the source itself, or what it showed last: not recorded any more, damaged, cut off."""

    def advance(self) -> bool:
        """Takes in what is new; true when ``span`` grew. May take as long as the slowest probe's deadline, so a
        screen calls it on a worker thread."""

    def span(self) -> tuple[int, int]:
        """First and last moment that can be shown. ``advance`` was called at least once."""

    def window(self, at_ns: int | None = None) -> Window:
        """What was known at ``at_ns`` (None: the last moment), with whole block columns in ``now``."""

    def close(self) -> None: ...
