"""Blocks are held that no request's table names: the books of the pool do not balance, and here is by how much."""

from collections import Counter
from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import request_named
from inferdbg.facts.sections.kvcache import USED, KVCache
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.window import Window

_NAMED = 4
_FEW = 4


def check(window: Window) -> Iterator[Finding]:
    kvcache, requests, pulse = window.now.kvcache, window.now.requests, window.now.pulse
    if kvcache is None or requests is None or kvcache.state is None or kvcache.refcount is None:
        return
    if kvcache.columns_ns not in (None, requests.origin.mono_ns):
        return  # columns of one moment, tables of another
    now = not kvcache.columns_are_old  # old ones are only carried when they fitted together
    if now and ((pulse is not None and pulse.intent is not None) or _torn(window)):
        return  # half done, or read while it changed: the books need not balance
    counted = _total(kvcache.refcount)
    held = sum(request.block_count for request in requests.items)
    if counted == held:
        return
    if counted < held:
        yield Finding(
            cause="block_double_free",
            severity="wrong",
            confidence="likely",
            summary=f"the pool counts {text.count(counted)} holds of blocks, the requests' tables have "
            f"{text.count(held)}: {text.counted(held - counted, 'hold')} given back while held and may be given away",
            evidence=(Evidence("kvcache.refcount", f"sums up to {text.count(counted)}"),),
            next_step="inferdbg top, view KV map: look for cells whose owner does not hold them",
        )
        return
    leaked = _held_by_nobody(kvcache, requests)
    if not leaked:
        yield _doomed(kvcache, requests, counted - held)
        return
    owners = sorted({request_named(window, owner) for owner in _owners(kvcache, leaked)})
    old = len(window.snapshots) > 1 and _any_older(kvcache, leaked, window.snapshots[-2].mono_ns)
    share = text.percent(len(leaked) / kvcache.num_blocks)
    yield Finding(
        cause="block_leak",
        severity="wrong",
        confidence="sure" if old else "likely",
        summary=f"{text.counted(len(leaked), 'block')} ({share} of the pool) held by no request: leaked",
        evidence=(
            Evidence("kvcache.refcount", f"{text.count(counted)} holds against {text.count(held)} in tables"),
            Evidence("kvcache.state", "blocks " + ", ".join(map(str, leaked[:_NAMED])) + _and_more(leaked)),
            *([Evidence("kvcache.owner", "last given to " + ", ".join(owners[:_NAMED]) + _and_more(owners))]),
        ),
        next_step="look at how these requests ended: an abort or a failed admission that gave nothing back",
        since_ns=_oldest_use(kvcache, leaked),
        explains=("kv_pressure",) if len(leaked) * 10 >= kvcache.num_blocks else (),
    )


def _total(refcount: bytes) -> int:
    """The sum of these u16. Most are 0 or 1: how many are at least 1, 2, 3 is counted faster than they are added."""
    low, high = refcount[0::2], refcount[1::2]
    total = 0 if high == bytes(len(high)) else 256 * sum(high)
    for below in range(_FEW):
        low = low.translate(None, bytes((below,)))
        total += len(low)
    return total + sum(low) - _FEW * len(low)


def _torn(window: Window) -> bool:
    return any(probe.status == "torn" for probe in window.now.probes)


def _doomed(kvcache: KVCache, requests: Requests, extra: int) -> Finding:
    """Held too often by requests that still live."""
    held = Counter(block for request in requests.items for block in request.block_table())
    counts = memoryview(kvcache.refcount or b"").cast("H")
    blocks = [block for block, times in held.items() if counts[block] > times]
    named = ", ".join(map(str, blocks[:_NAMED])) + _and_more(blocks)
    return Finding(
        cause="block_leak",
        severity="wrong",
        confidence="likely",
        summary=f"{text.counted(extra, 'hold')} of blocks counted that no request has: they will not come back",
        evidence=(Evidence("kvcache.refcount", f"counts too many holds of block {named}"),),
        next_step="look at what these blocks' requests share, and at who took a hold and gave none back",
    )


def _held_by_nobody(kvcache: KVCache, requests: Requests) -> list[int]:
    tables = set().union(*(request.block_table() for request in requests.items))
    return [block for block, state in enumerate(kvcache.state or b"") if state == USED and block not in tables]


def _owners(kvcache: KVCache, blocks: list[int]) -> set[int]:
    column = memoryview(kvcache.owner or b"").cast("I")
    return {column[block] for block in blocks} if len(column) == kvcache.num_blocks else set()


def _any_older(kvcache: KVCache, blocks: list[int], horizon_ns: int) -> bool:
    """Some were not touched since the look before: no read of a moving pool has made these up."""
    column = memoryview(kvcache.last_used or b"").cast("Q")
    return len(column) == kvcache.num_blocks and any(column[block] < horizon_ns for block in blocks)


def _oldest_use(kvcache: KVCache, blocks: list[int]) -> int | None:
    column = memoryview(kvcache.last_used or b"").cast("Q")
    return min(column[block] for block in blocks) if len(column) == kvcache.num_blocks else None


def _and_more(items: list[int] | list[str]) -> str:
    return f" and {text.count(len(items) - _NAMED)} more" if len(items) > _NAMED else ""
