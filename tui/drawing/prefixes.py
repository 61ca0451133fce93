"""Which blocks can be reused and which prefixes are shared, where only the server's KV events tell of them."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.sections.prefixes import Prefix, Prefixes, PrefixPool
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Counter, Window

from ..ink import NOTHING, Line, Piece, Span, dim, fit_text, flow, line, paragraph, stacked_bar, value
from .marks import mark

_BAR = 24


def prefix_lines(window: Window, width: int) -> list[Line]:
    """Blocks by pool, how they come and go, how deep they lie, and the prefixes that save most. None of it says which
    request holds a block."""
    found = window.now.prefixes
    if found is None:
        return []
    doubt = paragraph(f"not everything is known: {text.safe(found.why)}", width, "slow") if not found.complete else []
    lines = [*flow([dim("blocks that can be reused"), *_churn(window, found)], width), *doubt]
    for pool in found.pools:
        lines += [*flow(_pool(pool, found, window), width, " · "), *_depths(pool, width)]
    return [*lines, NOTHING, *_shared(found.shared, len(found.pools) > 1, width)]


def _churn(window: Window, found: Prefixes) -> list[Piece]:
    def per_second(counter: Counter) -> str:
        rate = window.rate(counter, 10 * SECOND, "prefixes")
        return f"{text.short(rate if rate is None or rate < 10 else round(rate))}/s"

    parts: list[Piece] = [
        line(dim("stored "), per_second(lambda snapshot: _total(snapshot, "stored_blocks_total"))),
        line(dim("removed "), per_second(lambda snapshot: _total(snapshot, "removed_blocks_total"))),
    ]
    if found.cleared_total:
        parts.append(line(dim("cleared "), text.counted(found.cleared_total, "time")))
    return parts


def _total(snapshot: Snapshot, name: str) -> int | None:
    return None if snapshot.prefixes is None else int(getattr(snapshot.prefixes, name))


def _pool(pool: PrefixPool, found: Prefixes, window: Window) -> list[Piece]:
    marked = mark(found.origin, window.now.mono_ns)
    parts: list[Piece] = [
        line(value(text.count(pool.blocks)), marked, dim(f" blocks × {pool.block_size} tokens in "), _name(pool)),
        line(text.count(pool.ends), dim(" ends, deepest "), text.count(pool.deepest), dim(" blocks")),
    ]
    if pool.copies:
        parts.append(line(text.count(pool.copies), dim(" copies")))
    if pool.detached:
        parts.append(line(text.count(pool.detached), dim(" without the block before")))
    return parts


def _depths(pool: PrefixPool, width: int) -> list[Line]:
    """A bar for each range of depths that has blocks."""
    most = max(pool.depths, default=0)
    lines: list[Line] = []
    for at, blocks in enumerate(pool.depths):
        if blocks:
            name = fit_text(_range(at), 12, right=True)
            bar = stacked_bar([(blocks, "▒", "cached")], most, min(_BAR, max(4, width - 30)))
            lines.append(line(dim(f"{name} deep "), bar, f" {text.count(blocks)}"))
    return lines


def _range(at: int) -> str:
    """The depths of a bucket: 1, 2, 3-4, 5-8."""
    return str(at + 1) if at < 2 else f"{2 ** (at - 1) + 1}-{2**at}"


def _shared(shared: Sequence[Prefix], several: bool, width: int) -> list[Line]:
    if not shared:
        return [line(dim("no prefix is shared by several continuations"))]
    head = line(dim(f"{'shared prefix':<18}{'tokens':>8}{'ways on':>9}{'ends':>7}{'saved':>8}"))
    rows = [
        line(
            f"{one.hash:<18}{text.short(one.tokens):>8}{text.short(one.branches):>9}{text.short(one.ends):>7}",
            value(f"{text.short(one.tokens * (one.ends - 1)):>8}"),
            Span(f"  {_where(one)}" if several else "", "dim"),
        )
        for one in shared
    ]
    return [head, *rows]


def _name(pool: PrefixPool) -> str:
    return f"{_where(pool)}{f' ({text.safe(pool.kind, 24)})' if pool.kind else ''}"


def _where(one: PrefixPool | Prefix) -> str:
    group = f" group {one.group}" if one.group else ""
    rank = f" of rank {one.rank}" if one.rank else ""
    return f"{text.safe(one.medium or 'memory', 24)}{group}{rank}"
