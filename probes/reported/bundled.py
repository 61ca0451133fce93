"""The bundled engine's table: its suffixes are those of vLLM's metrics. Read where its black box is not to be had."""

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.server import EngineConfig

from .tables import Name, Row, Scrape, Table


def kvcache(scrape: Scrape, origin: Origin) -> KVCache | None:
    used, cached, free = (
        scrape.total(Name("inferdbg:kv_cache_blocks", "0.1-", only={"state": (state,)}))
        for state in ("used", "cached", "free")
    )
    found = config(scrape)
    if found is None or not found.block_size or used is None or cached is None or free is None:
        return None
    return KVCache(
        origin, used + cached + free, found.block_size, free_blocks=free, cached_blocks=cached, used_blocks=used
    )


def config(scrape: Scrape) -> EngineConfig | None:
    """The cache's part of it."""
    series = scrape.series("inferdbg:cache_config_info")
    sizes = [one.label("block_size") or "" for one in series]
    blocks = [one.label("num_gpu_blocks") or "" for one in series]
    if not series or not sizes[0].isdecimal() or not blocks[0].isdecimal() or len(sizes[0] + blocks[0]) > 24:
        return None
    return EngineConfig(block_size=int(sizes[0]), num_blocks=int(blocks[0]))


TABLE = Table(
    engine="inferdbg",
    prefix="inferdbg:",
    rows=tuple(
        Row(field, (Name(f"inferdbg:{name}", "0.1-"),))
        for field, name in (
            ("running", "num_requests_running"),
            ("waiting", "num_requests_waiting"),
            ("preempted", "num_requests_preempted"),
            ("steps_total", "engine_steps_total"),
            ("prefilled_tokens_total", "prompt_tokens_total"),
            ("generated_tokens_total", "generation_tokens_total"),
            ("recomputed_tokens_total", "recomputed_tokens_total"),
            ("prefix_queried_tokens_total", "prefix_cache_queries_total"),
            ("prefix_hit_tokens_total", "prefix_cache_hits_total"),
            ("preempted_total", "num_preemptions_total"),
            ("evicted_blocks_total", "evicted_blocks_total"),
            ("copied_blocks_total", "copied_blocks_total"),
            ("rejected_total", "admission_rejections_total"),
            ("ttft", "time_to_first_token_seconds"),
            ("itl", "inter_token_latency_seconds"),
            ("queue_time", "request_queue_time_seconds"),
            ("e2e", "e2e_request_latency_seconds"),
        )
    ),
    kvcache=kvcache,
    config=config,
)
