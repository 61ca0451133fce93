"""What it costs to read the objects of an engine from outside: pools of blocks and a batch of requests, as an engine
holds them, in another process that runs meanwhile.

Caches of types and layouts are warm, as when a screen looks four times a second. Every figure includes the second look
that tells whether something changed.

    python -m benchmarks.pymem_cost
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from inferdbg.probes.pymem.bulk import items, table
from inferdbg.probes.pymem.frames import local_variables, threads
from inferdbg.probes.pymem.objects import read
from inferdbg.probes.pymem.opening import open_process
from inferdbg.probes.pymem.path import follow
from inferdbg.probes.pymem.reader import Reader
from inferdbg.probes.pymem.values import Limits

BLOCKS = 8_192
MANY_BLOCKS = 100_000
REQUESTS = 256
ATTRIBUTES = 30
BLOCKS_MS = 1.5
MANY_BLOCKS_MS = 20.0
REQUESTS_MS = 3.0
LOOKS = 100

ENGINE = f"""
import enum, itertools, random, sys, time

class Status(enum.IntEnum):
    WAITING = 1
    RUNNING = 2

class Block:
    __slots__ = ("block_id", "ref_cnt", "_block_hash", "prev_free_block", "next_free_block", "is_null")

    def __init__(self, number):
        self.block_id, self.ref_cnt, self.is_null = number, random.randrange(4), False
        self._block_hash = bytes(32) if number % 3 else None
        self.prev_free_block = self.next_free_block = None

class Request:
    def __init__(self, number):
        self.request_id, self.status, self.arrival = f"cmpl-{{number:016x}}", Status.RUNNING, time.time() + number
        self.prompt_tokens, self.computed_tokens = random.randrange(3000), random.randrange(9000)
        self.block_ids, self.hashes, self.events, self.stats = list(range(20)), [b"x"] * 3, [1], {{"hits": 1}}
        self.user, self.temperature = f"user-{{number}}", number / 7
        for more in range({ATTRIBUTES} - 11):
            setattr(self, f"more_{{more}}", random.choice((None, more, False, 1000 + more)))

class Engine:
    pass

def run(engine):
    print("ready", flush=True)
    for step in itertools.count(1_000_000):
        engine.step = step
        time.sleep(0.004)

engine = Engine()
engine.requests = [Request(number) for number in range({REQUESTS})]
engine.blocks = [Block(number) for number in range({BLOCKS})]
engine.many = [Block(number) for number in range({MANY_BLOCKS})]
for pool in (engine.blocks, engine.many):
    for left, right in zip(pool, pool[1:]):
        left.next_free_block, right.prev_free_block = right, left
run(engine)
"""


def main() -> int:
    process = subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        start = time.perf_counter()
        reader = open_process(process.pid)
        print(f"opened and verified in {(time.perf_counter() - start) * 1e3:.1f} ms")
        return measure(reader)
    finally:
        process.kill()
        process.communicate()


def measure(reader: Reader) -> int:
    frame = next(found for thread in threads(reader) if (found := thread.frame("run")) is not None)
    root = {"engine": local_variables(reader, frame)["engine"]}
    place = {name: follow(reader, root, f"engine.{name}") for name in ("requests", "blocks", "many")}
    request = items(reader, place["requests"])[0]
    (first,) = table(reader, [int(request)], {"request_id": "value"}).values["request_id"]
    names = list(_attributes(reader, int(request)))
    assert first == "cmpl-0000000000000000"
    assert len(names) == ATTRIBUTES

    def pool(name: str) -> Callable[[], None]:
        def look() -> None:
            found = table(
                reader,
                items(reader, place[name]),
                {"ref_cnt": "integer", "_block_hash": "pointer", "next_free_block": "pointer"},
            )
            assert found.known["ref_cnt"].all()
            assert not (found.changing | found.foreign).any()

        return look

    def requests() -> None:
        found = table(reader, items(reader, place["requests"]), dict.fromkeys(names, "value"))
        assert not (found.changing | found.foreign).any()

    held = [
        told(f"{BLOCKS:,} blocks: references, cached or not, free links", pool("blocks"), BLOCKS_MS),
        told(f"{MANY_BLOCKS:,} blocks", pool("many"), MANY_BLOCKS_MS),
        told(f"{REQUESTS} requests with {ATTRIBUTES} attributes", requests, REQUESTS_MS),
    ]
    told(f"{REQUESTS} requests, one tree (no bound)", lambda: read(reader, place["requests"], Limits(depth=2)), None)
    told("the stacks of all threads (no bound)", lambda: threads(reader), None)
    return 0 if all(held) else 1


def _attributes(reader: Reader, address: int) -> dict[str, int]:
    from inferdbg.probes.pymem.objects import contents

    return contents(reader, address).attributes


def told(what: str, look: Callable[[], object], bound_ms: float | None) -> bool:
    """Times it, prints it, and says whether it held. Nothing in it waits, so processor time is what it takes."""
    for _ in range(5):
        look()
    cpu, wall = [], []
    for _ in range(LOOKS if bound_ms is not None else 10):
        cpu_start, start = time.thread_time(), time.perf_counter()
        look()
        cpu.append((time.thread_time() - cpu_start) * 1e3)
        wall.append((time.perf_counter() - start) * 1e3)
    taken = statistics.median(cpu)
    bound = f"   at most {bound_ms} ms" if bound_ms is not None else ""
    print(f"{what:60} {taken:7.2f} ms  (by the clock {statistics.median(wall):.2f}){bound}")
    return bound_ms is None or taken <= bound_ms


if __name__ == "__main__":
    sys.exit(main())
