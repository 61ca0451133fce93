"""What the probe says of an engine core is what it holds; what a version lacks and what was torn is said."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from msgspec import structs

from inferdbg.collect.probe import SECOND
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.kvcache import CACHED, FREE, RESERVED, USED, KVCache
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Request, Requests, Wait
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server
from inferdbg.facts.sections.steps import Steps, Work
from inferdbg.facts.sections.wiring import Wiring
from inferdbg.probes.maps.vllm_v1 import MAP
from inferdbg.probes.memory import sections
from inferdbg.probes.memory.engine import Engine
from inferdbg.probes.memory.look import Row
from inferdbg.probes.pymem.opening import open_process
from inferdbg.probes.vllm_memory import VllmMemory

from .shapes import BLOCK_SIZE, BLOCKS, STATE, Shapes, probed, read, shapes, state


@pytest.fixture
def core() -> Iterator[Shapes]:
    with shapes("core") as process:
        process.tell(STATE)
        yield process


@pytest.fixture
def probe(core: Shapes) -> Iterator[VllmMemory]:
    with probed(core.pid) as opened:
        yield opened


def requests_of(probe: VllmMemory) -> dict[str, Request]:
    found = read(probe).sections["requests"]
    assert isinstance(found, Requests)
    return {request.id: request for request in found.items}


# requests


def test_requests_are_as_the_scheduler_has_them(probe: VllmMemory) -> None:
    found = requests_of(probe)
    a, b, c, d = (found[f"cmpl-{name}"] for name in "abcd")
    assert [one.number for one in (a, b, c, d)] == [1, 2, 3, 4]
    assert [one.stage for one in (a, b, c, d)] == ["decode", "prefill", "preempted", "waiting"]
    assert (a.prompt_tokens, a.output_tokens, a.computed_tokens, a.max_output_tokens) == (6, 3, 8, 40)
    assert (b.prompt_tokens, b.output_tokens, b.computed_tokens) == (30, 0, 4)
    assert (c.preemptions, c.priority, c.blocks) == (2, 5, b"")
    assert list(a.block_table()) == [3, 4, 5]
    assert a.arrived_ns is not None
    arrived_s = time.time() - (time.monotonic_ns() - a.arrived_ns) / 1e9
    assert arrived_s == pytest.approx(1_700_000_000.5, abs=0.05)


def test_why_they_wait_follows_from_pool_and_queue(core: Shapes, probe: VllmMemory) -> None:
    found = requests_of(probe)
    assert found["cmpl-c"].wait == Wait("blocks", 8, 5)  # 29 tokens in blocks of 4
    assert found["cmpl-d"].wait == Wait("behind", behind=3)
    core.tell(state(step=42, limits={"max_num_running_reqs": 2}))
    probe.close()
    assert requests_of(probe)["cmpl-c"].wait == Wait("max running", 2, 2)
    core.tell(state(step=43, limits={"max_num_scheduled_tokens": 9, "max_num_running_reqs": 4}, waiting=["cmpl-d"]))
    probe.close()
    assert requests_of(probe)["cmpl-d"].wait == Wait("token budget", 5, 0)


def test_prompts_and_outputs_are_not_read(core: Shapes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the lists of tokens the heads are read, never what they hold."""
    from inferdbg.probes.pymem.memory import Process
    from inferdbg.probes.pymem.opening import open_process
    from inferdbg.probes.pymem.path import follow, roots

    reader = open_process(core.pid)
    place = follow(reader, roots(reader), "scheduler.requests['cmpl-a']._output_token_ids")
    items = reader.word(place + 24)
    asked: list[tuple[int, int]] = []
    original = Process.read_many

    def noted(self: Process, ranges: list[tuple[int, int]], into: bytearray | None = None) -> object:
        asked.extend(ranges)
        return original(self, ranges, into)

    monkeypatch.setattr(Process, "read_many", noted)
    with probed(core.pid) as probe:
        read(probe)
    assert asked
    assert not [one for one in asked if one[0] == items]


# pool


