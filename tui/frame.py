"""What one picture is drawn from: a Window, what the rules say of it, and where in time it stands."""

from typing import Literal

from msgspec import Struct

from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.window import Window

Mode = Literal["live", "paused", "playing", "fixed"]
"""``live``: follows the last moment. ``paused``: holds a moment. ``playing``: a recording runs. ``fixed``: there is
only one moment to see."""


class Frame(Struct, frozen=True):
    """``span`` is the first and last moment that can be shown, in mono_ns. ``problem`` and ``hint`` are set when the
    source could not be read this time: then the Window is the last good one; or when something ails the source."""

    window: Window
    findings: tuple[Finding, ...]
    mode: Mode
    live_source: bool
    title: str
    span: tuple[int, int]
    problem: str = ""
    hint: str = ""

    @property
    def behind_ns(self) -> int:
        """How far the shown moment lies before the last one."""
        return max(0, self.span[1] - self.window.now.mono_ns)
