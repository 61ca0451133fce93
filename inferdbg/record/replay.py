"""A recording as a Source: the same Windows as when it was live."""

from pathlib import Path

from inferdbg import text
from inferdbg.errors import InferdbgError
from inferdbg.facts.window import Window

from .past import Past
from .reader import Recording


class ReplaySource:
    """InferdbgError when nothing of the recording can be read."""

    live = False

    def __init__(self, path: str | Path) -> None:
        self.recording = Recording(path)
        self._past = Past(self.recording)
        self._seen = False
        self.problem: InferdbgError | None = None

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
        """Of a damaged stretch the nearest moment that can be read; ``problem`` says so then."""
        last_ns = self.span()[1]
        at_ns = last_ns if at_ns is None else at_ns
        window = self._past.window(at_ns)
        wall_minus_mono = window.now.wall_ns - window.now.mono_ns
        self.problem = self._past.lacking
        for before_ns, after_ns in self.recording.lost:
            if before_ns < at_ns < after_ns:
                start, end = (text.clock(wall_minus_mono + ns) for ns in (before_ns, after_ns))
                self.problem = InferdbgError(f"what was recorded between {start} and {end} is damaged")
        if self.problem is None and self.recording.torn and at_ns >= last_ns:
            self.problem = InferdbgError(
                f"{self.title} is cut off here: its recorder was killed, ran out of disk, or is still writing"
            )
        return window

    def close(self) -> None:
        self.recording.close()
