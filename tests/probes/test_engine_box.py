"""What the box says is what the engine has: numbers, reasons, tables, and what was half done when it died."""

import shutil
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import SyntheticEngine, limits_for
from inferdbg.blackbox import writer
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.engine.hooks import EventKind, Operation
from inferdbg.engine.state import Counter, Phase
from inferdbg.engine.state import Pulse as Word
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.kvcache import USED, KVCache
from inferdbg.facts.sections.pulse import Intent, Pulse
from inferdbg.facts.sections.requests import Requests, Wait
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server
from inferdbg.facts.sections.steps import Steps
from inferdbg.facts.snapshot import SECTIONS, Snapshot, Target
from inferdbg.probes import engine_box
from inferdbg.probes.engine_box import EngineBox, moment_of, newest_ns_of
from inferdbg.probes.engine_observer import BlackBoxObserver
from tests.support.boxes import living_engine

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
NOW = 1 << 62


class Watched:
    """A synthetic engine in a box, and a probe that looks at it."""

    def __init__(self, folder: Path, num_blocks: int = 64, max_running: int = 4) -> None:
        self.observer = BlackBoxObserver(str(folder))
        self.engine = SyntheticEngine(limits_for(num_blocks, max_running, token_budget=64), self.observer)
        assert self.observer.path is not None
        self.path = self.observer.path
        self.probe = EngineBox(self.path)

    def run(self, steps: int, requests: int = 8, prompts: Sequence[int] = range(1, 150)) -> None:
        for _ in range(steps):
            self.engine.fill(requests, prompts, range(1, 60))
            self.engine.step()

    def read(self) -> Reading:
        return self.probe.read(NOW)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_it_fills_every_section_it_promises(watched: Watched) -> None:
    watched.run(10)
    reading = watched.read()
    assert set(reading.sections) == set(watched.probe.sections)
    assert set(reading.sections) < set(SECTIONS)
    assert reading.status == "ok"


def test_a_reading_survives_the_way_to_disk(watched: Watched) -> None:
    watched.run(40)
    snapshot = Snapshot(seq=1, wall_ns=2, mono_ns=3, target=Target(kind="box", name="x"), **watched.read().sections)
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def test_scheduler_and_requests_are_the_engine_s_own(watched: Watched) -> None:
    for _ in range(60):
        watched.run(1)
        sections = watched.read().sections
        scheduler, requests = sections["scheduler"], sections["requests"]
        assert isinstance(scheduler, Scheduler)
        assert isinstance(requests, Requests)
        counters = watched.engine.columns["counters"]
        assert scheduler.generated_tokens_total == counters[Counter.GENERATED_TOKENS]
        assert scheduler.waiting == counters[Counter.WAITING]
        assert scheduler.ttft is not None
        known = {request.number: request for request in watched.engine.scheduler.requests()}
        assert [request.number for request in requests.items] == sorted(known)
        for request in requests.items:
            own = known[request.number]
            assert request.id == own.id
            assert request.prompt_tokens == own.prompt_tokens
            assert request.output_tokens == len(own.output)
            assert request.block_table().tolist() == watched.engine.scheduler.pool.table(own)
            assert (request.stage in ("prefill", "decode")) == (own.row >= 0)


