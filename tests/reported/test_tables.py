"""Every file that a real server gave becomes the facts that a person reads in it; names of other versions do, too."""

import msgspec
import pytest

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.scheduler import Rank, Scheduler
from inferdbg.facts.sections.server import EngineConfig
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import Window
from inferdbg.probes.reported import llamacpp, sglang, vllm
from inferdbg.probes.reported.exposition import parse
from inferdbg.probes.reported.tables import HISTOGRAMS, Scrape, Table, scheduler, table_of

from .fixtures import read

ORIGIN = Origin("reported", 5, "reported")
TABLES = (vllm.TABLE, llamacpp.TABLE, sglang.TABLE)


def told(table: Table, body: bytes) -> Scheduler:
    found, _ = scheduler(table, Scrape(parse(body), table.same), ORIGIN)
    assert found is not None
    return found


def totals(found: Scheduler) -> dict[str, int]:
    """What is known and no histogram."""
    fields = set(Scheduler.__struct_fields__) - {"origin", "ranks", *HISTOGRAMS}
    return {name: value for name in fields if (value := getattr(found, name)) is not None}


@pytest.mark.parametrize(
    "name, running, waiting, steps, prefilled, generated, queried, hit, preempted, finished, used",
    [
        ("idle", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        ("load8", 8, 0, 4659, 2180, 24295, 6276, 4096, 0, 5, 74),
        ("preempt_during", 1, 7, 1477, 368, 5290, 1936, 1568, 0, 0, 54),
        ("preempt_after", 0, 0, 5335, 368, 12000, 1936, 1568, 19, 8, 0),
        ("specdecode", 0, 0, 496, 148, 1600, 148, 0, 0, 4, 0),
    ],
)
def test_vllm(
    name: str,
    running: int,
    waiting: int,
    steps: int,
    prefilled: int,
    generated: int,
    queried: int,
    hit: int,
    preempted: int,
    finished: int,
    used: int,
) -> None:
    body = read(f"vllm/metrics_{name}.txt")
    assert totals(told(vllm.TABLE, body)) == {
        "running": running,
        "waiting": waiting,
        "steps_total": steps,
        "prefilled_tokens_total": prefilled,
        "generated_tokens_total": generated,
        "prefix_queried_tokens_total": queried,
        "prefix_hit_tokens_total": hit,
        "preempted_total": preempted,
        "finished_total": finished,
        "failed_total": 0,
        "rejected_total": 0,
        **(
            {"drafts_total": 396, "drafted_tokens_total": 1444, "accepted_tokens_total": 1104}
            if name == "specdecode"
            else {}
        ),
    }
    small = name.startswith("preempt")
    cache = vllm.kvcache(Scrape(parse(body)), ORIGIN)
    assert cache == KVCache(ORIGIN, 80 if small else 8192, 32 if small else 128, used_blocks=used)


def test_vllms_histograms_are_nanoseconds() -> None:
    found = told(vllm.TABLE, read("vllm/metrics_load8.txt"))
    assert found.ttft is not None
    assert found.ttft.bounds[:8] == tuple(ms * 1_000_000 for ms in (1, 5, 10, 20, 40, 60, 80, 100))
    assert found.ttft.counts == (0, 0, 0, 0, 1, 1, 8, 4, 4, *[0] * 14)
    assert found.ttft.sum_ns == 1_485_136_986
    assert found.ttft.percentile(0.5) == pytest.approx(60e6 + 20e6 * 7 / 8)
    assert [getattr(found, name).count for name in HISTOGRAMS] == [18, 24277, 5, 5]


def test_vllms_catches_are_told() -> None:
    scrape = Scrape(parse(read("vllm/metrics_preempt_during.txt")))
    _, caveats = scheduler(vllm.TABLE, scrape, ORIGIN)
    assert {caveat.field for caveat in caveats} == {
        "scheduler.steps_total",
        "scheduler.prefilled_tokens_total",
        "scheduler.preempted_total",
        "scheduler.aborted_total",
    }


def test_vllms_config() -> None:
    assert vllm.config(Scrape(parse(read("vllm/metrics_idle.txt")))) == EngineConfig(
        block_size=128, num_blocks=8192, prefix_caching=True
    )


def test_data_parallel_engines_are_summed() -> None:
    one = read("vllm/metrics_load8.txt")
    two = one.replace(b'engine="0"', b'engine="1"')
    both, single = told(vllm.TABLE, one + two), told(vllm.TABLE, one)
    assert totals(both) == {name: value * 2 for name, value in totals(single).items() if name != "rejected_total"} | {
        "rejected_total": 0
    }
    assert both.ttft is not None
    assert both.ttft.count == 36


def test_of_data_parallel_ranks_each_tells_the_blocks_of_all() -> None:
    """A real server with --data-parallel-size 2 and 80 blocks each."""
    exposition = parse(read("vllm/metrics_data_parallel.txt"))
    assert vllm.kvcache(Scrape(exposition), ORIGIN) == KVCache(ORIGIN, 160, 32, used_blocks=12)


def test_what_is_summed_is_told_rank_by_rank_beside_it() -> None:
    found = told(vllm.TABLE, read("vllm/metrics_data_parallel.txt"))
    assert found.ranks == (Rank("DP0", 0, 0, 67_220), Rank("DP1", 1, 0, 65_958))
    assert (found.prefilled_tokens_total or 0) + (found.generated_tokens_total or 0) == 67_220 + 65_958
    assert told(vllm.TABLE, read("vllm/metrics_load8.txt")).ranks == ()


def test_one_data_parallel_rank_is_told_from_the_others() -> None:
    exposition = parse(read("vllm/metrics_data_parallel.txt"))
    first, second = (Scrape(exposition, only=("engine", rank)) for rank in "01")
    assert [vllm.kvcache(one, ORIGIN) for one in (first, second)] == [
        KVCache(ORIGIN, 80, 32, used_blocks=0),
        KVCache(ORIGIN, 80, 32, used_blocks=12),
    ]
    assert [found.num_blocks for one in (first, second) if (found := vllm.config(one)) is not None] == [80, 80]
    counted = [scheduler(vllm.TABLE, one, ORIGIN)[0] for one in (first, second)]
    assert [(one.running, one.generated_tokens_total) for one in counted if one is not None] == [(0, 52469), (1, 51010)]
    assert [one.ttft.count for one in counted if one is not None and one.ttft is not None] == [123, 140]


def test_engines_with_other_bounds_have_no_common_histogram() -> None:
    text = """# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="1"} 1
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 1
vllm:time_to_first_token_seconds_sum{engine="0"} 1
vllm:time_to_first_token_seconds_bucket{engine="1",le="2"} 1
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 1
vllm:time_to_first_token_seconds_sum{engine="1"} 1
vllm:num_requests_running{engine="0"} 1
"""
    assert told(vllm.TABLE, text.encode()).ttft is None


OLD_VLLM = """# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
# HELP vllm:gpu_prefix_cache_queries_total GPU prefix cache queries, in terms of number of queried %s.
vllm:gpu_prefix_cache_queries_total{model_name="m"} 70.0
vllm:num_preemptions_total{model_name="m"} 4.0
vllm:prompt_tokens_total{model_name="m"} 100.0
vllm:generation_tokens_total{model_name="m"} 50.0
vllm:request_success_total{finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{finished_reason="abort",model_name="m"} 2.0
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 1.0
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 2.0
vllm:time_per_output_token_seconds_count{model_name="m"} 2.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 0.05
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="False",num_gpu_blocks="1000"} 1.0
"""


def test_names_of_earlier_vllm() -> None:
    body = (OLD_VLLM % "tokens").encode()
    found = told(vllm.TABLE, body)
    assert totals(found) == {
        "running": 3,
        "waiting": 2,
        "prefilled_tokens_total": 100,
        "generated_tokens_total": 50,
        "prefix_queried_tokens_total": 70,
        "preempted_total": 4,
        "finished_total": 5,
        "failed_total": 0,
    }
    assert found.itl == Histogram((10_000_000,), (1, 1), 50_000_000)
    assert vllm.kvcache(Scrape(parse(body)), ORIGIN) == KVCache(ORIGIN, 1000, 16, used_blocks=250)


def test_what_was_counted_in_blocks_is_no_number_of_tokens() -> None:
    assert told(vllm.TABLE, (OLD_VLLM % "blocks").encode()).prefix_queried_tokens_total is None


@pytest.mark.parametrize(
    "share, blocks, used", [(54 / 79, 80, 54), (0.25, 1000, 250), (0, 80, 0), (1, 80, 79), (2, 80, None)]
)
def test_a_share_of_vllms_blocks(share: float, blocks: int, used: int | None) -> None:
    assert vllm.used_blocks(share, blocks) == used


SGLANG = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="1",tp_rank="0"} 2.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="1"} 5.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="0"} 3.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="1"} 3.0
sglang:num_queue_reqs{dp_rank="1",tp_rank="2"} 4.0
sglang:num_queue_reqs{dp_rank="1",tp_rank="10"} 4.0
sglang:kv_used_tokens{tp_rank="0"} 1000.0
sglang:kv_evictable_tokens{tp_rank="0"} 128.0
sglang:kv_available_tokens{tp_rank="0"} 5272.0
sglang:max_total_num_tokens{tp_rank="0"} 6400.0
sglang:page_size{tp_rank="0"} 64.0
sglang:num_pages{tp_rank="0"} 100.0
sglang:context_len{tp_rank="0"} 4096.0
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 900.0
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 70.0
sglang:num_retracted_requests_total{tp_rank="0"} 6.0
sglang:num_requests_total{is_streaming="true"} 8.0
sglang:num_aborted_requests_total 1.0
sglang:generation_tokens_total{is_streaming="true"} 12.0
"""


def test_sglang() -> None:
    assert totals(told(sglang.TABLE, SGLANG.encode())) == {
        "running": 5,
        "waiting": 7,
        "prefilled_tokens_total": 900,
        "generated_tokens_total": 70,
        "prefix_queried_tokens_total": 900,
        "prefix_hit_tokens_total": 0,
        "preempted_total": 6,
        "finished_total": 8,
        "aborted_total": 1,
    }
    scrape = Scrape(parse(SGLANG.encode()), sglang.TABLE.same)
    assert sglang.kvcache(scrape, ORIGIN) == KVCache(
        ORIGIN, 100, 64, free_blocks=82, cached_blocks=2, used_blocks=16, tokens=1000
    )
    assert sglang.config(scrape) == EngineConfig(block_size=64, num_blocks=100, max_model_len=4096)


def test_earlier_sglang_tells_tokens_only() -> None:
    text = "sglang:num_running_reqs 1\nsglang:num_used_tokens 30\nsglang:max_total_num_tokens 100\n"
    body = text + 'sglang:generation_tokens_total{model_name="m"} 12\n'
    assert totals(told(sglang.TABLE, body.encode())) == {"running": 1, "generated_tokens_total": 12}
    scrape = Scrape(parse(body.encode()), sglang.TABLE.same)
    assert sglang.kvcache(scrape, ORIGIN) == KVCache(ORIGIN, 100, 1, used_blocks=30, tokens=30)


def test_a_collector_in_between_may_change_the_colon() -> None:
    assert told(vllm.TABLE, b"vllm_num_requests_running 3\n").running == 3
    assert table_of(TABLES, parse(b"vllm_num_requests_running 3\n"), "unknown") is vllm.TABLE


def test_the_metrics_say_what_the_engine_is() -> None:
    spoken = parse(read("llamacpp/busy_metrics.txt"))
    assert table_of(TABLES, spoken, "vllm") is llamacpp.TABLE
    assert table_of(TABLES, parse(b"up 1\n"), "sglang") is sglang.TABLE
    assert table_of(TABLES, parse(b"up 1\n"), "else") is None


@pytest.mark.parametrize("value", ["-1", "NaN", "1e30", "+Inf"])
def test_what_is_no_count_is_unknown(value: str) -> None:
    body = f"vllm:num_requests_waiting 1\nvllm:generation_tokens_total {value}\n".encode()
    assert told(vllm.TABLE, body).generated_tokens_total is None


def test_however_large_its_numbers_sections_can_be_written() -> None:
    """JSON and msgpack hold no integer of more than 64 bits."""
    large = str(2**53 - 1)
    lines = [
        f'{one.name}{{engine="{index}",mode="decode"}} {large}'
        for row in vllm.TABLE.rows
        for one in row.names
        for index in range(3000)
    ]
    configs = [
        f'vllm:cache_config_info{{block_size="1",num_gpu_blocks="{"9" * 15}",n="{index}"}} 1' for index in range(20_000)
    ]
    scrape = Scrape(parse("\n".join(lines + configs).encode()))
    found, _ = scheduler(vllm.TABLE, scrape, ORIGIN)
    msgspec.msgpack.encode((found, vllm.kvcache(scrape, ORIGIN)))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.engine)
def test_a_table_names_fields_that_exist(table: Table) -> None:
    fields = [row.field for row in table.rows]
    assert len(fields) == len(set(fields))
    assert set(fields) <= set(Scheduler.__struct_fields__)
    assert all(name.versions for row in table.rows for name in row.names)


def test_a_window_makes_percentiles_and_rates_of_them() -> None:
    target = Target("process", "pid 1")
    seen = [
        Snapshot(1, 0, 0, target, scheduler=told(vllm.TABLE, read("vllm/metrics_preempt_during.txt"))),
        Snapshot(2, 10**10, 10**10, target, scheduler=told(vllm.TABLE, read("vllm/metrics_preempt_after.txt"))),
    ]
    window = Window(seen)
    assert window.rate(lambda s: s.scheduler.generated_tokens_total if s.scheduler else None) == 671.0
    assert window.delta(lambda s: s.scheduler.preempted_total if s.scheduler else None) == 19
    itl = window.percentile(lambda s: s.scheduler.itl if s.scheduler else None, 0.5)
    assert itl is not None
    assert 0 < itl < 25e6
