"""A real vLLM under load: after 10,000 KV events the blocks rebuilt from them are those of its pool, read from memory.

    python -m pytest tests/kv_events/live_compare.py -s

Subscribers from the start, with and without the replay socket, and one that loses every tenth message; and two that
join half-way, of which the one without a replay socket says that it does not know everything.
"""

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from inferdbg.facts.sections.prefixes import Prefixes
from inferdbg.probes.kv_events import KVEvents
from inferdbg.probes.pymem.objects import contents
from inferdbg.probes.pymem.opening import open_process
from inferdbg.probes.pymem.path import follow, roots
from tests.real import servers

EVENTS = 10_000
TABLE = "scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block._cache"
DEADLINE_S = 300.0
VOCABULARY = 200  # token ids that any model has


@pytest.mark.live
@servers.needs_vllm
def test_rebuilt_blocks_are_those_of_the_pool(tmp_path: Path) -> None:
    live, replay = servers.free_port(), servers.free_port()
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{live}",
        "replay_endpoint": f"tcp://*:{replay}",
        "topic": "kv",
    }
    with servers.vllm(tmp_path, *servers.SMALL_POOL, "--kv-events-config", json.dumps(config)) as server:
        core = next(pid for name, pid in server.children().items() if name.startswith("VLLM::EngineC"))
        compare(server.url, core, config["endpoint"], config["replay_endpoint"])


def compare(url: str, core: int, endpoint: str, replay: str) -> None:
    with ExitStack() as opened:
        probes = {
            name: opened.enter_context(closing(KVEvents(endpoint, asked)))
            for name, asked in (("from the start", replay), ("no replay", None), ("losing", replay))
        }
        for probe in probes.values():
            probe.read(time.monotonic_ns())
        _lose(probes["losing"], one_in=10)
        with _load(url):
            _wait_for(probes["from the start"], EVENTS // 2)
            for name, asked in (("late", replay), ("late, no replay", None)):
                probes[name] = opened.enter_context(closing(KVEvents(endpoint, asked)))
                probes[name].read(time.monotonic_ns())
            _wait_for(probes["from the start"], EVENTS)
        time.sleep(6)  # a lost last message is asked for after five quiet seconds
        truth = pool_of(core)
        found = {name: _told(probe) for name, probe in probes.items()}
        blocks = {name: set().union(*probe.subscription.blocks().values()) for name, probe in probes.items()}
    for name, prefixes in found.items():
        print(  # noqa: T201
            f"\n{name}: {prefixes.batches_total} batches, {prefixes.replayed_batches_total} of them replayed, "
            f"{prefixes.stored_blocks_total} blocks stored, {prefixes.removed_blocks_total} removed; "
            f"{len(blocks[name])} held, the pool has {len(truth)}: {len(truth - blocks[name])} missing, "
            f"{len(blocks[name] - truth)} too many; {'complete' if prefixes.complete else prefixes.why}"
        )
    for name, prefixes in found.items():
        assert prefixes.complete == (name != "late, no replay"), name
        assert blocks[name] == truth or not prefixes.complete, name
    assert found["losing"].replayed_batches_total > 100


def pool_of(core: int) -> set[int]:
    """Hashes in the prefix table of an idle EngineCore, as its events have them: the last 8 bytes of each."""
    with closing(open_process(core)) as reader:
        keys = contents(reader, follow(reader, roots(reader, "run_busy_loop"), TABLE)).keys
    assert keys is not None
    return {int.from_bytes(key[:-4][-8:], "big") for key in keys if isinstance(key, bytes)}


def _told(probe: KVEvents) -> Prefixes:
    found = probe.read(time.monotonic_ns()).sections["prefixes"]
    assert isinstance(found, Prefixes)
    return found


def _lose(probe: KVEvents, one_in: int) -> None:
    """From now on every so manieth message does not arrive."""
    assert probe.subscription is not None
    ranks, count = probe.subscription.ranks, iter(range(1 << 60))
    arrive = ranks.live
    ranks.live = lambda frames, now_ns: arrive(frames, now_ns) if next(count) % one_in else None


def _wait_for(probe: KVEvents, events: int) -> None:
    """Events: one "stored" may speak of many blocks, each "removed" speaks of one."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        time.sleep(0.5)
        sections = probe.read(time.monotonic_ns()).sections
        prefixes = sections.get("prefixes")
        if isinstance(prefixes, Prefixes) and prefixes.removed_blocks_total + prefixes.batches_total >= events:
            return
        assert time.monotonic() < deadline, prefixes


@contextmanager
def _load(url: str) -> Iterator[None]:
    """Six clients, whose prompts begin alike in a few ways; two at a time ask the same: that makes copies of blocks."""
    ending = threading.Event()
    clients = [threading.Thread(target=_client, args=(url, number, ending)) for number in range(6)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ending.set()
        for client in clients:
            client.join()


def _client(url: str, number: int, ending: threading.Event) -> None:
    place, chance = urlsplit(url), random.Random(number // 2)
    while not ending.is_set():
        start = random.Random(chance.randrange(6))
        prompt = [start.randrange(VOCABULARY) for _ in range(32 * start.randrange(1, 12))]
        prompt += [chance.randrange(VOCABULARY) for _ in range(chance.randrange(1, 600))]
        body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": chance.randrange(1, 40)})
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        connection.close()