def test_between_whole_looks_at_a_large_pool_only_counting_goes_on(tmp_path: Path) -> None:
    """Blocks are read once a second, with the requests that hold them; a small pool's at every look."""
    with living_engine(tmp_path, 40_000, 8, 12) as engine:
        probe = EngineBox(engine.path)
        looks = []
        now_ns = time.monotonic_ns()
        for after_ns in (0, SECOND // 4, SECOND // 2, SECOND):
            looks.append(probe.read(now_ns + after_ns).sections)
            time.sleep(0.05)
    caches = [cache for look in looks if isinstance(cache := look["kvcache"], KVCache)]
    assert [cache.columns_are_old for cache in caches] == [False, True, True, False]
    assert [look["requests"] is looks[0]["requests"] for look in looks] == [True, True, True, False]
    first, _, last_old, last = caches
    assert last_old.state is first.state is not last.state
    assert last_old.columns_ns == first.origin.mono_ns == now_ns
    assert last_old.origin.mono_ns == now_ns + SECOND // 2
    assert 0 < (last_old.tokens or 0) <= (last_old.used_blocks or 0) * last_old.block_size
    steps = [scheduler.steps_total for look in looks if isinstance(scheduler := look["scheduler"], Scheduler)]
    assert steps == sorted(set(steps))


def test_whoever_looks_once_sees_all_blocks(tmp_path: Path) -> None:
    with living_engine(tmp_path, 40_000, 8, 12) as engine:
        probe = EngineBox(engine.path, whole=True)
        for _ in range(2):
            cache = probe.read(time.monotonic_ns()).sections["kvcache"]
            assert isinstance(cache, KVCache)
            assert cache.columns_ns is None
            assert (cache.state or b"").count(USED) == cache.used_blocks


def test_nothing_in_a_reading_happened_after_the_moment_it_speaks_of(watched: Watched) -> None:
    watched.run(5)
    watched.observer.event(EventKind.LOGGED, text="after the last heartbeat")
    reading = watched.read()
    events, pulse = reading.sections["events"], reading.sections["pulse"]
    assert isinstance(events, Events)
    assert isinstance(pulse, Pulse)
    assert reading.mono_ns == newest_ns_of(reading.sections) == events.items[-1].mono_ns > pulse.heartbeat_ns


def test_what_a_living_engine_did_between_question_and_answer_moves_the_moment() -> None:
    assert moment_of("alive", newest_ns=90, seen_ns=100, now_ns=100) is None
    assert moment_of("alive", newest_ns=130, seen_ns=100, now_ns=100) == 130
    assert moment_of("alive", newest_ns=NOW, seen_ns=100, now_ns=100) is None
    assert moment_of("dead", newest_ns=NOW, seen_ns=90, now_ns=100) == 100


def test_waiting_reasons_come_with_their_numbers(watched: Watched) -> None:
    watched.run(5, requests=9)
    requests = watched.read().sections["requests"]
    assert isinstance(requests, Requests)
    first, second = [request for request in requests.items if request.stage == "waiting"][:2]
    assert first.wait is not None
    assert first.wait.reason in ("blocks", "max running")
    assert first.wait.needs is not None
    assert first.wait.available is not None
    assert second.wait == Wait(reason="behind", behind=first.number)


def test_steps_and_events_come_once(watched: Watched) -> None:
    watched.run(30)
    watched.read()
    watched.run(7)
    sections = watched.read().sections
    steps, events = sections["steps"], sections["events"]
    assert isinstance(steps, Steps)
    assert isinstance(events, Events)
    assert [step.step for step in steps.items] == list(range(31, 38))
    assert all(
        sum(work.tokens for work in step.work) == step.prefill_tokens + step.decode_tokens for step in steps.items
    )
    assert {event.step for event in events.items} <= set(range(31, 38))
    assert steps.dropped == events.dropped == 0
    again = watched.read().sections
    assert again["steps"] == msgspec.structs.replace(steps, items=())
    assert again["events"] == msgspec.structs.replace(events, items=())


def test_an_event_has_the_numbers_of_its_kind(watched: Watched) -> None:
    tell = watched.observer.event
    tell(EventKind.SCHEDULED, request=3, tokens=0)
    tell(EventKind.PREEMPTED, request=4, other=3, tokens=77)
    tell(EventKind.EVICTED, request=1, other=4, block=0)
    tell(EventKind.COPIED, request=4, other=12, block=13)
    tell(EventKind.LOGGED, text="hello")
    events = watched.read().sections["events"]
    assert isinstance(events, Events)
    found = [(e.kind, e.request, e.other, e.block, e.tokens, e.text) for e in events.items]
    assert found == [
        ("scheduled", 3, None, None, 0, ""),
        ("preempted", 4, 3, None, 77, ""),
        ("evicted", 1, 4, 0, None, ""),
        ("copied on write", 4, None, 13, None, "from block 12"),
        ("logged", None, None, None, None, "hello"),
    ]


def test_a_running_step_and_the_pulse_tell_where_it_hangs(watched: Watched) -> None:
    watched.run(3)
    columns = watched.engine.columns
    watched.observer.step_planned(watched.engine.scheduler.plan(4, 1000).plan)
    for word, value in ((Word.PHASE, Phase.FORWARD), (Word.LAYER, 3), (Word.KERNEL, 2), (Word.LAUNCHED, 9)):
        columns["pulse"][word] = value
    columns["pulse"][Word.COMPLETED] = 8
    sections = watched.read().sections
    pulse, steps = sections["pulse"], sections["steps"]
    assert isinstance(pulse, Pulse)
    assert isinstance(steps, Steps)
    assert (pulse.phase, pulse.layer, pulse.kernel) == ("forward", 2, "attention")
    assert (pulse.kernels_launched, pulse.kernels_completed) == (9, 8)
    assert steps.running is not None
    assert steps.running.step == 4
    assert steps.running.work
    assert steps.running.total_ns == 0


def test_a_change_that_was_half_done_is_named(watched: Watched) -> None:
    watched.observer.mutating(Operation.EVICT, 5, 7)
    pulse = watched.read().sections["pulse"]
    assert isinstance(pulse, Pulse)
    assert pulse.intent == Intent(operation="evict", block=5, request=7)
    watched.observer.settled()
    pulse = watched.read().sections["pulse"]
    assert isinstance(pulse, Pulse)
    assert pulse.intent is None


def test_filled_is_what_the_engine_has_computed(watched: Watched) -> None:
    size = watched.engine.limits.block_size
    for _ in range(80):
        watched.run(1)
        cache = watched.read().sections["kvcache"]
        assert isinstance(cache, KVCache)
        scheduler = watched.engine.scheduler
        expected: dict[int, int] = {}
        for request in scheduler.running:
            computed = scheduler.table.computed_tokens[request.slot]
            for index, block in enumerate(scheduler.pool.table(request)):
                expected[block] = max(expected.get(block, 0), min(size, max(0, computed - index * size)))
        assert cache.state is not None
        assert cache.filled is not None
        assert cache.refcount is not None
        filled = memoryview(cache.filled).cast("H").tolist()
        used = {block for block, state in enumerate(cache.state) if state == 2}
        assert {block: filled[block] for block in used} == expected
        assert cache.tokens == sum(expected.values())
        assert all(filled[block] == (0, size)[state] for block, state in enumerate(cache.state) if state < 2)
        assert cache.shared_blocks == sum(count > 1 for count in memoryview(cache.refcount).cast("H"))
        assert (cache.free_blocks, cache.cached_blocks, cache.used_blocks) == tuple(map(cache.state.count, (0, 1, 2)))


def test_a_dead_engine_speaks_of_its_last_sign_of_life(watched: Watched) -> None:
    watched.run(3)
    watched.observer.abandon()
    reading = watched.read()
    server = reading.sections["server"]
    assert isinstance(server, Server)
    assert server.state == "dead"
    assert server.model is not None
    assert server.model.layers == 4
    assert reading.mono_ns == watched.engine.columns["pulse"][Word.HEARTBEAT_NS]


def test_a_url_that_comes_later_is_seen(watched: Watched) -> None:
    watched.read()
    watched.observer.serving("http://127.0.0.1:8000")
    server = watched.read().sections["server"]
    assert isinstance(server, Server)
    assert server.url == "http://127.0.0.1:8000"


def test_facts_that_make_no_sense_cost_only_themselves(tmp_path: Path) -> None:
    box = writer.BlackBox.create(str(tmp_path), [("pulse", "Q", 8)])
    box.update_static({"facts": {"model": 7}})
    reading = EngineBox(box.path).read(NOW)
    assert "makes no sense" in reading.message
    assert set(reading.sections) == {"server", "pulse", "steps", "events"}


def test_columns_of_another_type_or_length_than_their_name_promises_are_left_out(tmp_path: Path) -> None:
    box = writer.BlackBox.create(
        str(tmp_path),
        [("pulse", "B", 64), ("blocks.state", "B", 8), ("blocks.owner", "I", 7), ("blocks.hash", "Q", 8)],
    )
    box.update_static({"facts": {"config": {"block_size": 16}}})
    sections = EngineBox(box.path).read(NOW).sections
    cache = sections["kvcache"]
    assert isinstance(cache, KVCache)
    assert "pulse" not in sections
    assert cache.owner is None
    assert cache.hash == bytes(64)
    assert cache.shared_blocks is None


@SLOW
@given(data=st.data())
def test_whatever_the_columns_hold_it_reads_or_explains(tmp_path: Path, data: st.DataObject) -> None:
    made = tmp_path / "made"
    if not made.exists():
        engine = Watched(tmp_path / "whole", num_blocks=24, max_running=3)
        engine.run(40)
        shutil.copy(engine.path, made)
    content = bytearray(made.read_bytes())
    *_, offset, length, _ = writer.HEADER.unpack_from(content)
    table = msgspec.json.decode(content[offset : offset + length])
    words = st.sampled_from([0, 1, 5, 255, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1])
    for name, code, count, start in data.draw(st.lists(st.sampled_from(table["columns"]), min_size=1, max_size=6)):
        width = writer.SIZES[code]
        for at in data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8)):
            value = data.draw(words) & ((1 << 8 * width) - 1)
            content[start + at * width : start + (at + 1) * width] = value.to_bytes(width, "little")
        assert name
    for at in data.draw(st.lists(st.integers(16, 44), max_size=4)):
        struct.pack_into("=Q", content, at * 8, data.draw(words))
    path = tmp_path / "hostile.box"
    path.write_bytes(content)
    probe = EngineBox(str(path))
    try:
        reading = probe.read(NOW)
    except InferdbgError:
        return
    finally:
        probe.close()
    assert len(msgspec.json.encode(reading.sections)) < 2_000_000
    snapshot = Snapshot(seq=1, wall_ns=2, mono_ns=3, target=Target(kind="box", name="x"), **reading.sections)
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def test_a_box_of_absurdly_many_slots_shows_no_requests(tmp_path: Path) -> None:
    slots = engine_box.MAX_SLOTS + 1
    box = writer.BlackBox.create(str(tmp_path), [("requests.stage", "B", slots), ("requests.number", "I", slots)])
    assert "requests" not in EngineBox(box.path).read(NOW).sections
