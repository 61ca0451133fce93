"""How deep one looks is chosen, said with its cost, and refused with a cure."""

import os
import socket

import pytest
from msgspec.structs import replace

from inferdbg.cli.depth import COSTS, NAMES, Wanted, depth_of
from inferdbg.cli.here import of_url
from inferdbg.errors import Exit, InferdbgError
from inferdbg.probes.followed_memory import FollowedMemory
from inferdbg.probes.kv_events import KVEvents
from inferdbg.probes.reported.probe import Reported
from inferdbg.probes.servers import FoundServer, Member
from inferdbg.probes.withheld import Withheld

MEMBERS = (Member(58, "vllm", "front end"), Member(os.getpid(), "VLLM::EngineCore", "engine core"))
SERVER = FoundServer("vllm", MEMBERS, 1, url="http://127.0.0.1:8000")


def names(server: FoundServer, wanted: Wanted) -> list[str]:
    return [probe.name for probe in depth_of(server, wanted).probes if not isinstance(probe, Withheld)]


def test_reported_asks_the_server_alone_and_says_what_that_costs() -> None:
    found = depth_of(SERVER, Wanted("reported"))
    assert found.used == ("reported",)
    assert found.words == (f"depth reported: {COSTS['reported']}",)
    assert names(SERVER, Wanted("reported")) == ["reported"]


def test_what_is_not_asked_says_why_and_what_to_type() -> None:
    stand_ins = {one.name: one for one in depth_of(SERVER, Wanted("reported")).probes if isinstance(one, Withheld)}
    memory = stand_ins["memory"].read(0)
    assert (memory.status, memory.message) == ("absent", "depth reported was asked for")
    assert memory.hint == "inferdbg attach 58 --depth memory"
    assert "requests" in stand_ins["memory"].sections


def test_events_need_an_address() -> None:
    with pytest.raises(InferdbgError, match="needs the address") as caught:
        depth_of(SERVER, Wanted("events"))
    assert caught.value.code == Exit.USAGE
    assert names(SERVER, Wanted("reported", "tcp://127.0.0.1:5557")) == ["kv events", "reported"]


def test_of_several_servers_that_share_an_address_one_is_named_by_its_topic() -> None:
    events = depth_of(SERVER, Wanted("reported", "@tcp://127.0.0.1:5557#kv@7")).probes[0]
    assert isinstance(events, KVEvents)
    assert (events.endpoint, events.topic) == ("@tcp://127.0.0.1:5557", "kv@7")


def test_of_a_server_with_data_parallel_ranks_only_their_sum_is_told_until_one_is_named() -> None:
    """What is in the memory of one rank says nothing of the others."""
    found = depth_of(replace(SERVER, ranks=2), Wanted())
    assert found.used == ("reported",)
    assert any(f"name one: inferdbg attach {os.getpid()}" in words for words in found.words)
    core = replace(MEMBERS[1], rank="DP1")
    rank = replace(SERVER, members=(core,), ranks=2, rank="DP1", served_by=58)
    memory, reported = (one for one in depth_of(rank, Wanted()).probes if not isinstance(one, Withheld))
    assert isinstance(memory, FollowedMemory)
    assert (memory.core_pid, memory.front_pid, memory.rank) == (os.getpid(), 58, "DP1")
    assert isinstance(reported, Reported)
    assert reported.rank == "DP1"
    others_elsewhere = depth_of(replace(SERVER, members=(MEMBERS[0], core)), Wanted()).probes
    assert [one.rank for one in others_elsewhere if isinstance(one, Reported)] == ["DP1"]
    assert [one.rank for one in depth_of(SERVER, Wanted()).probes if isinstance(one, Reported)] == [None]


def test_a_server_on_another_machine_can_only_report() -> None:
    elsewhere = FoundServer("server", (), 0, url="http://10.0.0.7:8000")
    found = depth_of(elsewhere, Wanted())
    assert found.used == ("reported",)
    assert any("run inferdbg on that machine" in words for words in found.words)
    with pytest.raises(InferdbgError, match="only where the server runs"):
        depth_of(elsewhere, Wanted("memory"))


def test_an_engine_without_a_map_is_not_read_by_memory() -> None:
    ollama = FoundServer("ollama", MEMBERS, 1, url="http://127.0.0.1:11434")
    with pytest.raises(InferdbgError, match="no map of the objects of ollama"):
        depth_of(ollama, Wanted("memory"))


def test_a_server_that_starts_is_asked_where_it_is_going_to_listen() -> None:
    starting = FoundServer("vllm", MEMBERS[:1], 1, port=9000, starting=True)
    (reported,) = [one for one in depth_of(starting, Wanted()).probes if one.name == "reported"]
    assert getattr(reported, "url", None) == "http://127.0.0.1:9000"


def test_the_core_of_a_server_that_starts_is_waited_for() -> None:
    starting = FoundServer("vllm", (Member(os.getpid(), "vllm", "front end"),), 1, port=9000, starting=True)
    (memory,) = [one for one in depth_of(starting, Wanted()).probes if one.name == "memory"]
    assert isinstance(memory, FollowedMemory)
    assert (memory.core_pid, memory.front_pid, memory.port) == (None, os.getpid(), 9000)


def test_orphans_are_asked_nothing() -> None:
    orphans = FoundServer("vllm", MEMBERS[1:], 1, orphaned=True)
    assert "reported" not in names(orphans, Wanted())


def test_a_box_of_our_plug_in_takes_the_place_of_memory_unless_that_is_named() -> None:
    plugged = replace(SERVER, box_path="/dev/shm/b/58.box")
    assert "memory" not in names(plugged, Wanted())
    assert names(plugged, Wanted("memory")) == ["memory", "reported"]


def test_stacks_come_with_memory_where_that_can_be_had() -> None:
    found = depth_of(SERVER, Wanted("stacks"))
    assert found.used == ("memory", "stacks", "reported")
    assert found.words == tuple(f"depth {name}: {COSTS[name]}" for name in ("memory", "stacks"))
    ollama = depth_of(FoundServer("ollama", MEMBERS, 1, url="http://127.0.0.1:11434"), Wanted("stacks"))
    assert ollama.used == ("stacks", "reported")
    assert ollama.words[-1] == "no depth memory: there is no map of the objects of ollama"
    assert "denied" not in {probe.read(0).status for probe in ollama.probes if isinstance(probe, Withheld)}


def test_every_depth_has_its_cost() -> None:
    assert set(COSTS) == set(NAMES)


def test_whoever_listens_here_can_be_asked_though_nothing_says_what_it_is() -> None:
    """Any Prometheus endpoint, and a server that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found = of_url(url)
        assert isinstance(found, FoundServer)
        assert (found.url, found.pid) == (url, None)
        words = depth_of(found, Wanted()).words
        assert words[-1] == "no depth memory: which process answers there is not known. name it: inferdbg attach PID"
    with pytest.raises(InferdbgError, match=r"nobody listens at .*: Connection refused"):
        of_url(url)
