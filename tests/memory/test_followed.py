"""The memory of a server that starts, or is restarted on its port: the core that is there now is the one read."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.sections.server import Server
from inferdbg.probes import followed_memory
from inferdbg.probes.followed_memory import FollowedMemory
from inferdbg.probes.servers import FoundServer, FoundServers, Member

from .shapes import STATE, Shapes, shapes

FRONT, PORT = 1 << 30, 8000
"""A front end that nobody asks: its PID is none."""


class Machine:
    """What discovery finds on it: a front end of that PID, and a core where there is one."""

    def __init__(self) -> None:
        self.front, self.core, self.looks = FRONT, 0, 0

    def discovered(self, *, now_mono_ns: int, proc: str) -> FoundServers:
        self.looks += 1
        core = (Member(self.core, "VLLM::EngineCore", "engine core"),) if self.core else ()
        front = Member(self.front, "vllm", "front end")
        return FoundServers((FoundServer("vllm", (front, *core), 0, port=PORT),))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(followed_memory, "discover_servers", made.discovered)
    return made


@contextmanager
def loaded() -> Iterator[Shapes]:
    with shapes("core") as core:
        core.tell(STATE)
        yield core


def told(reading: Reading) -> tuple[int | None, list[int]]:
    """The process, and the numbers of its requests."""
    server, requests = reading.sections["server"], reading.sections["requests"]
    assert isinstance(server, Server)
    assert isinstance(requests, Requests)
    return server.pid, [one.number for one in requests.items]


def test_a_core_that_is_not_there_yet_is_read_once_it_is(machine: Machine) -> None:
    with closing(FollowedMemory("vllm", None, FRONT, PORT)) as probe:
        now_ns = time.monotonic_ns()
        assert probe.read(now_ns).message == "its engine core has not begun yet"
        with loaded() as core:
            machine.core = core.pid
            assert probe.read(now_ns + SECOND).sections == {}
            assert machine.looks == 1, "the machine is not searched at every look"
            assert told(probe.read(now_ns + 3 * SECOND))[0] == core.pid


def test_the_successor_on_the_port_is_read_and_its_requests_get_new_numbers(machine: Machine) -> None:
    with loaded() as first:
        probe = FollowedMemory("vllm", first.pid, FRONT, PORT)
        now_ns = time.monotonic_ns()
        pid, numbers = told(probe.read(now_ns))
        assert pid == first.pid
    with closing(probe), loaded() as second:
        with pytest.raises(InferdbgError, match=f"process {first.pid} has ended"):
            probe.read(now_ns + SECOND)
        machine.front = FRONT + 1
        starting = probe.read(now_ns + 4 * SECOND)
        assert (starting.status, starting.message) == ("absent", "its engine core has not begun yet")
        machine.core = second.pid
        pid, later = told(probe.read(now_ns + 8 * SECOND))
        assert pid == second.pid
        assert min(later) == max(numbers) + 1
        assert probe.front_pid == FRONT + 1


def test_a_server_on_another_port_is_not_the_successor(machine: Machine) -> None:
    with loaded() as first:
        probe = FollowedMemory("vllm", first.pid, FRONT, PORT + 1)
        probe.read(time.monotonic_ns())
    with closing(probe), loaded() as second:
        machine.front, machine.core = FRONT + 1, second.pid
        with pytest.raises(InferdbgError, match="has ended"):
            probe.read(time.monotonic_ns() + 4 * SECOND)
