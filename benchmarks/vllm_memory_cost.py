"""What a look at a vLLM with 256 requests and 100,000 blocks costs, read from outside: another process has its objects.

python -m benchmarks.vllm_memory_cost
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from inferdbg.facts.provenance import Origin
from inferdbg.probes.maps.vllm_v1 import MAP
from inferdbg.probes.memory.engine import Engine
from inferdbg.probes.memory.past import Past
from inferdbg.probes.memory.standing import standing_of
from inferdbg.probes.pymem.frames import stack
from inferdbg.probes.pymem.opening import open_process

PROGRAM = Path(__file__).parents[1] / "fixtures" / "vllm_shapes" / "engine_core.py"
REQUESTS, BLOCKS, HELD = 256, 100_000, 40
REQUESTS_MS, POOL_MS = 3.0, 20.0
LOOKS = 60


def main() -> int:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "core", f"blocks={BLOCKS}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(_state()) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        return measure(Engine(open_process(process.pid), MAP))
    finally:
        process.kill()
        process.communicate()


def measure(engine: Engine) -> int:
    engine.refresh(0)
    seen = engine.look(pool=True)
    assert seen.consistent
    assert seen.look is not None
    assert len(seen.look.rows) == REQUESTS
    assert seen.look.pool is not None
    looker, objects, past = engine._looker, engine.objects, Past()
    assert looker is not None
    assert objects is not None
    step = standing_of(MAP, stack(engine.reader, objects.thread)[0]).step
    requests = _median_ms(lambda: looker.take(step, pool=False, again=False))
    both = _median_ms(lambda: looker.take(step, pool=True, again=False))
    bracket = _median_ms(lambda: engine.look(pool=False)) - requests
    sections = _median_ms(lambda: past.sections(engine, seen, {}, 0, Origin("memory", time.monotonic_ns()), many=True))
    print(f"{REQUESTS} requests with {HELD} blocks each, and the step     {requests:6.2f} ms   at most {REQUESTS_MS}")
    print(f"{BLOCKS:,} blocks beside them, once a second        {both - requests:6.2f} ms   at most {POOL_MS}")
    print(f"where the thread stands, before and after        {bracket:6.2f} ms")
    print(f"all of it as sections, once a second             {sections:6.2f} ms")
    return 0 if requests <= REQUESTS_MS and both - requests <= POOL_MS else 1


def _median_ms(look: Callable[[], object]) -> float:
    """Of processor time: nothing in it waits."""
    taken = []
    for _ in range(LOOKS):
        start = time.thread_time()
        look()
        taken.append((time.thread_time() - start) * 1e3)
    return statistics.median(taken[5:])


def _state() -> dict[str, object]:
    requests = [
        {
            "id": f"cmpl-{number:016x}-0-{number:08x}",
            "status": "RUNNING",
            "prompt": 100 + number,
            "outputs": 40,
            "computed": 140 + number,
            "in_flight": 1,
            "arrival": 1_700_000_000.25 + number,
            "blocks": list(range(1 + number * HELD, 1 + (number + 1) * HELD)),
        }
        for number in range(REQUESTS)
    ]
    free = list(range(1 + REQUESTS * HELD, BLOCKS))
    return {
        "step": 100_000,
        "stand": "forward",
        "requests": requests,
        "hashes": {str(block): f"{block:032x}" for block in range(1, BLOCKS) if block % 3},
        "free": free,
        "scheduled": {one["id"]: 1 for one in requests},
    }


if __name__ == "__main__":
    sys.exit(main())
