"""A recording as a Source: the same Windows as when it was live."""

from pathlib import Path

from inferdbg.facts.window import Window

from .past import Past
from .reader import Recording


class ReplaySource:
    """InferdbgError when the recording cannot be read. ``recording.lost`` and ``recording.torn`` say what it lacks."""

    live = False

    def __init__(self, path: str | Path) -> None:
        self.recording = Recording(path)
        self._past = Past(self.recording)
        self._seen = False

    @property
    def title(self) -> str:
        return Path(self.recording.path).name

    def advance(self) -> bool:
        """True once: then everything is there."""
        first, self._seen = not self._seen, True
        return first

    def span(self) -> tuple[int, int]:
        return self._past.span()

    def window(self, at_ns: int | None = None) -> Window:
        """InferdbgError when that moment lies in a damaged stretch."""
        return self._past.window(self.span()[1] if at_ns is None else at_ns)

    def close(self) -> None:
        self.recording.close()
