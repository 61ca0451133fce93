"""Is the box what the scheduler holds? Standard library only: also used inside vLLM's own Python."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

FIGURES = ("computed_tokens", "prompt_tokens", "output_tokens", "preemptions")
STAGES = {1: "WAITING", 2: "RUNNING", 3: "RUNNING", 4: "PREEMPTED"}
ID_BYTES = 48


def differences(truth: Mapping[str, Any], columns: Mapping[str, Sequence[int]], width: int) -> list[str]:
    """Everything in which the columns are not what ``truth`` (of truth.state_of) says."""
    found = []
    seen, wanted = requests_in(columns, width), requests_of(truth)
    for name in seen.keys() | wanted.keys():
        if seen.get(name) != wanted.get(name):
            found.append(f"request {name}: {seen.get(name)} instead of {wanted.get(name)}")
    if zlib.crc32(columns["blocks.refcount"]) != truth["refcounts"]:  # type: ignore[arg-type]
        found.append("refcounts")
    words, states = columns["pool"], bytes(columns["blocks.state"])
    if states[0] != 3:
        found.append(f"the placeholder, block 0, is {states[0]}")
    if (words[0] + words[1], words[1], words[2]) != (truth["free"], states.count(1), states.count(2)):
        found.append(f"counts {list(words)}: {truth['free']} free, {states.count(1)} cached, {states.count(2)} used")
    order, block = [], words[3]
    while block >= 0 and len(order) <= len(states):
        order.append(block)
        block = columns["blocks.next_free"][block]
    if order[:16] != truth["free_head"] or len(order) != truth["free"]:
        found.append(f"free list {order[:16]}… of {len(order)} instead of {truth['free_head']}… of {truth['free']}")
    if sum(map(bool, columns["blocks.hash"])) != truth["hashed"]:
        found.append("hashes")
    return found


def requests_in(columns: Mapping[str, Any], width: int) -> dict[str, tuple[Any, ...]]:
    seen = {}
    for slot, stage in enumerate(columns["requests.stage"]):
        if stage:
            row, held = columns["requests.row"][slot], columns["requests.blocks"][slot]
            name = bytes(columns["requests.id"][slot * ID_BYTES : (slot + 1) * ID_BYTES]).rstrip(b"\0").decode()
            table = list(columns["tables"][row * width : row * width + held]) if row >= 0 else []
            seen[name] = (STAGES[stage], *(columns[f"requests.{what}"][slot] for what in FIGURES), table)
    return seen


def requests_of(truth: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {
        name: (status, max(0, computed - (flying or 0)), prompt, outputs, preemptions, blocks)
        for name, (status, computed, flying, prompt, outputs, preemptions, blocks) in truth["requests"].items()
    }
