"""Cuts text at the first stop string, also where it spreads over several tokens."""

from __future__ import annotations

from collections.abc import Iterable


class StopStrings:
    """Give it text with ``push`` until ``hit``. Text that may be the start of a stop string is held back until it is
    clear; the stop string itself never comes out. ``found``: which one it was."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None

    @property
    def hit(self) -> bool:
        return self.found is not None

    def push(self, text: str) -> str:
        """The text that is certain to be output. After a hit: what stood before the stop string, then nothing more."""
        if self.hit:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        places = [(place, -len(stop), stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            place, _, self.found = min(places)  # the first; of two at one place the longer
            self._held = ""
            return text[:place]
        certain = len(text) - max(_overlap(text, stop) for stop in self._stops)
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
