"""llama.cpp: its slots become requests, and totals that move while requests run."""

import msgspec
import pytest

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, ModelFacts
from inferdbg.probes.reported import llamacpp
from inferdbg.probes.reported.exposition import parse
from inferdbg.probes.reported.llamacpp import LiveTotals, NextToken, Slot, parse_props, parse_slots
from inferdbg.probes.reported.tables import Scrape, scheduler

from .fixtures import read

ORIGIN = Origin("reported", 5, "reported")


def told(name: str) -> Scheduler:
    found, _ = scheduler(llamacpp.TABLE, Scrape(parse(read(f"llamacpp/{name}_metrics.txt"))), ORIGIN)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name, running, waiting, steps, prefilled, generated, cached",
    [
        ("idle", 0, 0, 0, 0, 0, 0),
        ("busy", 4, 2, 523, 248, 0, 0),
        ("after", 0, 0, 3001, 250, 9000, 122),
        ("smollm2_busy", 4, 2, 265, 693, 640, 15),
    ],
)
def test_metrics(
    name: str, running: int, waiting: int, steps: int, prefilled: int, generated: int, cached: int
) -> None:
    assert told(name) == Scheduler(
        ORIGIN,
        running=running,
        waiting=waiting,
        steps_total=steps,
        prefilled_tokens_total=prefilled,
        generated_tokens_total=generated,
        prefix_queried_tokens_total=prefilled + cached,
        prefix_hit_tokens_total=cached,
        drafts_total=0,
        drafted_tokens_total=0,
        accepted_tokens_total=0,
    )


def test_slots_that_work_are_requests() -> None:
    items = llamacpp.requests(parse_slots(read("llamacpp/busy_slots.json")), ORIGIN).items
    assert [(item.number, item.output_tokens, item.computed_tokens) for item in items] == [
        (8, 524, 586),
        (5, 524, 586),
        (7, 524, 586),
        (4, 525, 587),
    ]
    assert items[0] == Request(
        8,
        "task 8 in slot 0",
        "decode",
        prompt_tokens=62,
        output_tokens=524,
        max_output_tokens=1500,
        computed_tokens=586,
        cached_tokens=0,
    )
    smollm2 = llamacpp.requests(parse_slots(read("llamacpp/smollm2_busy_slots.json")), ORIGIN).items
    assert [(item.number, item.prompt_tokens, item.max_output_tokens) for item in smollm2] == [
        (number, 121, 400) for number in (261, 262, 263, 264)
    ]


@pytest.mark.parametrize("name", ["idle", "after"])
def test_slots_that_rest_are_none(name: str) -> None:
    slots = parse_slots(read(f"llamacpp/{name}_slots.json"))
    assert len(slots) == 4
    assert llamacpp.requests(slots, ORIGIN).items == ()


def test_a_prompt_that_is_being_read_has_no_length_yet() -> None:
    slot = Slot(1, True, id_task=9, n_prompt_tokens=512, n_prompt_tokens_processed=500, n_prompt_tokens_cache=12)
    (item,) = llamacpp.requests((slot,), ORIGIN).items
    assert item == Request(9, "task 9 in slot 1", "prefill", computed_tokens=512, cached_tokens=12)


def test_earlier_slots() -> None:
    working = b'{"id":0,"state":1,"id_task":3,"prompt":"secret","next_token":{"n_decoded":7,"n_remain":-1}}'
    body = b"[" + working + b',{"id":1,"state":0}]'
    (item,) = llamacpp.requests(parse_slots(body), ORIGIN).items
    assert item == Request(3, "task 3 in slot 0", "decode", output_tokens=7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'[{"id":0,"id_task":%d}]' % (10**30),
        b'[{"id":0,"next_token":[{"n_decoded":1e300}]}]',
        b'[{"id":"0"}]',
        b"[" * 100_000,
        b"\xff[]",
        b"<html>",
    ],
)
def test_what_are_no_slots_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_slots(body)


def test_props_and_models() -> None:
    props = parse_props(read("llamacpp/busy_props.json"))
    assert llamacpp.limits(props) == EngineConfig(max_running=4, max_model_len=2048)
    assert props.build_info == "b0-unknown"
    assert llamacpp.model(props, read("llamacpp/busy_v1_models.json")) == ModelFacts(
        "tiny.gguf",
        hidden_size=256,
        vocabulary=4096,
        parameters=4327680,
        weight_bytes=17310720,
        weight_dtype="all F32",
    )
    smollm2 = parse_props(read("llamacpp/smollm2_busy_props.json"))
    assert llamacpp.model(smollm2, None) == ModelFacts("SmolLM2-135M-Instruct.Q4_1.gguf", weight_dtype="Q4_1")


def test_what_runs_is_added_to_the_totals() -> None:
    live = LiveTotals().of(told("busy"), parse_slots(read("llamacpp/busy_slots.json")))
    assert live.generated_tokens_total == 524 * 3 + 525
    assert live.prefilled_tokens_total == 248


def busy(decoded: int, prefilled: int = 0) -> Slot:
    return Slot(0, True, id_task=1, n_prompt_tokens_processed=prefilled, next_token=NextToken(n_decoded=decoded))


def counts(generated: int, prefilled: int = 0) -> Scheduler:
    return Scheduler(ORIGIN, generated_tokens_total=generated, prefilled_tokens_total=prefilled)


def test_an_end_between_the_two_looks_is_made_up_for_at_the_next() -> None:
    live = LiveTotals()
    seen = [live.of(counts(0), [busy(90)]), live.of(counts(0), []), live.of(counts(100), [])]
    assert [one.generated_tokens_total for one in seen] == [90, 90, 100]


def test_what_was_made_and_never_comes_into_the_total_stays_counted() -> None:
    live = LiveTotals()
    looks = [(0, [busy(90)]), (0, []), (0, []), (0, [busy(5)]), (12, [])]
    assert [live.of(counts(total), slots).generated_tokens_total for total, slots in looks] == [90, 90, 90, 95, 102]


def test_a_restart_begins_anew() -> None:
    live = LiveTotals()
    seen = [live.of(counts(500), [busy(90)]), live.of(counts(3), [busy(1)])]
    assert [one.generated_tokens_total for one in seen] == [590, 4]


def test_a_prompt_counts_while_it_is_read() -> None:
    live = LiveTotals()
    seen = [live.of(counts(0, 10), [busy(0, 40)]), live.of(counts(0, 60), [busy(1, 50)])]
    assert [one.prefilled_tokens_total for one in seen] == [50, 60]


def test_kv_cells_only_where_the_server_tells_them() -> None:
    text = b"llamacpp:kv_cache_tokens 512\nllamacpp:kv_cache_usage_ratio 0.0625\n"
    assert llamacpp.kvcache(Scrape(parse(text)), ORIGIN) == KVCache(ORIGIN, 8192, 1, used_blocks=512, tokens=512)
    assert llamacpp.kvcache(Scrape(parse(read("llamacpp/busy_metrics.txt"))), ORIGIN) is None


def test_without_metrics_slots_tell_what_runs() -> None:
    slots = parse_slots(read("llamacpp/busy_slots.json"))
    assert llamacpp.of_slots(slots, ORIGIN) == Scheduler(ORIGIN, running=4)
