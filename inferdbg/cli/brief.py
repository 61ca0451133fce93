"""A few looks at an engine, without a memory to scrub in: what one snapshot as text or JSON needs, and no more."""

from typing import TYPE_CHECKING

from inferdbg.facts.window import SECOND, Window, lightened

if TYPE_CHECKING:
    from inferdbg.collect.collector import Collector
    from inferdbg.errors import InferdbgError
    from inferdbg.facts.snapshot import Snapshot


_PATIENCE_NS = 3 * SECOND
"""With a probe in a child, which is one whose answer may never come: what comes later is not seen."""


class BriefSource:
    """A Source that imports neither the recording's codec nor numpy. Every look is kept: for a handful of them."""

    def __init__(self, collector: "Collector", *, live: bool) -> None:
        self.live = live
        self.problem: InferdbgError | None = None
        self._collector = collector
        self._snapshots: list[Snapshot] = []

    @property
    def title(self) -> str:
        return self._collector.target.name

    def advance(self) -> bool:
        if self._snapshots:
            self._snapshots[-1] = lightened(self._snapshots[-1])
        self._snapshots.append(self._collector.round(_PATIENCE_NS))
        return True

    def span(self) -> tuple[int, int]:
        return self._snapshots[0].mono_ns, self._snapshots[-1].mono_ns

    def window(self, at_ns: int | None = None) -> Window:
        """Only the last moment can be shown."""
        return Window(self._snapshots)

    def close(self) -> None:
        self._collector.close()
