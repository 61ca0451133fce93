"""What the probe says of a process of SGLang's shapes is what it holds. SGLang itself was never looked at."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferdbg.collect.probe import Reading
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Request, Requests, Wait
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server
from inferdbg.probes.maps.sglang import SEEN_AS
from inferdbg.probes.memory.lengths import shape_in
from inferdbg.probes.sglang_memory import SglangMemory

from .shapes import Shapes

PROGRAM = Path(__file__).parents[2] / "fixtures" / "sglang_shapes" / "scheduler.py"
LOADED = {
    "stand": "run_batch",
    "requests": [
        {"id": "a", "prompt": 20, "outputs": 5, "cached": 8, "prefix": 8, "adapter": "french", "max_tokens": 40},
        {"id": "b", "prompt": 30, "prefix": 12, "cached": 4},
        {"id": "c", "prompt": 9, "outputs": 3, "retracted": True, "retractions": 2, "priority": 5},
        {"id": "d", "prompt": 50, "array": True},
        {"id": "e", "prompt": 4, "outputs": 9, "finished": True},
        {"id": "f", "prompt": 6, "outputs": 1},
    ],
    "running": ["a", "e"],
    "last": ["f"],
    "chunked": "b",
    "waiting": ["c", "d"],
    "evictable": 8,
    "free": 5,
    "released": 1,
}
"""a decodes, b is being prefilled in chunks, f has just been prefilled, e is finished and not yet removed."""


@contextlib.contextmanager
def scheduler(*words: str) -> Iterator[tuple[Shapes, SglangMemory]]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        probe = SglangMemory(process.pid)
        yield Shapes(process), probe
        probe.close()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def loaded() -> Iterator[tuple[Shapes, SglangMemory]]:
    with scheduler() as (shapes, probe):
        shapes.tell(LOADED)
        yield shapes, probe


def read(probe: SglangMemory) -> Reading:
    return probe.read(time.monotonic_ns())


def requests_in(reading: Reading) -> dict[str, Request]:
    found = reading.sections["requests"]
    assert isinstance(found, Requests)
    return {request.id: request for request in found.items}


def check_loaded(reading: Reading) -> None:
    found = requests_in(reading)
    stages = {name: request.stage for name, request in found.items()}
    assert stages == {"a": "decode", "b": "prefill", "c": "preempted", "d": "waiting", "f": "decode"}
    a, b, c, d = (found[name] for name in "abcd")
    assert (a.prompt_tokens, a.output_tokens, a.computed_tokens, a.cached_tokens) == (20, 5, 24, 8)
    assert (a.max_output_tokens, a.adapter) == (40, "french")
    assert (b.prompt_tokens, b.output_tokens, b.computed_tokens, b.cached_tokens) == (30, 0, 12, 4)
    assert (c.preemptions, c.priority, c.computed_tokens) == (2, 5, 0)
    assert (d.prompt_tokens, d.wait) == (50, Wait("behind", behind=c.number))
    assert a.arrived_ns == pytest.approx(12.5e9, abs=50e6)
    cache = reading.sections["kvcache"]
    assert isinstance(cache, KVCache)
    assert (cache.num_blocks, cache.block_size) == (16, 4)
    assert (cache.free_blocks, cache.cached_blocks, cache.used_blocks) == (6, 2, 8)


def test_a_loaded_scheduler_is_told_as_it_is(loaded: tuple[Shapes, SglangMemory]) -> None:
    reading = read(loaded[1])
    assert reading.status == "ok"
    check_loaded(reading)
    counts, server, pulse = (reading.sections[name] for name in ("scheduler", "server", "pulse"))
    assert isinstance(counts, Scheduler)
    assert (counts.running, counts.waiting, counts.preempted, counts.steps_total) == (3, 2, 1, 1)
    assert isinstance(server, Server)
    assert server.engine == "sglang"
    assert server.model is not None
    assert server.model.name == "shapes"
    assert server.config is not None
    assert (server.config.block_size, server.config.max_running, server.config.policy) == (4, 8, "fcfs")
    assert isinstance(pulse, Pulse)
    assert pulse.phase == "forward"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tensors_are_counted_without_torch_of_our_own() -> None:
    with scheduler("torch") as (shapes, probe):
        shapes.tell(LOADED)
        check_loaded(read(probe))


def test_every_reading_says_that_sglang_was_never_run(loaded: tuple[Shapes, SglangMemory]) -> None:
    assert read(loaded[1]).message == SEEN_AS


def test_a_scheduler_that_polls_is_idle(loaded: tuple[Shapes, SglangMemory]) -> None:
    shapes, probe = loaded
    shapes.tell({"stand": "idle", "requests": []})
    reading = read(probe)
    assert reading.status == "ok"
    assert requests_in(reading) == {}
    pulse = reading.sections["pulse"]
    assert isinstance(pulse, Pulse)
    assert pulse.phase == "idle"


def test_waiting_for_the_gpu_is_no_change_and_what_follows_is_one(loaded: tuple[Shapes, SglangMemory]) -> None:
    shapes, probe = loaded
    shapes.tell({**LOADED, "stand": "wait"})
    assert read(probe).status == "ok"
    shapes.tell({**LOADED, "stand": "process"})
    reading = read(probe)
    assert reading.status == "torn"
    assert "mid-schedule" in reading.message
    check_loaded(reading)
    shapes.tell({**LOADED, "stand": "plan"})
    assert read(probe).status == "torn"


def test_a_stopped_scheduler_is_read_all_the_same(loaded: tuple[Shapes, SglangMemory]) -> None:
    shapes, probe = loaded
    os.kill(shapes.pid, signal.SIGSTOP)
    reading = read(probe)
    assert reading.status == "ok"
    check_loaded(reading)


def test_another_version_lacks_fields_and_they_are_named() -> None:
    without = ("retraction_count", "time_stats", "chunked_req", "evictable_size_", "max_running_requests")
    with scheduler(*without) as (shapes, probe):
        shapes.tell({**LOADED, "last": ["f", "b"]})
        reading = read(probe)
        found = requests_in(reading)
        assert set(found) == set("abcdf")
        assert (found["c"].preemptions, found["c"].arrived_ns, found["c"].stage) == (None, None, "preempted")
        cache = reading.sections["kvcache"]
        assert isinstance(cache, KVCache)
        assert (cache.free_blocks, cache.cached_blocks, cache.used_blocks) == (6, None, None)
        for name in ("request.retraction_count", "request.time_stats", "scheduler.chunked_req"):
            assert name in reading.message
        assert "tree_cache.evictable_size_" in reading.message
        assert "scheduler.max_running_requests" in reading.message or "max_running_requests" in reading.message


def test_a_process_without_an_event_loop_is_no_scheduler() -> None:
    process = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip  # noqa: E501
    try:
        assert process.stdout is not None
        process.stdout.readline()
        probe = SglangMemory(process.pid)
        reading = read(probe)
        assert reading.status == "absent"
        assert SEEN_AS in reading.message
        probe.close()
    finally:
        process.kill()
        process.communicate()


def test_only_what_is_said_twice_is_a_shape() -> None:
    rest = [9, 9, 9, 9]
    shape = [1, 42, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 42]
    assert shape_in([*rest, *shape, *rest]) == 42
    assert shape_in([*rest, *shape[:-1], 41, *rest]) is None
    assert shape_in([*rest, *shape, *rest, 1, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 7]) is None
