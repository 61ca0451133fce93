"""What two looks at the same threads tell: which moved, which woke up for nothing, which spin, which stand."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from inferdbg import text
from inferdbg.facts.sections.stacks import Stacks, ThreadStack

_SPINS = 0.5
"""Of a core."""
_RUNS = 0.01
_GIL_WAKES = 100
"""A second. Whoever waits for the GIL asks for it again every 5 ms (sys.getswitchinterval), a lock of Python once."""
SECOND = 1_000_000_000


class Moved(NamedTuple):
    """``stands``: same calls, slept all the time. ``same calls``: whether it slept cannot be told. ``cpu``: share of a
    core in between, and ``wakes`` how often it slept and went on; None where that is not known."""

    how: Literal["stands", "same calls", "woke", "wants GIL", "spins", "moved", "is new"]
    over_ns: int
    cpu: float | None = None
    wakes: int | None = None

    @property
    def stood(self) -> bool:
        return self.how in ("stands", "same calls")

    @property
    def said(self) -> str:
        """``did not move in 2.0 s``."""
        over = text.duration(self.over_ns)
        return {
            "stands": f"did not move in {over}",
            "same calls": f"stood in the same calls {over} apart",
            "woke": f"woke {text.counted(self.wakes, 'time')} in {over}, in the same calls again",
            "wants GIL": f"woke {text.counted(self.wakes, 'time')} in {over} in the same calls: it waits for the GIL",
            "spins": f"spins: the same calls, {text.percent(self.cpu)} of a core for {over}",
            "moved": "moved",
            "is new": "is new",
        }[self.how]


Movements = Mapping[tuple[int, int | None, str], Moved]
"""By PID, the kernel's id and the name of a thread."""


def key_of(pid: int, thread: ThreadStack) -> tuple[int, int | None, str]:
    return pid, thread.native_id, "" if thread.native_id is not None else thread.name


def movements(earlier: Stacks, later: Stacks) -> Movements:
    """Of every thread of ``later``. Native calls are not compared: one of the looks may have none."""
    over_ns = max(1, later.origin.mono_ns - earlier.origin.mono_ns)
    before = {key_of(one.pid, thread): thread for one in earlier.processes for thread in one.threads}
    return {
        key: _moved(before.get(key), thread, over_ns)
        for one in later.processes
        for thread in one.threads
        for key in (key_of(one.pid, thread),)
    }


def _moved(before: ThreadStack | None, now: ThreadStack, over_ns: int) -> Moved:
    if before is None:
        return Moved("is new", over_ns)
    cpu = None if None in (before.cpu_ns, now.cpu_ns) else ((now.cpu_ns or 0) - (before.cpu_ns or 0)) / over_ns
    wakes = None if None in (before.wakes, now.wakes) else (now.wakes or 0) - (before.wakes or 0)
    calls_before, calls = ([call for call in one.calls if not call.native] for one in (before, now))
    if calls_before != calls:
        return Moved("moved", over_ns, cpu, wakes)
    if cpu is not None and cpu >= _SPINS:
        return Moved("spins", over_ns, cpu, wakes)
    if wakes is None or cpu is None:
        return Moved("same calls", over_ns, cpu, wakes)
    if now.timed and wakes * SECOND / over_ns >= _GIL_WAKES:
        return Moved("wants GIL", over_ns, cpu, wakes)
    return Moved("woke" if wakes or cpu > _RUNS else "stands", over_ns, cpu, wakes)
