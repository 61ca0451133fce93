"""One block in words: who holds it, which tokens are in it, how old it is, and when its turn to be evicted comes."""

from inferdbg import text
from inferdbg.facts.sections.kvcache import CACHED, COLUMN_TYPES, FREE, RESERVED, USED, KVCache
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Piece, Span, dim, flow, labelled, line, value
from .names import Names, names_of

_STATES = {FREE: "free", CACHED: "cached", USED: "used", RESERVED: "a placeholder that nobody gets"}
_LOOKED_THROUGH = 10_000


def column(cache: KVCache, name: str, block: int) -> int | None:
    """One entry of a column; None when the source does not know the column."""
    raw: bytes | None = getattr(cache, name)
    if raw is None:
        return None
    found: int = memoryview(raw).cast(COLUMN_TYPES[name])[block]  # type: ignore[call-overload]
    return found


def block_lines(snapshot: Snapshot, block: int, width: int, rows: int) -> list[Line]:
    """The panel of a block in about ``rows`` lines; ``snapshot.kvcache`` is there and has the block."""
    cache = snapshot.kvcache
    if cache is None:
        return []
    names = names_of(snapshot)
    state = column(cache, "state", block)
    refs, filled, owner = (column(cache, name, block) for name in ("refcount", "filled", "owner"))
    held = _holders(snapshot, block)
    facts: list[Piece] = [value(_STATES.get(state if state is not None else -1, text.UNKNOWN))]
    facts.append(line(dim("refs "), text.count(refs)))
    if filled is not None:
        facts.append(line(dim("filled "), f"{filled}/{cache.block_size}"))
    return [
        *labelled("state", flow(facts, width - 9, " · "), 9),
        *labelled("owner", flow(_owner(owner, state, names, held), width - 9, " · "), 9),
        *labelled("holds", _tokens(snapshot, cache, held, filled, width - 9)[: max(1, rows - 4)], 9),
        *labelled("hash", flow(_identity(snapshot, cache, block), width - 9, " · "), 9),
        *labelled("evicted", [(Span(eviction(cache, block)),)], 9),
    ]


def _owner(owner: int | None, state: int | None, names: Names, held: list[tuple[Request, int]]) -> list[Piece]:
    if not owner:
        return [dim("nobody yet" if owner == 0 else text.UNKNOWN)]
    who = value(names(owner))
    if state != USED:
        return [line(dim("was "), who)]
    others = sum(request.number != owner for request, _ in held)
    if others:
        return [who, dim(f"{others} other{'' if others == 1 else 's'} hold{'s' if others == 1 else ''} it too")]
    return [who]


def _holders(snapshot: Snapshot, block: int) -> list[tuple[Request, int]]:
    """Requests whose table contains the block, with its place there."""
    from .blockmap import holders

    items = snapshot.requests.items if snapshot.requests is not None else ()
    return [(items[index], place) for index, place in holders([request.blocks for request in items], block)]


def _tokens(
    snapshot: Snapshot, cache: KVCache, held: list[tuple[Request, int]], filled: int | None, width: int
) -> list[Line]:
    if snapshot.requests is None:
        return [(dim("requests are not seen"),)]
    if not held:
        return [(dim("in no request's table"),)]
    names = names_of(snapshot)
    parts: list[Piece] = []
    for request, place in held[:12]:
        first = place * cache.block_size
        last = first + (cache.block_size if filled is None else filled) - 1
        tokens = line(dim("tokens "), f"{first}–{last}") if last >= first else dim("no token yet")
        parts.append(line(tokens, dim(" of "), names(request.number)))
    if len(held) > 12:
        parts.append(dim(f"and in {len(held) - 12} more"))
    return flow(parts, width, " · ")


def _identity(snapshot: Snapshot, cache: KVCache, block: int) -> list[Piece]:
    prefix_hash, last_used = column(cache, "hash", block), column(cache, "last_used", block)
    words = (
        "not hashed" if prefix_hash == 0 else text.UNKNOWN if prefix_hash is None else f"{prefix_hash:016x}"[:8] + "…"
    )
    parts: list[Piece] = [words]
    if last_used:
        parts.append(line(dim("used "), text.duration(max(0, snapshot.mono_ns - last_used)), dim(" ago")))
    elif last_used == 0:
        parts.append(dim("never used"))
    return parts


def eviction(cache: KVCache, block: int) -> str:
    """Its place in the order in which blocks are given away."""
    if column(cache, "state", block) == USED:
        return "not while someone holds it"
    if column(cache, "state", block) == RESERVED:
        return "never: it is given to nobody"
    if cache.next_free is None or cache.first_free is None:
        return text.UNKNOWN
    following = memoryview(cache.next_free).cast("i")
    at, before = cache.first_free, 0
    while at != block:
        if not 0 <= at < cache.num_blocks or before >= cache.num_blocks:
            return "not in the free list"
        if before == _LOOKED_THROUGH:
            return f"after more than {text.count(_LOOKED_THROUGH)} others"
        at, before = following[at], before + 1
    return "it is the next" if before == 0 else f"after {text.count(before)} other{'' if before == 1 else 's'}"


def cell_lines(cache: KVCache, blocks: list[int], width: int) -> list[Line]:
    """What stands in the blocks behind one cell, in numbers."""
    states = [column(cache, "state", block) for block in blocks]
    parts: list[Piece] = [
        line(dim(f"{word} "), text.count(states.count(state)))
        for state, word in ((USED, "used"), (CACHED, "cached"), (FREE, "free"))
    ]
    return flow(parts, width, " · ")
