"""Processes of fixtures/vllm_shapes, told what to hold and where to stand."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inferdbg.collect.probe import Reading
from inferdbg.probes.vllm_memory import VllmMemory

PROGRAM = Path(__file__).parents[2] / "fixtures" / "vllm_shapes" / "engine_core.py"
BLOCKS, BLOCK_SIZE = 16, 4

STATE: dict[str, Any] = {
    "step": 41,
    "stand": "forward",
    "requests": [
        {
            "id": "cmpl-a", "status": "RUNNING", "prompt": 6, "outputs": 3, "computed": 9, "in_flight": 1,
            "blocks": [3, 4, 5], "max_tokens": 40,
        },
        {"id": "cmpl-b", "status": "RUNNING", "prompt": 30, "computed": 12, "in_flight": 8, "blocks": [3, 6, 7]},
        {"id": "cmpl-c", "status": "PREEMPTED", "prompt": 20, "outputs": 9, "preemptions": 2, "priority": 5},
        {"id": "cmpl-d", "status": "WAITING", "prompt": 5},
    ],
    "waiting": ["cmpl-c", "cmpl-d"],
    "hashes": {"3": "3-------", "4": "4-------", "9": "9-------", "10": "a-------"},
    "free": [8, 11, 12, 10, 9],
    "scheduled": {"cmpl-a": 1, "cmpl-b": 8},
}  # fmt: skip
"""Two run and share block 3; block 4 is full; two wait; 9 and 10 are cached, 13 to 15 neither free nor held."""


class Shapes:
    """One such process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, what: object) -> None:
        """It holds that when this returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n"


@contextlib.contextmanager
def shapes(kind: str, *without: str) -> Iterator[Shapes]:
    """``kind``: core or front."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, *without], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Shapes(process)
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def probed(*pids: int) -> Iterator[VllmMemory]:
    probe = VllmMemory(*pids)
    try:
        yield probe
    finally:
        probe.close()


def read(probe: VllmMemory) -> Reading:
    return probe.read(time.monotonic_ns())


def state(**changed: object) -> dict[str, Any]:
    return {**STATE, **changed}
