"""An engine's own objects, read from outside, whichever process holds them: one that starts, or one that follows.

A server that was looked at while it started has no engine core yet; one that is restarted on its port gets another.
Both are waited for, and read as soon as they are there.
"""

import contextlib
import importlib
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError

from .process_table import parse_stat
from .processes import read_file
from .servers import Place, discover_servers

MAPPED = {
    "vllm": ("vllm_memory", "VllmMemory"),
    "sglang": ("sglang_memory", "SglangMemory"),
}
"""Engines whose objects we have a map of."""
_LOOK_NS = 2 * SECOND


class CoreMemory(Protocol):
    """What reads one engine core, and knows which request number comes next."""

    @property
    def upcoming(self) -> int: ...

    def read(self, now_ns: int) -> Reading: ...

    def close(self) -> None: ...


@dataclass
class FollowedMemory:
    """``core_pid``: the process of the engine core, None where there is none yet; ``front_pid``: of the front end.
    ``port``: where the server answers, or will: by it a successor is known. ``rank``: which of its engine cores
    (``DP1``), where it has several.

    Raises InferdbgError where their memory may not be read, the core has ended, or is nothing that we know.
    """

    engine: str
    core_pid: int | None
    front_pid: int | None = None
    port: int | None = None
    rank: str | None = None
    proc: str = "/proc"

    name = "memory"
    sections = ("server", "pulse", "scheduler", "requests", "kvcache", "steps", "events", "wiring")
    cadence_ns = SECOND // 4
    deadline_ns = 5 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._core: CoreMemory | None = None
        self._started: int | None = None
        self._looked_ns: int | None = None
        self._upcoming = 1
        self._meet()

    def read(self, now_ns: int) -> Reading:
        if self.core_pid is None or not self._is_there(self.core_pid):
            self._let_go()
            if not self._found(now_ns):
                return self._without(now_ns)
        assert self.core_pid is not None
        if self._core is None:
            module, name = MAPPED[self.engine]
            made = getattr(importlib.import_module(f".{module}", __package__), name)
            self._core = made(self.core_pid, self.front_pid, self._upcoming)
        assert self._core is not None
        return replace(self._core.read(now_ns), life=self._life)

    def close(self) -> None:
        self._let_go()

    def _meet(self) -> None:
        """Where this server stands and which it is: to be known before it ends."""
        self._life: int | None = None
        self._place = Place.of(self.front_pid or self.core_pid or 0, self.engine, self.port, self.proc)
        with contextlib.suppress(ValueError, IndexError):
            self._life = parse_stat(read_file(f"{self.proc}/{self.front_pid}/stat") or b"").start_ticks

    def _let_go(self) -> None:
        if self._core is not None:
            self._upcoming = self._core.upcoming
            self._core.close()
        self._core = None

    def _is_there(self, pid: int) -> bool:
        """Also that no other process has got its number."""
        try:
            found = parse_stat(read_file(f"{self.proc}/{pid}/stat") or b"")
        except (ValueError, IndexError):
            return False
        if self._started is None:
            self._started = found.start_ticks
        return found.state not in ("Z", "X") and found.start_ticks == self._started

    def _found(self, now_ns: int) -> bool:
        """Looks for the core that is meant now, from time to time."""
        if self._looked_ns is not None and now_ns - self._looked_ns < _LOOK_NS:
            return False
        self._looked_ns = now_ns
        for server in discover_servers(now_mono_ns=now_ns, proc=self.proc).servers:
            same = server.alive and server.engine == self.engine and server.front_pid == self.front_pid
            ours = (same or self._place.holds(server, self.proc)) and server.rank == self.rank and not server.is_group
            cores = [pid for pid in server.core_pids if pid != self.core_pid]
            if not ours or (same and not cores):
                continue
            self.core_pid, self.front_pid, self._started = cores[0] if cores else None, server.front_pid, None
            if not same:
                self._meet()
            return self.core_pid is not None and self._is_there(self.core_pid)
        return False

    def _without(self, now_ns: int) -> Reading:
        if self.core_pid is None:
            return Reading({}, "absent", "its engine core has not begun yet")
        raise InferdbgError(f"process {self.core_pid} has ended", "a server that follows on its port is looked at, too")