def test_the_pool_is_as_the_scheduler_has_it(probe: VllmMemory) -> None:
    cache = read(probe).sections["kvcache"]
    assert isinstance(cache, KVCache)
    used, cached = {3, 4, 5, 6, 7}, {9, 10}
    states = [USED if n in used else CACHED if n in cached else FREE for n in range(BLOCKS)]
    assert list(cache.state or b"") == [RESERVED, *states[1:]]
    assert (cache.num_blocks, cache.block_size) == (BLOCKS, BLOCK_SIZE)
    assert (cache.used_blocks, cache.cached_blocks, cache.shared_blocks) == (5, 2, 1)
    assert memoryview(cache.refcount or b"").cast("H").tolist() == [0, 0, 0, 2, 1, 1, 1, 1, *[0] * 8]
    assert memoryview(cache.owner or b"").cast("I").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, *[0] * 8]
    hashes = memoryview(cache.hash or b"").cast("Q").tolist()
    assert {number: value.to_bytes(8, "little") for number, value in enumerate(hashes) if value} == {
        3: b"3-------", 4: b"4-------", 9: b"9-------", 10: b"a-------",
    }  # fmt: skip
    order, block = [], cache.first_free
    following = memoryview(cache.next_free or b"").cast("i")
    while block is not None and block >= 0:
        order.append(block)
        block = following[block]
    assert order == STATE["free"]
    assert memoryview(cache.filled or b"").cast("H").tolist()[3:8] == [4, 4, 0, 0, 0]
    assert cache.tokens == 8


def test_a_cached_block_keeps_the_name_of_who_held_it(core: Shapes, probe: VllmMemory) -> None:
    read(probe)
    left = [one for one in STATE["requests"] if one["id"] != "cmpl-a"]
    core.tell(state(step=42, requests=left, scheduled={"cmpl-b": 8}))
    cache = read(probe).sections["kvcache"]
    assert isinstance(cache, KVCache)
    assert memoryview(cache.owner or b"").cast("I").tolist()[3:8] == [2, 1, 0, 2, 2]


# steps and pulse


def test_the_step_under_way_is_told_with_its_shares(probe: VllmMemory) -> None:
    found = read(probe).sections
    steps, pulse, scheduler = found["steps"], found["pulse"], found["scheduler"]
    assert isinstance(steps, Steps)
    assert isinstance(pulse, Pulse)
    assert isinstance(scheduler, Scheduler)
    assert steps.running is not None
    assert steps.running.work == (Work(1, "decode", 1, 8), Work(2, "prefill", 8, 4))
    assert (steps.running.step, steps.running.prefill_tokens, steps.running.decode_tokens) == (41, 8, 1)
    assert (steps.running.budget, steps.running.total_ns) == (64, None)
    assert (pulse.step, pulse.phase) == (41, "forward")
    assert (scheduler.running, scheduler.waiting, scheduler.preempted, scheduler.steps_total) == (2, 2, 1, 41)


def test_steps_seen_are_told_when_they_are_over_and_others_counted(core: Shapes, probe: VllmMemory) -> None:
    read(probe)
    core.tell(state(step=45))
    steps = read(probe).sections["steps"]
    assert isinstance(steps, Steps)
    assert [step.step for step in steps.items] == [41]
    assert steps.items[0].work == (Work(1, "decode", 1, 8), Work(2, "prefill", 8, 4))
    assert steps.dropped == 3  # 42, 43, 44
    core.tell(state(step=46, stand="idle"))
    steps = read(probe).sections["steps"]
    assert isinstance(steps, Steps)
    assert ([step.step for step in steps.items], steps.dropped, steps.running) == ([45], 1, None)


def test_a_step_that_stands_still_keeps_its_time_and_one_that_moves_does_not(core: Shapes, probe: VllmMemory) -> None:
    first, second = (read(probe).sections["pulse"] for _ in range(2))
    assert isinstance(first, Pulse)
    assert isinstance(second, Pulse)
    assert (first.phase_since_ns, first.heartbeat_ns) == (second.phase_since_ns, second.heartbeat_ns)
    core.tell(state(step=42))
    third = read(probe).sections["pulse"]
    assert isinstance(third, Pulse)
    assert third.phase_since_ns > first.phase_since_ns


