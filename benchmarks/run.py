"""Runs the long proofs (`make shows`) or the figures (`make bench`), each in a process of its own, and sums them up.

python -m benchmarks.run shows                 all proofs
python -m benchmarks.run bench snapshot_cost   one figure
"""

import subprocess
import sys
import time
from typing import NamedTuple


class Item(NamedTuple):
    """``module`` is run as ``python -m benchmarks.MODULE``; it exits 0 only when what ``promise`` says holds."""

    module: str
    promise: str


SHOWS = (
    Item(
        "correctness",
        "greedy output is token-identical to transformers, whatever the batching, chunks, reuse, preemption",
    ),
    Item("invariants", "10,000+ random steps over pool and scheduler, check() after each"),
    Item("crash", "300 kills under load: 300 readable black boxes, every disagreement covered by the intent"),
    Item("hang", "a wedged step is seen from outside within max(2 s, 5 x a normal step)"),
    Item("beside_others", "a real vLLM with a stopped engine core: named in 2 s; what other monitors say beside it"),
    Item("memory_truth", "10,000 readings of a real vLLM are what its scheduler had; its clients notice nothing"),
    Item("real_servers", "a real vLLM and llama.cpp in every state; KV events against the pool; core files"),
    Item("one_road", "decode(encode(snapshot)) is equal, and live and recording draw the same SVG"),
)

BENCH = (
    Item("observation_cost", "observation per step: at most 50 us + 0.2 us a scheduled request"),
    Item("snapshot_cost", "a Snapshot of 100,000 blocks and 256 requests: at most 3 ms"),
    Item("recording_cost", "recorded within 6 ms, 200 B + 40 B a request and step; seek within 100 ms"),
    Item("screen_cost", "top at 4 frames a second: at most 4 % of a core, 100 MB, first frame in 0.5 s"),
    Item("startup_cost", "--help in 120 ms, attach --once --json in 300 ms, both without torch"),
    Item("pymem_cost", "objects of another process: 8,192 blocks in 1.5 ms, 100,000 in 20 ms, 256 requests in 3 ms"),
    Item("vllm_memory_cost", "vLLM's memory: 256 requests and the step in 3 ms, 100,000 blocks in 20 ms"),
    Item(
        "stacks_pause",
        "stacks, 100 dumps: a live one adds at most 3 ms to the target's longest wait; those that stop it",
    ),
    Item("engine_decode", "decode speed beside transformers, bf16 and fp32, 1 and 16 streams"),
)


def main(arguments: list[str]) -> int:
    sets = {"shows": SHOWS, "bench": BENCH}
    if not arguments or arguments[0] not in sets:
        print(f"usage: python -m benchmarks.run {'|'.join(sets)} [NAME...]", file=sys.stderr)
        return 2
    items = sets[arguments[0]]
    unknown = [name for name in arguments[1:] if name not in {item.module for item in items}]
    if unknown:
        print(f"no {arguments[0]} named {', '.join(unknown)}: {', '.join(i.module for i in items)}", file=sys.stderr)
        return 2
    results: list[tuple[Item, bool, float]] = []
    for item in items:
        if arguments[1:] and item.module not in arguments[1:]:
            continue
        print(f"\n=== {item.module}: {item.promise}", flush=True)
        start = time.monotonic()
        failed = subprocess.run([sys.executable, "-m", f"benchmarks.{item.module}"], check=False).returncode
        results.append((item, not failed, time.monotonic() - start))
    print()
    for item, holds, seconds in results:
        print(f"{'ok    ' if holds else 'FAILED'} {seconds:7.1f} s  {item.module:17} {item.promise}")
    return 0 if all(holds for _, holds, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
