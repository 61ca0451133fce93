"""SGLang's table: versions 0.4 to 0.5.23. Read, never run: sglang/srt/metrics/collector.py, later
sglang/srt/observability/metrics_collector.py. Metrics are there only under --enable-metrics.

Each scheduler process (tensor, pipeline, data parallel rank) may have series of its own: those of tensor and pipeline
ranks tell the same. Under priority scheduling the total stands under ``priority=""``, its parts beside it.
"""

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.server import EngineConfig

from .tables import Name, Row, Scrape, Table

_IN_STEPS = "brought up to date every few steps only (at each log line of the scheduler)"
_AT_THE_END = "counted when a request ends"
_TOTAL = {"priority": (None, "")}
_REALTIME = "sglang:realtime_tokens_total"


def kvcache(scrape: Scrape, origin: Origin) -> KVCache | None:
    """In pages, where the server tells their size; earlier ones tell tokens only, and a block here is one token."""
    size = scrape.total(Name("sglang:page_size", "by 0.5.23"))
    engines = len(scrape.series("sglang:page_size"))
    page = size // engines if size and engines else 1
    tokens = scrape.total(Name("sglang:max_total_num_tokens", "0.4-"))
    pages = scrape.total(Name("sglang:num_pages", "by 0.5.23")) if page > 1 else tokens
    if not pages:
        return None
    used = _first(scrape, "sglang:kv_used_tokens", "sglang:num_used_tokens")
    return KVCache(
        origin,
        num_blocks=pages,
        block_size=page,
        free_blocks=_pages(scrape.total(Name("sglang:kv_available_tokens", "by 0.5.23")), page),
        cached_blocks=_pages(scrape.total(Name("sglang:kv_evictable_tokens", "by 0.5.23")), page),
        used_blocks=_pages(used, page, up=True),
        tokens=used,
    )


def config(scrape: Scrape) -> EngineConfig | None:
    """The cache's part of it, and the longest sequence."""
    cache = kvcache(scrape, Origin("", 0))
    if cache is None:
        return None
    length = scrape.gauge("sglang:context_len")
    return EngineConfig(
        block_size=cache.block_size,
        num_blocks=cache.num_blocks,
        max_model_len=int(length) if length is not None and 0 < length < 1 << 40 else None,
    )


def _first(scrape: Scrape, *names: str) -> int | None:
    return next((total for name in names if (total := scrape.total(Name(name, "0.4-"))) is not None), None)


def _pages(tokens: int | None, size: int, *, up: bool = False) -> int | None:
    return None if tokens is None else (tokens + (size - 1 if up else 0)) // size


TABLE = Table(
    engine="sglang",
    prefix="sglang:",
    rows=(
        Row("running", (Name("sglang:num_running_reqs", "0.4-", only=_TOTAL),)),
        Row("waiting", (Name("sglang:num_queue_reqs", "0.4-", only=_TOTAL),)),
        Row(
            "prefilled_tokens_total",
            (
                Name(_REALTIME, "by 0.5.23", only={"mode": ("prefill_compute",)}, caveat=_IN_STEPS),
                Name(
                    "sglang:prompt_tokens_total",
                    "0.4-",
                    caveat=f"{_AT_THE_END}, with tokens that were found in the prefix cache",
                ),
            ),
        ),
        Row(
            "generated_tokens_total",
            (
                Name(_REALTIME, "by 0.5.23", only={"mode": ("decode",)}, caveat=_IN_STEPS),
                Name("sglang:generation_tokens_total", "0.4-", caveat=_AT_THE_END),
            ),
        ),
        Row(
            "prefix_queried_tokens_total",
            (
                Name(_REALTIME, "by 0.5.23", only={"mode": ("prefill_compute", "prefill_cache")}),
                Name("sglang:prompt_tokens_total", "0.4-", caveat=_AT_THE_END),
            ),
        ),
        Row(
            "prefix_hit_tokens_total",
            (
                Name(_REALTIME, "by 0.5.23", only={"mode": ("prefill_cache",)}),
                Name("sglang:cached_tokens_total", "0.4-", caveat=_AT_THE_END),
            ),
        ),
        Row("preempted_total", (Name("sglang:num_retracted_requests_total", "by 0.5.23"),)),
        Row("finished_total", (Name("sglang:num_requests_total", "0.4-"),)),
        Row("aborted_total", (Name("sglang:num_aborted_requests_total", "0.4-"),)),
        Row("ttft", (Name("sglang:time_to_first_token_seconds", "0.4-"),)),
        Row(
            "itl",
            (
                Name("sglang:inter_token_latency_seconds", "by 0.5.23"),
                Name("sglang:time_per_output_token_seconds", "before"),
            ),
        ),
        Row("queue_time", (Name("sglang:queue_time_seconds", "by 0.5.23"),)),
        Row("e2e", (Name("sglang:e2e_request_latency_seconds", "0.4-"),)),
    ),
    same=("tp_rank", "pp_rank", "moe_ep_rank"),
    rank="dp_rank",
    kvcache=kvcache,
    config=config,
    logged=True,
    switch="start SGLang with --enable-metrics to see its queue and totals",
)
