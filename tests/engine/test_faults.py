"""The promises of planted faults: refused when misspelt, told before they strike, and nothing when nobody asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from inferdbg.engine.errors import ConfigError
from inferdbg.engine.faults import DESCRIPTIONS, OPTIONS, Fault, Faults, MutationTrap
from inferdbg.engine.hooks import EventKind, Observer, Operation

from .scheduling import Bench, Told, columns_for, limits


def test_every_fault_is_described() -> None:
    assert list(DESCRIPTIONS) == list(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_fault_needs_only_its_name(name: str) -> None:
    fault = Fault.parse(name)
    assert (fault.name, fault.text, fault.step, fault.at) == (name, name, 1, "step")


def test_options_are_read() -> None:
    fault = Fault.parse("stall:step=100,seconds=0.5,every=7")
    assert (fault.step, fault.seconds, fault.every) == (100, 0.5, 7)
    assert Fault.parse("kill:at=mutation,count=1234,store=3").count == 1234


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("explode", "unknown fault 'explode'"),
        ("stall:sekonds=5", "fault 'stall' has no option 'sekonds=5'"),
        ("stall:seconds", "fault 'stall' has no option 'seconds'"),
        ("stall:seconds=soon", "seconds of fault 'stall' must be a number from 0 on, not 'soon'"),
        ("stall:seconds=nan", "must be a number from 0 on, not 'nan'"),
        ("stall:step=-1", "must be a number from 0 on, not '-1'"),
        ("kill:at=noon", "at of fault 'kill' is 'noon'"),
        ("corrupt:what=all", "what of fault 'corrupt' is 'all'"),
    ],
)
def test_a_misspelt_fault_is_refused_with_what_is_there(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Faults.parse([spec])


def test_a_fault_is_due_at_its_step_and_then_every_so_often() -> None:
    once, often = Fault.parse("leak:step=3"), Fault.parse("leak:step=3,every=2")
    assert [step for step in range(9) if once.due(step)] == [3]
    assert [step for step in range(9) if often.due(step)] == [3, 5, 7]


def test_without_a_trap_columns_and_observer_are_untouched() -> None:
    columns, observer = columns_for(limits()), Observer()
    assert Faults.parse(["leak", "kill:step=9"]).attach(columns, observer) == (columns, observer)


def trapped(spec: str, told: Told) -> tuple[Bench, list[tuple[str, list[int]]]]:
    """A bench whose trap writes down what it struck instead of killing, with the states of the blocks then."""
    fault = Fault.parse(spec)
    struck: list[tuple[str, list[int]]] = []
    plain = columns_for(limits())
    trap = MutationTrap(
        told, fault.count, fault.store, lambda: struck.append((fault.name, plain["blocks.state"].tolist())), fault.text
    )
    bench = Bench(limits(), trap, trap.watch(plain))
    return bench, struck


def test_a_trap_strikes_between_two_stores_of_the_change_it_counts_to() -> None:
    told = Told()
    bench, struck = trapped("kill:at=mutation,count=3,store=5", told)
    bench.add("a", [1, 2, 3])  # 1: a slot
    bench.step()  # 2: a row, 3: a block, whose state has not been stored yet after 5 stores
    assert struck == [("kill", [0] * 20)]
    assert told.events.count((EventKind.FAULT, 0, 0, -1, 0, "kill:at=mutation,count=3,store=5")) == 1


def test_a_change_with_fewer_stores_is_struck_before_it_is_settled() -> None:
    told = Told()
    bench, struck = trapped("kill:at=mutation,count=3,store=999", told)
    bench.add("a", [1, 2, 3])
    bench.step()
    assert struck == [("kill", [2] + [0] * 19)]


def test_a_trap_passes_changes_on() -> None:
    class Changes(Observer):
        seen: tuple[str, ...] = ()

        def mutating(self, operation: Operation, block: int = -1, request: int = 0) -> None:
            self.seen += (operation.name,)

        def settled(self) -> None:
            self.seen += ("settled",)

    changes = Changes()
    trap = MutationTrap(changes, 99, 1, lambda: None, "")
    bench = Bench(limits(), trap, trap.watch(columns_for(limits())))
    bench.add("a", [1, 2, 3], max_tokens=1)
    bench.finish()
    done = ("settled",)
    assert changes.seen == ("ADMIT", *done, "ADMIT", *done, "ALLOCATE", *done, "FREE", *done, "RELEASE", *done)


def test_a_livelock_never_ends() -> None:
    faults = Faults.parse(["livelock:step=2"])
    told = Told()
    faults.attach({}, told)
    seen = []
    for step in range(1, 5):
        faults.begin_step(step)
        seen.append(faults.livelock())
    assert seen == [False, True, True, True]
    assert told.kinds() == [EventKind.FAULT]


@pytest.mark.parametrize(
    ("name", "died_of"), [("kill", signal.SIGKILL), ("segfault", signal.SIGSEGV), ("abort", signal.SIGABRT)]
)
def test_the_deadly_ones_kill(name: str, died_of: signal.Signals) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
        f"from inferdbg.engine.faults import Faults; Faults.parse(['{name}:step=2']).begin_step(2)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, env=dict(os.environ))
    assert ended.returncode == -died_of
