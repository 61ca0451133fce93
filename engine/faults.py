"""Planted faults, off unless asked for by name: what every rule, probe and post-mortem is proved with.

    engine = Engine(model, config, faults=Faults.parse(["stall:step=100,seconds=5", "kill:at=mutation,count=1234"]))

A spec is ``name`` or ``name:key=value,key=value``. Every fault takes ``step`` (the first step it fires in, default 1)
and, where it says so, ``every`` (fires again every that many steps; default once). Each firing is told through
Observer.event(FAULT) before it does its harm.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from .errors import ConfigError
from .hooks import EventKind, Observer, Operation
from .state import Column

if TYPE_CHECKING:
    import torch

    from .backend import Backend
    from .block_pool import BlockPool
    from .request import Request

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "leak": ("step", "every"),
    "stall": ("step", "every", "seconds"),
    "wedge": ("step", "layer"),
    "livelock": ("step",),
    "nan": ("step", "every", "layer"),
    "kill": ("step", "at", "count", "store"),
    "segfault": ("step", "at", "count", "store"),
    "abort": ("step", "at", "count", "store"),
    "corrupt": ("step", "every", "what"),
    "slow-sampler": ("step", "every", "ms"),
}
"""The faults, and what each can be told."""

DESCRIPTIONS: Mapping[str, str] = {
    "leak": "takes a reference to a block that no table holds: it never comes back",
    "stall": "sleeps for SECONDS (5) in the forward pass",
    "wedge": "a kernel that never returns, in layer LAYER (0)",
    "livelock": "from then on steps go by and nothing is scheduled",
    "nan": "layer LAYER (0) gives NaN",
    "kill": "SIGKILL; with at=mutation at store STORE (1) of the COUNTth change of pool and tables",
    "segfault": "reads address 0; when: as kill",
    "abort": "SIGABRT; when: as kill",
    "corrupt": "what=content: a held block gets another's K and V; what=refcount: one reference is lost",
    "slow-sampler": "the sampler takes MS (50) ms longer, in every step",
}
"""A line for each fault, for help texts."""

DEADLY = ("kill", "segfault", "abort")


@dataclass(frozen=True, slots=True)
class Fault:
    """One spec, parsed. ``every`` 0: fires once. ``text`` is the spec as given."""

    name: str
    text: str
    step: int
    every: int
    seconds: float
    ms: float
    layer: int
    at: str
    count: int
    store: int
    what: str

    @classmethod
    def parse(cls, spec: str) -> Fault:
        """Raises ConfigError when the name, an option or its value is unknown."""
        name, _, rest = spec.partition(":")
        if name not in OPTIONS:
            raise ConfigError(f"unknown fault {name!r}", f"one of: {', '.join(OPTIONS)}")
        given: dict[str, str] = {}
        for part in filter(None, rest.split(",")):
            key, separator, value = part.partition("=")
            if key not in OPTIONS[name] or not separator:
                raise ConfigError(f"fault {name!r} has no option {part!r}", f"options: {', '.join(OPTIONS[name])}")
            given[key] = value

        def number(key: str, default: float) -> float:
            text = given.get(key, str(default))
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not 0 <= value < 1e15:
                raise ConfigError(f"{key} of fault {name!r} must be a number from 0 on, not {text!r}")
            return value

        def choice(key: str, *allowed: str) -> str:
            if (value := given.get(key, allowed[0])) not in allowed:
                raise ConfigError(f"{key} of fault {name!r} is {value!r}", f"one of: {', '.join(allowed)}")
            return value

        return cls(
            name,
            spec,
            step=int(number("step", 1)),
            every=int(number("every", 1 if name == "slow-sampler" else 0)),
            seconds=number("seconds", 5),
            ms=number("ms", 50),
            layer=int(number("layer", 0)),
            at=choice("at", "step", "mutation"),
            count=int(number("count", 1)),
            store=int(number("store", 1)),
            what=choice("what", "content", "refcount"),
        )

    def due(self, step: int) -> bool:
        if self.at != "step" or step < self.step:
            return False
        return step == self.step or (self.every > 0 and (step - self.step) % self.every == 0)


class Faults:
    """The faults of one engine. The engine calls ``attach`` once, ``begin_step`` at the start of every step, and the
    rest at the places that they are named after; the backend calls ``before_layer`` and ``after_layer``."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._observer = Observer()
        self._step = 0
        self._due: list[Fault] = []
        self._livelocked = False

    @classmethod
    def parse(cls, specs: Iterable[str]) -> Faults:
        """Raises ConfigError."""
        return cls(Fault.parse(spec) for spec in specs)

    @property
    def in_layers(self) -> bool:
        """The backend must call ``before_layer`` and ``after_layer``."""
        return any(fault.name in ("wedge", "nan") for fault in self._faults)

    def attach(self, columns: Mapping[str, Column], observer: Observer) -> tuple[Mapping[str, Column], Observer]:
        """The columns and the observer that pool and tables shall use: the same ones, unless a fault strikes inside a
        change."""
        self._observer = observer
        for fault in self._faults:
            if fault.at == "mutation":
                trap = MutationTrap(observer, fault.count, fault.store, partial(_die, fault.name), fault.text)
                return trap.watch(columns), trap
        return columns, observer

    def begin_step(self, step: int) -> None:
        """Kills, if it shall come to that."""
        self._step = step
        self._due = [fault for fault in self._faults if fault.due(step)]
        for fault in self._take(*DEADLY):
            _die(fault.name)

    def livelock(self) -> bool:
        """This step schedules nothing."""
        for _ in self._take("livelock"):
            self._livelocked = True
        return self._livelocked

    def before_forward(self, pool: BlockPool, running: list[Request], backend: Backend) -> None:
        for _ in self._take("leak"):
            for block in _held(pool, running)[:1]:
                pool.refcount[block] += 1
        for fault in self._take("corrupt"):
            held = _held(pool, running)
            if fault.what == "refcount" and held:
                pool.refcount[held[0]] -= 1
            elif held:
                backend.copy_block((held[0] + 1) % len(pool.state), held[0])
        for fault in self._take("stall"):
            time.sleep(fault.seconds)

    def before_layer(self, layer: int) -> None:
        for _ in self._take("wedge", layer=layer):
            while True:
                time.sleep(3600)

    def after_layer(self, layer: int, hidden: torch.Tensor) -> torch.Tensor:
        for _ in self._take("nan", layer=layer):
            hidden = hidden * float("nan")
        return hidden

    def before_sampling(self) -> None:
        for fault in self._take("slow-sampler"):
            time.sleep(fault.ms / 1000)

    def _take(self, *names: str, layer: int | None = None) -> list[Fault]:
        """The faults of these names that are due now, each once a step; told to the observer."""
        if not self._due:
            return []
        taken = [fault for fault in self._due if fault.name in names and layer in (None, fault.layer)]
        for fault in taken:
            self._due.remove(fault)
            self._observer.event(EventKind.FAULT, text=fault.text)
        return taken


