"""A fake scheduler with the plug-in on it, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferdbg.blackbox.reader import Box
from inferdbg.blackbox.writer import BlackBox
from inferdbg.probes.engine_box import EngineBox
from inferdbg.probes.vllm_plugin.hooking import Foreign
from inferdbg.probes.vllm_plugin.watcher import Watcher

from . import fakes


class Watched:
    """``said``: what people were told."""

    def __init__(self, folder: Path, scheduler: Foreign) -> None:
        self.scheduler = scheduler
        self.said: list[str] = []
        self.made: list[BlackBox] = []
        self.watcher = Watcher(scheduler, lambda columns: self._make(folder, columns), self.said.append)
        self.box = self.made[0]
        self.width = self.watcher._requests._width

    def _make(self, folder: Path, columns: Foreign) -> BlackBox:
        self.made.append(BlackBox.create(str(folder), columns))
        return self.made[-1]

    def add(self, name: str, prompt: int = 8, outputs: int = 8, family: int = 0) -> Foreign:
        request = fakes.Request(name, prompt, outputs, family)
        self.scheduler.add_request(request)
        return request

    def step(self) -> Foreign:
        output = self.scheduler.schedule()
        self.scheduler.update_from_output(output)
        return output

    def sections(self) -> dict[str, Foreign]:
        """What inferdbg reads of the box. Closing it gives up the lock of this very process: tests may, engines not."""
        probe = EngineBox(self.box.path, whole=True)
        try:
            return dict(probe.read(1 << 62).sections)
        finally:
            probe.close()

    def events(self) -> list[Foreign]:
        return list(self.sections()["events"].items)

    def facts(self) -> bytes:
        box = Box.open(self.box.path)
        try:
            return box.facts() or b""
        finally:
            box.close()


@contextmanager
def watched(folder: Path, scheduler: Foreign = None, **sizes: int) -> Iterator[Watched]:
    one = Watched(folder, scheduler if scheduler is not None else fakes.Scheduler(**sizes))
    try:
        yield one
    finally:
        one.watcher._over.set()
        one.watcher._thread.join()