def test_an_idle_engine_is_idle_and_gives_no_heartbeat(core: Shapes, probe: VllmMemory) -> None:
    core.tell(state(stand="idle", requests=[], waiting=[], scheduled={}))
    reading = read(probe)
    pulse = reading.sections["pulse"]
    assert isinstance(pulse, Pulse)
    assert (reading.status, pulse.phase, pulse.heartbeat_ns) == ("ok", "idle", None)


# what a reading is worth


@pytest.mark.parametrize(("stand", "word"), [("schedule", "mid schedule"), ("update", "mid update_from_output")])
def test_a_look_into_a_change_says_so(core: Shapes, stand: str, word: str) -> None:
    core.tell(state(stand=stand))
    with probed(core.pid) as probe:
        reading = read(probe)
    assert reading.status == "torn"
    assert word in reading.message
    assert isinstance(reading.sections["requests"], Requests)  # shown, and labelled


def test_a_reading_bears_the_number_of_the_step_that_it_was_taken_in(core: Shapes) -> None:
    """Not of the one that begins before it is asked for."""
    engine = Engine(open_process(core.pid), structs.replace(MAP, waits=("execute_model",)))
    try:
        engine.refresh(0)
        counted = iter([41, 41, 42, 43])  # before and after the reading, then later
        engine._step = lambda: next(counted)  # type: ignore[method-assign]
        seen = engine.look(pool=False)
        assert (seen.consistent, seen.step) == (True, 41)
    finally:
        engine.reader.close()


def test_a_stopped_engine_is_read_like_a_running_one(core: Shapes, probe: VllmMemory) -> None:
    os.kill(core.pid, signal.SIGSTOP)
    try:
        reading = read(probe)
        requests = reading.sections["requests"]
        assert isinstance(requests, Requests)
        assert (reading.status, len(requests.items)) == ("ok", 4)
    finally:
        os.kill(core.pid, signal.SIGCONT)


def test_an_engine_that_has_ended_is_said_to(core: Shapes, probe: VllmMemory) -> None:
    read(probe)
    core.process.kill()
    core.process.wait()
    with pytest.raises(InferdbgError, match=f"process {core.pid} has ended"):
        probe.read(time.monotonic_ns() + SECOND)


# other versions


def test_what_a_version_lacks_is_named_and_the_rest_is_told() -> None:
    with shapes("core", "num_in_flight_tokens", "deferred_waiting", "num_preemptions") as core:
        core.tell(STATE)
        with probed(core.pid) as probe:
            reading = read(probe)
            assert reading.status == "ok"
            for name in ("scheduler.deferred_waiting", "request.num_in_flight_tokens", "request.num_preemptions"):
                assert name in reading.message
            found = requests_of(probe)
            assert found["cmpl-a"].preemptions is None
            assert found["cmpl-a"].computed_tokens == 9  # what it says, with what is not done yet
            assert found["cmpl-a"].output_tokens == 3


def test_without_a_step_counter_there_is_no_pulse_and_everything_else() -> None:
    with shapes("core", "current_step") as core:
        core.tell(STATE)
        with probed(core.pid) as probe:
            reading = read(probe)
    assert "scheduler.current_step" in reading.message
    assert "pulse" not in reading.sections
    assert "steps" not in reading.sections
    requests = reading.sections["requests"]
    assert isinstance(requests, Requests)
    assert len(requests.items) == 4


def test_limits_and_model_are_facts(probe: VllmMemory) -> None:
    server = read(probe).sections["server"]
    assert isinstance(server, Server)
    assert server.model is not None
    assert server.config is not None
    assert (server.engine, server.model.name, server.model.layers, server.model.head_size) == ("vllm", "shapes", 4, 32)
    assert server.model.architecture == "LlamaForCausalLM"
    assert (server.config.block_size, server.config.num_blocks, server.config.token_budget) == (4, 16, 64)
    assert (server.config.max_running, server.config.max_model_len, server.config.policy) == (4, 128, "fcfs")
    assert server.config.prefix_caching is True