class MutationTrap(Observer):
    """Passes everything on to another observer and strikes at store ``store`` of the ``count``th change; at its end
    when it has fewer stores."""

    def __init__(self, watched: Observer, count: int, store: int, strike: Callable[[], None], text: str) -> None:
        self._watched = watched
        self._count = count
        self._store = store
        self._strike = strike
        self._text = text
        self._changes = 0
        self._stores = 0
        self._open = False

    def watch(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """The same columns, each of whose stores the trap hears of."""
        return {name: cast(Column, TrappedColumn(column, self)) for name, column in columns.items()}

    def event(
        self, kind: EventKind, request: int = 0, other: int = 0, block: int = -1, tokens: int = 0, text: str = ""
    ) -> None:
        self._watched.event(kind, request, other, block, tokens, text)

    def mutating(self, operation: Operation, block: int = -1, request: int = 0) -> None:
        self._changes += 1
        if self._changes == self._count:
            self._watched.event(EventKind.FAULT, text=self._text)
            self._open = True
            self._stores = 0
        self._watched.mutating(operation, block, request)

    def settled(self) -> None:
        if self._open:
            self._open = False
            self._strike()
        self._watched.settled()

    def stored(self) -> None:
        if self._open:
            self._stores += 1
            if self._stores == self._store:
                self._open = False
                self._strike()


class TrappedColumn:
    """A column that tells the trap of each store; costs nothing where no trap is set, because it isn't there."""

    def __init__(self, column: Column, trap: MutationTrap) -> None:
        self._column = column
        self._trap = trap

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, place: int | slice) -> int | Column:
        return self._column[place]

    def __setitem__(self, place: int, value: int) -> None:
        self._column[place] = value
        self._trap.stored()

    def tolist(self) -> list[int]:
        return self._column.tolist()


def _held(pool: BlockPool, running: list[Request]) -> list[int]:
    return [block for request in running for block in pool.table(request)]


def _die(name: str) -> None:
    if name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "segfault":
        ctypes.string_at(0)
    else:
        os.abort()
