"""A subscription over real sockets: both directions, late joins, losses, repetitions, hostile messages."""

import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import pytest
import zmq

from inferdbg.collect.collector import Collector
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.prefixes import Prefixes
from inferdbg.facts.snapshot import Target
from inferdbg.probes.kv_events import KVEvents
from inferdbg.probes.kv_events.batches import PoolName
from inferdbg.probes.kv_events.probe import Subscription
from inferdbg.probes.kv_events.ranks import Ranks

from .publisher import CLEARED, END, TOKENS, Publisher, number, payload, publishing, removed, stored

GPU = PoolName(0, "GPU", 0)
DEADLINE_S = 20.0


def read(probe: KVEvents) -> Reading:
    return probe.read(time.monotonic_ns())


def prefixes(probe: KVEvents) -> Prefixes | None:
    found = read(probe).sections.get("prefixes")
    assert found is None or isinstance(found, Prefixes)
    return found


def eventually(probe: KVEvents, is_so: Callable[[Prefixes], bool]) -> Prefixes:
    """What it says as soon as it is so."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = prefixes(probe)
        if found is not None and is_so(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def held(probe: KVEvents) -> dict[PoolName, set[int]]:
    assert probe.subscription is not None
    return {name: hashes for name, hashes in probe.subscription.blocks().items() if hashes}


@pytest.fixture
def server() -> Iterator[Publisher]:
    with publishing() as publisher:
        yield publisher


def joined(server: Publisher, *, replay: bool = False) -> KVEvents:
    """A probe whose subscription has arrived."""
    probe = KVEvents(server.bind(), server.bind_replay() if replay else None)
    read(probe)
    server.await_subscriber()
    return probe


def heard(batches: int) -> Callable[[Prefixes], bool]:
    return lambda found: found.batches_total >= batches


def test_a_server_that_binds(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1, 2, 3]), stored([4], parent=2))
        server.publish(removed([3]))
        found = eventually(probe, heard(2))
        assert held(probe) == {GPU: {1, 2, 4}}
        (pool,) = found.pools
        assert (found.complete, found.why, found.missed_batches, found.origin.provenance) == (True, "", 0, "reported")
        assert (pool.medium, pool.blocks, pool.tokens, pool.block_size, pool.kind) == (
            "GPU",
            3,
            12,
            4,
            "full_attention",
        )
        assert (found.stored_blocks_total, found.removed_blocks_total) == (4, 1)


def free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.SUB) as free:
        return free.bind_to_random_port("tcp://127.0.0.1")


def test_a_server_that_connects(server: Publisher) -> None:
    port = free_port()
    with closing(KVEvents(f"@tcp://127.0.0.1:{port}")) as probe:
        assert "no server has connected" in read(probe).message
        server.connect(f"tcp://127.0.0.1:{port}")
        server.await_subscriber()
        server.publish(stored([1, 2]))
        assert eventually(probe, heard(1)).complete
        assert held(probe) == {GPU: {1, 2}}


def test_a_star_means_this_machine(server: Publisher) -> None:
    address = server.bind().replace("127.0.0.1", "*")
    with closing(KVEvents(address)) as probe:
        read(probe)
        server.await_subscriber()
        server.publish(stored([1]))
        eventually(probe, heard(1))


@pytest.mark.parametrize("with_topic", [True, False], ids=["vLLM", "SGLang"])
def test_a_late_join_asks_for_what_came_before(with_topic: bool) -> None:
    with publishing(with_topic=with_topic) as server:
        endpoint, replay = server.bind(), server.bind_replay()
        server.publish(stored([1, 2, 3]))
        server.publish(removed([2]))
        with closing(KVEvents(endpoint, replay)) as probe:
            found = prefixes(probe)
            assert found is not None
            assert (found.complete, found.replayed_batches_total) == (True, 2)
            server.await_subscriber()
            server.publish(stored([9]))
            eventually(probe, heard(3))
            assert held(probe) == {GPU: {1, 3, 9}}
            assert server.questions == [0]


def test_under_load_a_question_waits_until_the_replay_socket_is_connected(server: Publisher) -> None:
    endpoint, port = server.bind(), free_port()
    server.publish(stored([1]))
    with closing(KVEvents(endpoint)) as probe:
        probe.subscription = Subscription(endpoint, f"tcp://127.0.0.1:{port}", "")
        server.await_subscriber()
        began = time.monotonic()
        while not (found := prefixes(probe)) or not found.batches_total:
            server.publish(stored([2]))
            if server.replay is None and time.monotonic() - began > 0.2:
                server.bind_replay(port)
            time.sleep(0.01)
        assert (found.complete, found.missed_batches) == (True, 0)
        assert held(probe) == {GPU: {1, 2}}


def test_a_late_join_without_a_replay_socket_says_so(server: Publisher) -> None:
    endpoint = server.bind()
    for first in (1, 2, 3):
        server.publish(stored([first]))
    with closing(KVEvents(endpoint)) as probe:
        read(probe)
        server.await_subscriber()
        server.publish(stored([9]))
        server.publish(removed([1]))
        found = eventually(probe, heard(2))
        assert (found.complete, found.missed_batches, found.origin.provenance) == (False, 3, "inferred")
        assert found.why == "3 batches published before we joined; 1 block removed and never seen stored"
        assert "replay_endpoint" in read(probe).hint


def test_a_late_join_that_the_buffer_does_not_reach_says_so() -> None:
    with publishing(keep=2) as server:
        endpoint, replay = server.bind(), server.bind_replay()
        for first in range(5):
            server.publish(stored([first]))
        with closing(KVEvents(endpoint, replay)) as probe:
            found = eventually(probe, heard(2))
            assert (found.complete, found.missed_batches) == (False, 3)
            assert held(probe) == {GPU: {3, 4}}


def test_all_is_known_again_once_all_was_cleared(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.lose = {0}
        server.publish(stored([1]))
        server.publish(stored([2]))
        assert not eventually(probe, heard(1)).complete
        server.publish(CLEARED, stored([3]))
        found = eventually(probe, heard(2))
        assert (found.complete, found.cleared_total) == (True, 1)
        assert held(probe) == {GPU: {3}}


def test_clearing_of_several_memories_is_not_taken_for_certain(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1]), stored([2], medium="CPU"))
        server.publish(CLEARED)
        found = eventually(probe, heard(2))
        assert not found.complete
        assert found.why == "1 clearing of CPU or GPU: it does not say"


def test_a_lost_message_is_asked_for(server: Publisher) -> None:
    with closing(joined(server, replay=True)) as probe:
        server.lose = {1, 2}
        for seq in range(4):
            server.publish(stored([10 + seq]))
        found = eventually(probe, heard(4))
        assert (found.complete, found.missed_batches) == (True, 0)
        assert found.replayed_batches_total >= 2
        assert held(probe) == {GPU: {10, 11, 12, 13}}


def test_a_lost_message_that_cannot_be_had_is_said(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.lose = {1}
        for seq in range(3):
            server.publish(stored([10 + seq]))
        found = eventually(probe, heard(2))
        assert (found.complete, found.why, found.missed_batches) == (False, "1 batch lost", 1)


def test_a_server_that_starts_again_begins_with_nothing(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1, 2]))
        server.publish(stored([3]))
        server.seq = 0
        server.publish(stored([7]))
        found = eventually(probe, heard(3))
        assert found.complete
        assert held(probe) == {GPU: {7}}


def test_ranks_memories_and_groups_are_kept_apart(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.send(number(0), payload(stored([1]), rank=0))
        server.send(number(0), payload(stored([1], medium="CPU"), stored([1, 2], group_idx=1), rank=3))
        server.send(number(1), payload(removed([1], group_idx=1), rank=3))
        found = eventually(probe, heard(3))
        assert found.complete
        assert held(probe) == {GPU: {1}, PoolName(3, "CPU", 0): {1}, PoolName(3, "GPU", 1): {2}}


def test_what_happened_since_the_last_look_is_told_once(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1, 2]), stored([3]), removed([1]))
        deadline = time.monotonic() + DEADLINE_S
        found: list[tuple[str, int | None, str]] = []
        while len(found) < 2 and time.monotonic() < deadline:
            events = read(probe).sections.get("events", None)
            found += [(e.kind, e.tokens, e.text) for e in events.items] if isinstance(events, Events) else []
        assert sorted(found) == [("removed", None, "1 block in GPU"), ("stored", 12, "3 blocks in GPU")]
        again = read(probe).sections["events"]
        assert isinstance(again, Events)
        assert again.items == ()


def test_10000_events_are_those_of_a_model_kept_beside(server: Publisher) -> None:
    """Blocks come and go, with copies, in two memories; messages get lost, repeated, swapped and damaged on the way."""
    chance, model = random.Random(3), {GPU: Counter[int](), replace_medium(GPU): Counter[int]()}
    with closing(joined(server, replay=True)) as probe:
        server.lose = {seq for seq in range(2500) if chance.random() < 0.05}
        for seq in range(2500):
            events = []
            for _ in range(4):
                name = chance.choice(list(model))
                counts = model[name]
                if chance.random() < 0.55 or not counts:
                    first = chance.randrange(1, 4000)
                    hashes = list(range(first, first + chance.randrange(1, 4)))
                    counts.update(hashes)
                    events.append(stored(hashes, parent=chance.choice([None, first - 1]), medium=name.medium))
                else:
                    gone = chance.choice(list(counts))
                    counts[gone] -= 1
                    counts += Counter()  # without those that are at 0
                    model[name] = counts
                    events.append(removed([gone], medium=name.medium))
            server.publish(*events)
            if seq % 50 == 0:
                server.send(number(seq), server.buffer[-1][1])
            if seq % 70 == 0:
                server.send(b"odd")
        server.lose = set()
        server.publish(stored([4999]))
        model[GPU].update([4999])
        found = eventually(probe, heard(2501))
        assert held(probe) == {name: set(counts) for name, counts in model.items()}
        assert (found.batches_total, found.missed_batches, found.complete) == (2501, 0, True)
        assert found.replayed_batches_total > 50
        assert sum(pool.copies for pool in found.pools) == sum(
            count - 1 for counts in model.values() for count in counts.values()
        )


def replace_medium(name: PoolName) -> PoolName:
    return name._replace(medium="CPU")


@pytest.mark.live
def test_a_child_keeps_the_subscription_between_reads(server: Publisher) -> None:
    """Without a replay socket: what is published between two reads is heard only by one that goes on listening."""
    probe = KVEvents(server.bind())
    probe.cadence_ns = 0  # type: ignore[misc]
    with closing(Collector(Target("process", "a server"), [probe])) as collector:
        deadline = time.monotonic() + DEADLINE_S
        for batches in range(1, 6):
            if batches == 1:
                collector.round(SECOND)
                server.await_subscriber()
            server.publish(stored([batches]))
            while True:
                found = collector.round(SECOND).prefixes
                if found is not None and found.batches_total == batches:
                    break
                assert time.monotonic() < deadline
        assert found.complete
        assert [pool.blocks for pool in found.pools] == [5]


HOSTILE = [
    [],
    [b""],
    [number(0)],
    [number(0), b"", b""],
    [b"short", payload(stored([666]))],
    [number(END), payload(stored([666]))],
]


@pytest.mark.parametrize("frames", HOSTILE)
def test_messages_that_are_none_change_nothing(server: Publisher, frames: list[bytes]) -> None:
    with closing(joined(server)) as probe:
        server.send(*frames)
        server.publish(stored([1]))
        found = eventually(probe, heard(1))
        assert held(probe) == {GPU: {1}}
        assert (found.complete, found.unreadable_total) == (True, 1)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 100_000, payload(5), payload(stored([1], size=0))])
def test_a_batch_that_cannot_be_read_is_said(server: Publisher, body: bytes) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1]))
        server.publish(body=body)
        server.publish(stored([2]))
        found = eventually(probe, heard(3))
        assert (found.complete, found.why) == (False, "1 batch that could not be read")
        assert held(probe) == {GPU: {1, 2}}


def test_an_event_of_a_new_type_is_said(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1]), {"type": "BlockMoved"}, {"type": "BlockMoved"})
        assert eventually(probe, heard(1)).why == "2 events of a kind not known here"


def test_two_servers_at_one_address_are_told_apart_by_topic(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1]))
        server.socket.send_multipart([b"other", number(0), payload(stored([2]), ts=5000.0)])
        server.publish(stored([3]))
        eventually(probe, heard(2))
        assert held(probe) == {GPU: {1, 3}}
        reading = read(probe)
        assert reading.message == "1 message of another topic left out"
        assert "name the topic" in reading.hint


def test_a_server_that_went_away_is_said(server: Publisher) -> None:
    with closing(joined(server)) as probe:
        server.publish(stored([1]))
        assert eventually(probe, heard(1)).complete
        server.socket.close()
        found = eventually(probe, lambda found: not found.complete)
        assert found.why.startswith("no publisher for")
        assert read(probe).status == "stale"


def test_without_a_server_it_says_who_has_to_connect_to_whom() -> None:
    with closing(KVEvents("tcp://127.0.0.1:9")) as probe:
        reading = read(probe)
    assert (reading.status, reading.sections) == ("absent", {})
    assert "@tcp://127.0.0.1:9" in reading.hint


@pytest.mark.parametrize("endpoint", ["", "nonsense", "tcp://", "@tcp://127.0.0.1:1:2", "gopher://x"])
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    with closing(KVEvents(endpoint)) as probe, pytest.raises(InferdbgError):
        read(probe)


def test_without_pyzmq_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(InferdbgError) as caught:
        KVEvents("tcp://127.0.0.1:9").read(0)
    assert caught.value.hint == "pip install 'inferdbg[events]'"


def test_no_token_stays_behind(server: Publisher) -> None:
    """Everything that can be reached from the probe is looked at, and all that it says."""
    with closing(joined(server, replay=True)) as probe:
        server.publish(stored(range(1, 40)), stored([50], medium="CPU"))
        server.lose = {1}
        server.publish(stored([60]))
        server.publish(stored([61, 62], parent=60))
        server.publish(body=payload(stored([63]))[:-5])
        eventually(probe, heard(4))
        seen = list(reachable(probe))
        said = msgspec.json.encode(list(read(probe).sections.values()))
    assert {50, 60, 62} <= {one for one in seen if type(one) is int}, "the walk finds what is kept"
    assert private(seen) == []
    assert b"3987654" not in said
    assert b"salt" not in said


def test_no_token_waits_behind_a_gap() -> None:
    ranks = Ranks(replays=True)
    ranks.live(
        [
            b"kv",
            number(5),
            payload(stored([61, 62], parent=60), ["BlockStored", [64], None, list(TOKENS[:4]), 4, None]),
        ],
        0,
    )
    seen = list(reachable(ranks))
    assert ranks.doubts()
    assert {62, 64} <= {one for one in seen if type(one) is int}, "the walk finds what waits"
    assert private(seen) == []


def private(seen: list[object]) -> list[object]:
    """What of it are tokens, or what was mixed into hashes."""
    raw = msgspec.msgpack.encode(list(TOKENS[:2]))[1:]
    found: list[object] = [one for one in seen if isinstance(one, msgspec.Raw)]
    found += [one for one in seen if isinstance(one, int) and one in TOKENS]
    found += [one for one in seen if isinstance(one, str) and ("salt" in one or "image" in one)]
    kept = [bytes(one) for one in seen if isinstance(one, bytes | bytearray | memoryview)]
    return found + [one for one in kept if raw in one or b"a salt" in one]


def reachable(root: object) -> Iterator[object]:
    """All that hangs on an object, without modules and code. Structs that the collector does not follow are opened."""
    ahead, known = [root], set[int]()
    while ahead:
        one = ahead.pop()
        if id(one) in known or isinstance(one, type | type(sys) | type(reachable)):
            continue
        known.add(id(one))
        yield one
        ahead += gc.get_referents(one)
        if isinstance(one, msgspec.Struct):
            ahead += msgspec.structs.astuple(one)