# what happened


def test_what_happened_between_two_looks_is_told(core: Shapes, probe: VllmMemory) -> None:
    read(probe)
    _, b, c, d = STATE["requests"]
    changed = [
        {**b, "status": "PREEMPTED", "preemptions": 1, "blocks": [], "computed": 0, "in_flight": 0},
        {**c, "status": "RUNNING", "blocks": [6]},
        {**d, "outputs": 1, "status": "RUNNING", "blocks": [7]},
    ]
    core.tell(state(step=42, requests=changed, waiting=["cmpl-b"], scheduled={"cmpl-c": 1}))
    events = read(probe).sections["events"]
    assert isinstance(events, Events)
    assert [(event.kind, event.request, event.tokens) for event in events.items] == [
        ("preempted", 2, 4),
        ("scheduled", 3, None),
        ("scheduled", 4, None),
        ("first token", 4, None),
        ("finished", 1, 3),
    ]
    again = read(probe).sections["events"]
    assert isinstance(again, Events)
    assert again.items == ()


# front end


def wiring_of(probe: VllmMemory) -> Wiring:
    found = read(probe).sections["wiring"]
    assert isinstance(found, Wiring)
    return found


def test_requests_that_one_side_does_not_know_are_named(core: Shapes) -> None:
    with shapes("front") as front:
        front.tell(["cmpl-b", "cmpl-c", "cmpl-d", "cmpl-x"])
        with probed(core.pid, front.pid) as probe:
            wiring = wiring_of(probe)
            assert (wiring.front_requests, wiring.engine_requests) == (4, 4)
            assert {(one.id, one.known_by, one.number) for one in wiring.strays} == {
                ("cmpl-x", "front end", None),
                ("cmpl-a", "engine", 1),
            }
            found = requests_of(probe)
            assert (found["cmpl-b"].cached_tokens, found["cmpl-b"].scheduled_ns) == (8, 12_500_000_000)
            assert (found["cmpl-b"].first_token_ns, found["cmpl-b"].last_token_ns) == (13_000_000_000, None)
            assert found["cmpl-a"].cached_tokens is None


def test_a_front_end_that_cannot_be_looked_at_is_said_to_be_unknown(core: Shapes) -> None:
    with shapes("core") as other:
        other.tell(STATE)
        with probed(core.pid, other.pid) as probe:
            reading = read(probe)
            wiring = reading.sections["wiring"]
            assert isinstance(wiring, Wiring)
            assert (wiring.front_requests, wiring.strays) == (None, ())
            assert "holds no AsyncLLM" in reading.message
            assert reading.status == "ok"


def test_a_dead_output_thread_and_its_queue_are_seen(core: Shapes) -> None:
    with probed(core.pid) as probe:
        assert wiring_of(probe).dead_threads == ()
    core.tell(state(step=42, end_output_thread=True, output_queue=["one", "two"]))
    time.sleep(0.2)
    with probed(core.pid) as probe:
        wiring = wiring_of(probe)
        assert [thread.name for thread in wiring.dead_threads] == ["process_output_sockets"]
        assert wiring.queue("output") == 2
        assert any("process_input_sockets" in name for name in wiring.threads)


@pytest.mark.parametrize(
    ("computed", "outputs", "tokens", "kind"),
    [
        (40, 0, 40, "prefill"),  # a prompt of 50, its first chunk
        (50, 0, 1, "prefill"),  # its last token alone: the others were in the prefix cache
        (61, 11, 1, "decode"),
        (64, 11, 4, "decode"),  # with three drafts
        (60, 11, 60, "prefill"),  # again from the start, after a preemption
        (60, 11, 4, "prefill"),  # the end of that
    ],
)
def test_work_is_a_decode_where_it_continues_behind_the_newest_token(
    computed: int, outputs: int, tokens: int, kind: str
) -> None:
    row = Row("a", "RUNNING", 50, computed, 0, outputs, None, 0, None, 0, None, 1, True, b"")
    work = sections._work(row, 7, tokens)
    assert (work.kind, work.tokens, work.context) == (kind, tokens, computed - tokens)
