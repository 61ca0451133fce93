"""The KV cache in a few lines: how full, with what, and what fullness cost lately."""

from inferdbg import text
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.window import Window

from ..ink import Line, Piece, Span, dim, flow, line, stacked_bar, value, width_of
from .counters import MINUTE, minute_delta
from .marks import mark, missing


def cache_lines(window: Window, width: int) -> list[Line]:
    """A bar of blocks by state, the same as numbers, and evictions and preemptions of the last minute."""
    cache = window.now.kvcache
    if cache is None:
        return missing(window.now, "kvcache", width, "the KV cache")
    found = mark(cache.origin, window.now.mono_ns)
    share = cache.used_blocks / cache.num_blocks if cache.used_blocks is not None and cache.num_blocks else None
    words = line(value(f"{text.percent(share):>5}"), found, dim(f" of {text.count(cache.num_blocks)} blocks"))
    bar = block_bar(cache, min(80, max(8, width - width_of(words) - 1)))
    numbers = flow(_numbers(cache), width, " · ")
    return [line(bar, words), *numbers, *flow(_costs(window), width, " · ")]


def block_bar(cache: KVCache, width: int) -> Line:
    """Blocks by state: used by one request, shared, cached, free."""
    used, shared = cache.used_blocks or 0, cache.shared_blocks or 0
    parts = [
        (used - shared, "█", "used"),
        (shared, "▓", "shared"),
        (cache.cached_blocks or 0, "▒", "cached"),
        (cache.free_blocks or 0, "░", "free"),
    ]
    return stacked_bar(parts, cache.num_blocks, width)


def token_share(cache: KVCache) -> float | None:
    """Tokens in used blocks over what these blocks could hold; None when unknown or nothing is used."""
    if cache.tokens is None or not cache.used_blocks:
        return None
    return cache.tokens / (cache.used_blocks * cache.block_size)


def _numbers(cache: KVCache) -> list[Piece]:
    parts: list[Piece] = [
        line(Span("█", "used"), dim(" used "), text.count(cache.used_blocks)),
        line(Span("▓", "shared"), dim(" of them shared "), text.count(cache.shared_blocks)),
        line(Span("▒", "cached"), dim(" cached "), text.count(cache.cached_blocks)),
        line(Span("░", "free"), dim(" free "), text.count(cache.free_blocks)),
    ]
    share = token_share(cache)
    if share is not None:
        about = "~" if cache.columns_are_old else ""  # as much of the blocks unfilled as at the last look at them
        tokens = dim(f" by {about}{text.count(cache.tokens)} tokens")
        parts.append(line(dim("filled "), about, text.percent(share), tokens))
    return parts


def _costs(window: Window) -> list[Piece]:
    """What the last minute brought, as far as anything happened."""
    queried, hits = minute_delta(window, "prefix_queried_tokens_total"), minute_delta(window, "prefix_hit_tokens_total")
    parts: list[Piece] = []
    if queried and hits is not None:
        parts.append(line(dim("prefix hits "), text.percent(hits / queried)))
    evicted, preempted = minute_delta(window, "evicted_blocks_total"), minute_delta(window, "preempted_total")
    if evicted:
        parts.append(line(dim("evicted "), text.count(evicted)))
    if preempted:
        parts.append(Span(f"preempted {text.count(preempted)}", "slow"))
    recomputed, all_prefill = (
        minute_delta(window, "recomputed_tokens_total"),
        minute_delta(window, "prefilled_tokens_total"),
    )
    if recomputed and all_prefill:
        share = text.percent(recomputed / all_prefill)
        parts.append(Span(f"recomputed {text.count(recomputed)} tokens ({share} of prefill)", "slow"))
    return [dim(f"last {text.duration(min(MINUTE, window.span_ns))}"), *parts] if parts else []
