"""A probe that blocks, dies or talks nonsense costs a round nothing but its own facts."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from inferdbg.collect.collector import Collector
from inferdbg.collect.probe import SECOND
from inferdbg.facts.snapshot import Snapshot, Target
from tests.support.probes import Misbehaving

pytestmark = pytest.mark.live
PATIENCE_S = 20.0


@contextmanager
def collecting(probe: Misbehaving) -> Iterator[Collector]:
    with closing(Collector(Target("process", "pid 1"), [probe])) as collector:
        yield collector


def rounds_until(collector: Collector, wanted: Callable[[Snapshot], bool]) -> Snapshot:
    """Rounds, until one is as wanted; fails after a long while."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        snapshot = collector.round()
        if wanted(snapshot):
            return snapshot
        time.sleep(0.01)
    raise AssertionError(f"never came: {snapshot.probes}")


def status_is(status: str) -> Callable[[Snapshot], bool]:
    return lambda snapshot: snapshot.probes[0].status == status


def test_a_child_reads_what_the_probe_reads() -> None:
    with collecting(Misbehaving(good_reads=99)) as collector:
        first = rounds_until(collector, lambda snapshot: snapshot.processes is not None)
        assert first.processes is not None
        assert first.processes.items[0].pid != os.getpid()
        assert first.probes[0].status == "ok"
        assert first.probes[0].cost_ns > 0


def test_one_look_with_patience_has_everything() -> None:
    with collecting(Misbehaving(good_reads=99, deadline_ns=20 * SECOND)) as collector:
        assert collector.round(patience_ns=20 * SECOND).processes is not None


def test_a_hanging_child_is_killed_and_replaced_while_its_last_answer_stands() -> None:
    with collecting(Misbehaving("hang", good_reads=1, deadline_ns=3 * SECOND)) as collector:
        first = rounds_until(collector, lambda snapshot: snapshot.processes is not None)
        began = time.monotonic()
        silent = rounds_until(collector, status_is("not answering"))
        assert time.monotonic() - began < 10
        assert silent.processes == first.processes
        assert silent.probes[0].message.startswith("not answering for ")
        assert first.processes is not None
        with pytest.raises(ProcessLookupError):
            ends(first.processes.items[0].pid)
        replaced = rounds_until(collector, lambda snapshot: snapshot.processes != first.processes)
        assert replaced.processes is not None
        assert replaced.processes.items[0].pid != first.processes.items[0].pid


def ends(pid: int) -> None:
    """Raises ProcessLookupError as soon as there is no such process."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                raise ProcessLookupError
        time.sleep(0.01)


def test_rounds_are_not_delayed_by_a_hanging_child() -> None:
    with collecting(Misbehaving("hang", deadline_ns=2 * SECOND)) as collector:
        costs = []
        for _ in range(12):
            began = time.monotonic()
            collector.round()
            costs.append(time.monotonic() - began)
        assert sorted(costs)[6] < 1.0


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("crash", "exit code 3"),
        ("segfault", "SIGSEGV"),
        ("flood", "a message of"),
        ("raise", "ValueError: the driver is confused"),
        ("explain", "the driver is too old"),
    ],
)
def test_a_child_that_fails_says_how(how: str, says: str) -> None:
    with collecting(Misbehaving(how, deadline_ns=10 * SECOND)) as collector:
        snapshot = rounds_until(collector, status_is("failed"))
        assert says in snapshot.probes[0].message
        assert snapshot.probes[0].hint == ("update it" if how == "explain" else "")


def test_a_library_that_prints_does_no_harm() -> None:
    with collecting(Misbehaving("print", deadline_ns=10 * SECOND)) as collector:
        assert rounds_until(collector, lambda snapshot: snapshot.processes is not None).probes[0].status == "ok"


def test_a_child_does_not_outlive_the_one_that_asked() -> None:
    program = (
        "import time\n"
        "from inferdbg.collect.child import Child\n"
        "from tests.support.probes import Misbehaving\n"
        "child = Child(Misbehaving('hang'))\n"
        "child.ask(1)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
        parent.wait()
    with pytest.raises(ProcessLookupError):
        ends(child)
