"""Who holds how much of the KV cache, and what of it is shared or stays empty."""

from inferdbg import text
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Piece, dim, fit_text, flow, labelled, line, stacked_bar, value
from .names import NAME_WIDTH, names_among, owner_ink
from .once import once

LABEL = 10


@once
def holder_lines(requests: Requests, num_blocks: int, width: int, rows: int) -> list[Line]:
    """The requests with the longest block tables, each with its share of the pool."""
    holding = sorted((r for r in requests.items if r.block_count), key=lambda r: (-r.block_count, r.number))
    if not holding:
        return [(dim("no request holds a block"),)]
    shown = holding if len(holding) <= rows else holding[: rows - 1]
    names = names_among(requests)
    lines = [_holder(request, names(request.number), shown[0], num_blocks, width) for request in shown]
    if len(shown) < len(holding):
        rest = sum(request.block_count for request in holding[len(shown) :])
        others = text.counted(len(holding) - len(shown), "other request")
        lines.append(line(dim(f"and {others} with {text.counted(rest, 'block')}")))
    return lines


def _holder(request: Request, who: str, longest: Request, num_blocks: int, width: int) -> Line:
    share = text.percent(request.block_count / num_blocks) if num_blocks else ""
    bar = max(4, width - NAME_WIDTH - 30)
    return line(
        fit_text(who, NAME_WIDTH + 1),
        stacked_bar([(request.block_count, "█", owner_ink(request.number))], longest.block_count, bar),
        value(fit_text(text.count_within(request.block_count, 7), 7, right=True)),
        dim(f" blocks {share:>5}  "),
        dim(request.stage),
    )


def pool_lines(snapshot: Snapshot, cache: KVCache, width: int) -> list[Line]:
    """What sharing saves, how much room in used blocks stays empty, and what is left to give."""
    inner = width - LABEL
    held = sum(request.block_count for request in snapshot.requests.items) if snapshot.requests is not None else None
    saved = None if held is None or cache.used_blocks is None else max(0, held - cache.used_blocks)
    empty: list[Piece] = [text.UNKNOWN]
    if cache.tokens is not None and cache.used_blocks:
        slots = cache.used_blocks * cache.block_size
        unfilled = max(0, slots - cache.tokens)
        empty = [
            line(
                value(text.percent(unfilled / slots)), dim(" of the used blocks: "), text.count(unfilled), dim(" slots")
            )
        ]
    left = None
    if cache.free_blocks is not None and cache.cached_blocks is not None:
        left = cache.free_blocks + cache.cached_blocks
    spare: list[Piece] = [line(value(text.count(left)), dim(" blocks free or evictable"))]
    if left is not None:
        spare.append(line(dim("room for "), text.count(left * cache.block_size), dim(" tokens")))
    sharing: Piece = line(value(text.count(saved)), dim(" blocks more would be held without it"))
    return [
        *labelled("sharing", flow([sharing], inner, " · "), LABEL),
        *labelled("unfilled", flow(empty, inner, " · "), LABEL),
        *labelled("to give", flow(spare, inner, " · "), LABEL),
    ]
