"""/metrics: the engine's columns and the server's counts in Prometheus text, under the names that dashboards know.

The suffixes are those of vLLM's metrics, so that a dashboard for it needs another prefix and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from ..hooks import EngineFacts
from ..state import BUCKETS_NS, Column, Counter, PoolWord, Stage, WaitReason
from .health import ITERATION_BOUNDS, Vitals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "inferdbg:"

_COUNTERS: tuple[tuple[str, Counter, str], ...] = (
    ("prompt_tokens", Counter.PREFILLED_TOKENS, "Prefill tokens computed, recomputed ones included."),
    ("generation_tokens", Counter.GENERATED_TOKENS, "Tokens generated."),
    ("recomputed_tokens", Counter.RECOMPUTED_TOKENS, "Prefill tokens computed again after a preemption."),
    ("num_preemptions", Counter.PREEMPTED, "Requests that lost their blocks to another one."),
    ("prefix_cache_queries", Counter.PREFIX_QUERIED_TOKENS, "Tokens looked up in the prefix cache."),
    ("prefix_cache_hits", Counter.PREFIX_HIT_TOKENS, "Of them, found."),
    ("evicted_blocks", Counter.EVICTED_BLOCKS, "Cached blocks that were given to somebody else."),
    ("copied_blocks", Counter.COPIED_BLOCKS, "Blocks copied on write."),
    ("admission_rejections", Counter.REJECTED, "Requests refused by the engine: too long, or the queue was full."),
    ("engine_steps", Counter.STEPS, "Steps of the engine."),
)
_GAUGES: tuple[tuple[str, Counter, str], ...] = (
    ("num_requests_running", Counter.RUNNING, "Requests that hold blocks."),
    ("num_requests_waiting", Counter.WAITING, "Requests in the queue."),
    ("num_requests_preempted", Counter.PREEMPTED_NOW, "Of them, those that ran before."),
)
_HISTOGRAMS: tuple[tuple[str, str, str], ...] = (
    ("time_to_first_token_seconds", "ttft", "From arrival to the first token."),
    ("inter_token_latency_seconds", "itl", "Between two tokens of a request."),
    ("e2e_request_latency_seconds", "e2e", "From arrival to the last token."),
    ("request_queue_time_seconds", "queue_time", "From arrival until first scheduled."),
)
_POOL = (("free", PoolWord.FREE), ("cached", PoolWord.CACHED), ("used", PoolWord.USED))


class EngineCollector(Collector):
    """Reads columns while the engine writes them: each number is sound, two of them may be a step apart."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        facts: EngineFacts,
        vitals: Vitals,
        finished: Mapping[str, int],
        model_name: str,
    ) -> None:
        self._columns = columns
        self._facts = facts
        self._vitals = vitals
        self._finished = finished
        self._model_name = model_name

    def collect(self) -> Iterator[Metric]:
        names, values = ["model_name"], [self._model_name]
        counters, pool = self._columns["counters"], self._columns["pool"]
        for name, word, help_text in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, help_text, labels=names)
            gauge.add_metric(values, counters[word])
            yield gauge
        for name, word, help_text in _COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, help_text, labels=names)
            counter.add_metric(values, counters[word])
            yield counter
        usage = GaugeMetricFamily(PREFIX + "kv_cache_usage_perc", "Share of the blocks in use, 0 to 1.", labels=names)
        usage.add_metric(values, pool[PoolWord.USED] / max(1, sum(pool[place] for _, place in _POOL)))
        yield usage
        blocks = GaugeMetricFamily(PREFIX + "kv_cache_blocks", "Blocks by state.", labels=[*names, "state"])
        for state, place in _POOL:
            blocks.add_metric([*values, state], pool[place])
        yield blocks
        success = CounterMetricFamily(
            PREFIX + "request_success", "Requests that ended, by how.", labels=[*names, "finished_reason"]
        )
        for reason, count in self._finished.items():
            success.add_metric([*values, reason], count)
        yield success
        yield self._waiting_by_reason(names, values)
        yield from self._histograms(names, values)
        yield self._cache_config()

    def _histograms(self, names: list[str], values: list[str]) -> Iterator[Metric]:
        edges_s = [edge / 1e9 for edge in BUCKETS_NS]
        for name, column_name, help_text in _HISTOGRAMS:
            column = self._columns[f"histograms.{column_name}"]
            counts, sum_ns = column[: len(BUCKETS_NS) + 1], column[len(BUCKETS_NS) + 1]
            family = HistogramMetricFamily(PREFIX + name, help_text, labels=names)
            family.add_metric(values, _buckets(edges_s, counts), sum_ns / 1e9)
            yield family
        family = HistogramMetricFamily(PREFIX + "iteration_tokens_total", "Tokens computed in a step.", labels=names)
        buckets = _buckets(ITERATION_BOUNDS, self._vitals.iteration_counts)
        family.add_metric(values, buckets, self._vitals.iteration_sum)
        yield family

    def _waiting_by_reason(self, names: list[str], values: list[str]) -> Metric:
        counts = [0] * len(WaitReason)
        columns = self._columns["requests.stage"].tolist(), self._columns["requests.wait_reason"].tolist()
        for stage, reason in zip(*columns, strict=True):
            if stage in (Stage.WAITING, Stage.PREEMPTED):
                counts[reason] += 1
        family = GaugeMetricFamily(
            PREFIX + "num_requests_waiting_by_reason", "What waiting requests wait for.", labels=[*names, "reason"]
        )
        for reason in WaitReason:
            if reason is not WaitReason.NONE:
                family.add_metric([*values, reason.name.lower()], counts[reason])
        return family

    def _cache_config(self) -> Metric:
        config, model = self._facts.config, self._facts.model
        labels = {
            "block_size": config["block_size"],
            "num_gpu_blocks": config["num_blocks"],  # the field's name; they lie wherever the backend computes
            "enable_prefix_caching": config["prefix_caching"],
            "cache_dtype": model["kv_dtype"],
        }
        info = GaugeMetricFamily(PREFIX + "cache_config_info", "How the KV cache is laid out.", labels=list(labels))
        info.add_metric([str(value) for value in labels.values()], 1)
        return info


class Metrics:
    """``render()`` is one scrape."""

    def __init__(self, collector: EngineCollector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)


def _buckets(edges: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative, as (le, count)."""
    names = [*(f"{edge:g}" for edge in edges), "+Inf"]
    return list(zip(names, map(float, accumulate(counts)), strict=True))
