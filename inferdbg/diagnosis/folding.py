"""Folds identical stacks across ranks and threads, and puts first what tells most of a server."""

from typing import NamedTuple

from inferdbg.diagnosis.movement import Moved, Movements, key_of
from inferdbg.diagnosis.wait_table import PLAIN
from inferdbg.diagnosis.waits import Wait, waits_of
from inferdbg.facts.sections.stacks import Call, ProcessStacks, Stacks, ThreadStack

_ROLES = ("engine core", "engine", "worker", "front end")
"""Whose main thread tells most, in order."""
_QUIET = PLAIN | {"events"}
"""Kinds that tell nothing of a thread that runs no Python."""
_HELPERS = ("resource tracker", "fork server", "compiler")


class Seat(NamedTuple):
    """A thread in its process, and what it waits for. ``moved``: since an earlier look, if there was one."""

    process: ProcessStacks
    thread: ThreadStack
    wait: Wait
    moved: Moved | None = None

    @property
    def is_main(self) -> bool:
        """The thread that serves: the main one, or the one that the bundled engine runs on."""
        thread, process = self.thread, self.process
        if process.role in _HELPERS:
            return False
        return thread.native_id == process.pid or thread.name in ("MainThread", "engine")


class Fold(NamedTuple):
    """Threads, at least one, that stand in the same calls and wait for the same."""

    seats: tuple[Seat, ...]

    @property
    def wait(self) -> Wait:
        return self.seats[0].wait

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.seats[0].thread.calls

    @property
    def processes(self) -> tuple[ProcessStacks, ...]:
        return tuple({seat.process.pid: seat.process for seat in self.seats}.values())

    @property
    def is_idle(self) -> bool:
        """Nothing of the server is told by it."""
        if any(seat.is_main for seat in self.seats):
            return False
        return self.wait.idle or (self.wait.kind in _QUIET and all(call.native for call in self.calls))


def seats_of(stacks: Stacks, movements: Movements | None = None) -> tuple[Seat, ...]:
    """In the order of the section."""
    moved = movements or {}
    return tuple(
        Seat(one, thread, wait, moved.get(key_of(one.pid, thread)))
        for one in stacks.processes
        for thread, wait in zip(one.threads, waits_of(one), strict=True)
    )


def folds(seats: tuple[Seat, ...]) -> tuple[Fold, ...]:
    """What tells most first: the engine's main thread, workers, the front end; then other threads; idle ones last."""
    groups: dict[object, list[Seat]] = {}
    for seat in seats:
        how = seat.moved.how if seat.moved is not None else None
        key = (seat.thread.calls, seat.wait, seat.is_main, how, seat.process.role if seat.is_main else None)
        groups.setdefault(key, []).append(seat)
    found = [Fold(tuple(group)) for group in groups.values()]
    return tuple(sorted(found, key=_order))


def _order(fold: Fold) -> tuple[bool, bool, int, bool, int]:
    first = fold.seats[0]
    role = first.process.role
    return (
        fold.is_idle,
        not first.is_main,
        _ROLES.index(role) if role in _ROLES else len(_ROLES) - (role is None),
        fold.wait.idle,
        -len(fold.seats),
    )
