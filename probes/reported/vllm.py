"""vLLM's table: versions 0.4 to 0.32, v0 and v1. Run: 0.32.0; read: vllm/engine/metrics.py, vllm/v1/metrics/loggers.py.

Its metrics are those of the API server's process: what the engine tells it after each step. While the engine hangs they
stand still and are served all the same.
"""

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.metrics import Caveat, Series
from inferdbg.facts.sections.server import EngineConfig

from .exposition import counted
from .tables import Name, Row, Scrape, Table, added

_LATE = "vLLM counts a preemption only when the request runs again: until then the counter stands still"
_ENDED = ("stop", "length", "repetition")
_USAGES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # since 0.9.2; hidden in 0.11, then gone
_CONFIG = "vllm:cache_config_info"
_UNLIKELY = 0.01


def kvcache(scrape: Scrape, origin: Origin) -> KVCache | None:
    """Size from the labels of cache_config_info; used blocks from the usage, which is told as a share. Which of the
    others are free and which cached is not told."""
    configs = scrape.series(_CONFIG)
    sizes = [(_blocks(one, scrape), _label_count(one, "block_size")) for one in configs]
    if not sizes or any(not blocks or not size for blocks, size in sizes) or len({size for _, size in sizes}) > 1:
        return None
    used: list[int | None] = []
    for config, (blocks, _) in zip(configs, sizes, strict=True):
        share = next((found for name in _USAGES if (found := _usage(scrape, name, config)) is not None), None)
        used.append(None if share is None else used_blocks(share, blocks or 0))
    blocks_of_all, size = added(blocks for blocks, _ in sizes), sizes[0][1]
    return KVCache(origin, blocks_of_all, size, used_blocks=added(used)) if blocks_of_all and size else None


def used_blocks(share: float, blocks: int) -> int | None:
    """Blocks that are neither free nor evictable. v1 keeps one block for itself (the null block) and takes the share
    of the others, v0 and early v1 take it of all: the one that gives a whole number is meant."""
    if not 0 <= share <= 1 or blocks < 2:
        return None
    of_others, of_all = share * (blocks - 1), share * blocks
    nearer = of_all if abs(of_others - round(of_others)) > _UNLIKELY > abs(of_all - round(of_all)) else of_others
    return round(nearer)


def config(scrape: Scrape) -> EngineConfig | None:
    """The cache's part of it."""
    found = scrape.series(_CONFIG)
    if not found:
        return None
    caching = found[0].label("enable_prefix_caching")
    return EngineConfig(
        block_size=_label_count(found[0], "block_size"),
        num_blocks=_blocks(found[0], scrape),
        prefix_caching=None if caching is None else caching == "True",
    )


def kv_dtype(scrape: Scrape) -> str | None:
    found = [one.label("cache_dtype") for one in scrape.series(_CONFIG)]
    return found[0] if found and found[0] != "auto" else None


def _blocks(config: Series, scrape: Scrape) -> int | None:
    """Of one engine. With data parallel each of them tells the sum of all (_apply_ready_response of core_client.py)."""
    told = _label_count(config, "num_gpu_blocks")
    return told // len(scrape.of_all_ranks(_CONFIG)) if told is not None else None


def _usage(scrape: Scrape, name: str, config: Series) -> float | None:
    return scrape.gauge(name, engine=config.label("engine"))


def _label_count(series: Series, label: str) -> int | None:
    text = series.label(label) or ""
    return counted(float(text)) if text.isascii() and text.isdecimal() and len(text) < 16 else None


TABLE = Table(
    engine="vllm",
    prefix="vllm:",
    rank="engine",
    rows=(
        Row("running", (Name("vllm:num_requests_running", "0.4-"),)),
        Row("waiting", (Name("vllm:num_requests_waiting", "0.4-"),)),
        Row(
            "steps_total",
            (
                Name(
                    "vllm:iteration_tokens_total",
                    "by 0.8",
                    caveat="steps that gave no token to anybody (chunks of long prompts) are not counted",
                ),
            ),
            observations=True,
        ),
        Row(
            "prefilled_tokens_total",
            (
                Name(
                    "vllm:prompt_tokens_by_source_total",
                    "by 0.32",
                    only={"source": ("local_compute",)},
                    caveat="counted when a prompt is done; what is computed again after a preemption is not in it",
                ),
                Name("vllm:prompt_tokens_total", "0.4-", caveat="with tokens that were found in the prefix cache"),
            ),
        ),
        Row("generated_tokens_total", (Name("vllm:generation_tokens_total", "0.4-"),)),
        Row(
            "prefix_queried_tokens_total",
            (
                Name("vllm:prefix_cache_queries_total", "0.9.2-"),
                Name("vllm:gpu_prefix_cache_queries_total", "by 0.8, to 0.11", unless_help="blocks"),
            ),
        ),
        Row(
            "prefix_hit_tokens_total",
            (
                Name("vllm:prefix_cache_hits_total", "0.9.2-"),
                Name("vllm:gpu_prefix_cache_hits_total", "by 0.8, to 0.11", unless_help="blocks"),
            ),
        ),
        Row("drafts_total", (Name("vllm:spec_decode_num_drafts_total", "by 0.32"),)),
        Row("drafted_tokens_total", (Name("vllm:spec_decode_num_draft_tokens_total", "by 0.32"),)),
        Row("accepted_tokens_total", (Name("vllm:spec_decode_num_accepted_tokens_total", "by 0.32"),)),
        Row("preempted_total", (Name("vllm:num_preemptions_total", "0.4-", caveat=_LATE),)),
        Row("finished_total", (Name("vllm:request_success_total", "0.4-", only={"finished_reason": _ENDED}),)),
        Row("failed_total", (Name("vllm:request_success_total", "0.4-", only={"finished_reason": ("error",)}),)),
        Row("rejected_total", (Name("vllm:admission_rejections_total", "by 0.32"),)),
        Row("ttft", (Name("vllm:time_to_first_token_seconds", "0.4-"),)),
        Row(
            "itl",
            (
                Name("vllm:inter_token_latency_seconds", "0.11-"),
                Name("vllm:time_per_output_token_seconds", "0.4-0.11"),
            ),
        ),
        Row("queue_time", (Name("vllm:request_queue_time_seconds", "by 0.8"),)),
        Row("e2e", (Name("vllm:e2e_request_latency_seconds", "0.4-"),)),
    ),
    caveats=(
        Caveat("scheduler.aborted_total", "vLLM counts no request whose client went away: it is in no total at all"),
    ),
    kvcache=kvcache,
    config=config,
    logged=True,
)
