"""One request in words: how far it is, what it holds, what it waited for, and what it waits for."""

from inferdbg import text
from inferdbg.facts.sections.requests import Request, Reuse
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Piece, Span, dim, flow, labelled, line, value
from .names import names_of
from .queue import wait_text

LABEL = 9


def mean_itl_ns(request: Request) -> float | None:
    """Mean time between tokens; None before the second token."""
    if request.first_token_ns is None or request.last_token_ns is None or (request.output_tokens or 0) < 2:
        return None
    return (request.last_token_ns - request.first_token_ns) / ((request.output_tokens or 0) - 1)


def ttft_ns(request: Request) -> int | None:
    if request.first_token_ns is None or request.arrived_ns is None:
        return None
    return request.first_token_ns - request.arrived_ns


def age_ns(request: Request, now_ns: int) -> int | None:
    return None if request.arrived_ns is None else max(0, now_ns - request.arrived_ns)


def read_ns(snapshot: Snapshot) -> int:
    """When the requests were read: ages are as of then, like all that is said beside them."""
    return snapshot.mono_ns if snapshot.requests is None else snapshot.requests.origin.mono_ns


def prefix_share(request: Request) -> float | None:
    """Share of the prompt that was found in the prefix cache."""
    if request.cached_tokens is None or not request.prompt_tokens:
        return None
    return min(1.0, request.cached_tokens / request.prompt_tokens)


def request_lines(snapshot: Snapshot, request: Request, width: int, rows: int) -> list[Line]:
    """The panel of a request in at most ``rows`` lines; its block table takes what is left."""
    inner = width - LABEL
    stage = labelled("stage", flow(_progress(snapshot, request), inner, " · ")[:2], LABEL)
    rest = labelled("times", flow(_times(request), inner, " · "), LABEL)
    lost = _lost(request)
    if lost:
        rest += labelled("lost", flow(lost, inner, " · "), LABEL)
    room = max(1, rows - len(stage) - len(rest))
    table = labelled("table", table_lines(snapshot, request, inner, room), LABEL)
    return [*stage, *table, *rest][:rows]


def _progress(snapshot: Snapshot, request: Request) -> list[Piece]:
    cached = f" ({text.count(request.cached_tokens)} from prefix)" if request.cached_tokens else ""
    age = age_ns(request, read_ns(snapshot))
    limit = f" of {text.count(request.max_output_tokens)}" if request.max_output_tokens is not None else ""
    parts: list[Piece] = [
        value(request.stage),
        *([line(dim("arrived "), text.duration(age), dim(" ago"))] if age is not None else []),
        line(dim("prompt "), text.count(request.prompt_tokens), dim(cached)),
        line(dim("out "), f"{text.count(request.output_tokens)}{limit}"),
    ]
    if request.reuse is not None and request.reuse.missed is not None:
        parts.insert(len(parts) - 1, dim(reuse_text(request.reuse)))
    waits = wait_text(request.wait, names_of(snapshot))
    if waits:
        parts.insert(1, Span(waits, "slow"))
    return parts


def reuse_text(reuse: Reuse) -> str:
    """``~2 of 4 blocks cached, then never seen``; empty where nothing is known. ``~``: inferred."""
    if reuse.missed == "caching off":
        return "no prefix caching"
    if reuse.found_blocks is None or reuse.full_blocks is None:
        return ""
    found = f"~{text.count(reuse.found_blocks)} of {text.counted(reuse.full_blocks, 'block')} cached"
    why = {"partial block": ", the rest is no full block", "skipped": ": it wants none"}
    keys = f" under its {' and '.join(reuse.keys)}" if reuse.keys and reuse.found_blocks < reuse.full_blocks else ""
    return f"{found}{why.get(reuse.missed, f', then {reuse.missed}{keys}') if reuse.missed is not None else ''}"


def _times(request: Request) -> list[Piece]:
    ttft = ttft_ns(request)
    if ttft is None:
        return [dim("no token yet" if request.output_tokens == 0 else text.UNKNOWN)]
    parts: list[Piece] = [line(dim("TTFT "), value(text.duration(ttft)))]
    if request.scheduled_ns is not None and request.arrived_ns is not None and request.first_token_ns is not None:
        queued = max(0, request.scheduled_ns - request.arrived_ns)
        parts[0] = line(
            *line(parts[0]),
            dim(" = queue "),
            text.duration(queued),
            dim(" + prefill "),
            text.duration(ttft - queued),
        )
    parts.append(line(dim("ITL mean "), text.duration(mean_itl_ns(request))))
    parts.append(line(dim("worst "), text.duration(request.worst_itl_ns)))
    return parts


def _lost(request: Request) -> list[Piece]:
    if not request.preemptions:
        return []
    times = f"preempted {request.preemptions} time{'' if request.preemptions == 1 else 's'}"
    lost: list[Piece] = [Span(times, "slow")]
    if request.recomputed_tokens is not None:
        lost.append(line(dim("recomputed "), text.count(request.recomputed_tokens), dim(" tokens")))
    return lost


def table_lines(snapshot: Snapshot, request: Request, width: int, rows: int) -> list[Line]:
    """Block numbers in the order of the sequence; when not all fit, the first and the last ones."""
    table = request.block_table().tolist()
    if not table:
        return [(dim("holds no blocks"),)]
    size = snapshot.kvcache.block_size if snapshot.kvcache is not None else None
    tail = ""
    if size and request.computed_tokens is not None:
        in_last = request.computed_tokens - (len(table) - 1) * size
        tail = (
            f", last {in_last}/{size} full"
            if 0 < in_last <= size
            else _slots(request.computed_tokens, len(table) * size)
        )
    head = dim(f"{text.counted(len(table), 'block')}{tail}")
    digits = len(str(max(table)))
    if rows <= 1:
        room = max(2, (width - len(head.text) - 4) // (digits + 1))
        return [line(" ".join(_ends(table, room, digits)), "  ", head)]
    per_row = max(1, (width + 1) // (digits + 1))
    words = _ends(table, per_row * (rows - 1), digits)
    body = [line(" ".join(words[at : at + per_row])) for at in range(0, len(words), per_row)]
    return [(head,), *body]


def _slots(tokens: int, slots: int) -> str:
    """Blocks are given before their tokens are computed; a table that is too short was read a moment before."""
    return f", {text.count(tokens)} of {text.count(slots)} slots full" if tokens <= slots else ""


def _ends(table: list[int], most: int, digits: int) -> list[str]:
    words = [f"{block:0{digits}d}" for block in table]
    if len(words) <= most:
        return words
    tail = max(1, most // 4)
    return [*words[: max(1, most - tail - 1)], "…".center(digits), *words[-tail:]]
