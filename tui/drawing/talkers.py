"""Who the load comes from: requests that have something in common, those that hold most of the KV cache first."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from inferdbg import text
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Span, dim, fit_text
from .names import names_of
from .once import once

_LENGTHS = (256, 1024, 4096, 16384)
_FIGURES: tuple[tuple[str, int, int], ...] = (
    ("requests", 8, 9), ("wait", 5, 8), ("blocks", 8, 9), ("of used", 7, 7), ("prompt", 7, 5), ("reused", 6, 6),
    ("out", 7, 4),
)  # fmt: skip
"""Title, width, and rank: what is dropped first where room is short has the lowest."""


class Talker(NamedTuple):
    """Requests of one group. ``blocks``: that they hold, those that several of them share counted once.
    ``prompt_tokens``, ``cached_tokens`` (of these, found in the prefix cache) and ``output_tokens`` are sums over
    those of which they are known."""

    key: str
    requests: tuple[Request, ...]
    blocks: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def waiting(self) -> int:
        return sum(request.stage in ("waiting", "preempted") for request in self.requests)


def offered(requests: Requests) -> list[str]:
    """By what these requests can be told apart."""
    items = requests.items
    adapters, clients = {request.adapter for request in items}, {request.client for request in items}
    known = {
        "prefix": any(request.blocks or request.reuse is not None for request in items),
        "adapter": bool(adapters - {None}),
        "client": len(clients) > 1,
        "length": any(request.prompt_tokens is not None for request in items),
    }
    return [by for by, is_known in known.items() if is_known]


@once
def talkers(requests: Requests, by: str) -> Sequence[Talker]:
    """Those that hold most blocks first, then those with most requests."""
    going = [request for request in requests.items if request.stage != "finished"]
    groups = defaultdict[str, list[Request]](list)
    for request, key in zip(going, _KEYS[by](going), strict=True):
        groups[key].append(request)
    found = [_talker(key, group) for key, group in groups.items()]
    return sorted(found, key=lambda talker: (-talker.blocks, -len(talker.requests), talker.requests[0].number))


def _talker(key: str, group: Sequence[Request]) -> Talker:
    return Talker(
        key,
        tuple(group),
        len(set[int]().union(*(request.block_table() for request in group))),
        sum(request.prompt_tokens or 0 for request in group),
        sum(request.cached_tokens or 0 for request in group),
        sum(request.output_tokens or 0 for request in group),
    )


def _prefixes(requests: Sequence[Request]) -> Iterable[str]:
    """By the hash of the first block of the prompt where it is known, else by the first block that they hold."""
    for request in requests:
        if request.reuse is not None and request.reuse.prefix is not None:
            yield request.reuse.prefix[:8]
        elif request.blocks:
            yield f"block {request.block_table()[0]}"
        else:
            yield "not known yet"


def _length(request: Request) -> str:
    tokens = request.prompt_tokens
    if tokens is None:
        return "not known yet"
    bound = next((bound for bound in _LENGTHS if tokens <= bound), None)
    return f"prompts up to {text.count(bound)}" if bound is not None else f"prompts over {text.count(_LENGTHS[-1])}"


_KEYS: dict[str, Callable[[Sequence[Request]], Iterable[str]]] = {
    "prefix": _prefixes,
    "adapter": lambda requests: [request.adapter or "no adapter" for request in requests],
    "client": lambda requests: [
        "not known" if request.client is None else f"front end {request.client}" for request in requests
    ],
    "length": lambda requests: map(_length, requests),
}


def talker_lines(snapshot: Snapshot, by: str, width: int, rows: int) -> list[Line]:
    """Titles, then a line a group with one of its requests for example; the last one says how many more there are."""
    requests = snapshot.requests
    found = talkers(requests, by) if requests is not None else ()
    names = names_of(snapshot)
    used = snapshot.kvcache.used_blocks if snapshot.kvcache is not None else None
    columns = list(_FIGURES)
    while sum(wide + 1 for _, wide, _ in columns) > width - 26 and columns:
        columns.remove(min(columns, key=lambda column: column[2]))
    room = max(10, width - 1 - sum(wide + 1 for _, wide, _ in columns))
    titles = "".join(f" {fit_text(title, wide, right=True)}" for title, wide, _ in columns)
    lines: list[Line] = [(Span(f" {fit_text(f'by {by}', room)}{titles}", "label"),)]
    shown = found if len(found) <= rows - 1 else found[: max(0, rows - 2)]
    wide_key = min(room - 2, max((len(talker.key) for talker in shown), default=0))
    for talker in shown:
        figures = _figures(talker, used)
        said = "".join(f" {fit_text(figures[title], wide, right=True)}" for title, wide, _ in columns)
        named = dim(fit_text(names(talker.requests[0].number), room - wide_key - 2))
        lines.append((Span(f" {fit_text(talker.key, wide_key)}  "), named, Span(said)))
    if len(shown) < len(found):
        lines.append((dim(f"  and {len(found) - len(shown)} more"),))
    return lines


def _figures(talker: Talker, used: int | None) -> dict[str, str]:
    reused = talker.cached_tokens / talker.prompt_tokens if talker.prompt_tokens else None
    return {
        "requests": text.count(len(talker.requests)),
        "wait": text.count(talker.waiting) if talker.waiting else "",
        "blocks": text.count_within(talker.blocks, 8),
        "of used": text.percent(talker.blocks / used) if used else "",
        "prompt": text.short(talker.prompt_tokens),
        "reused": text.percent(reused) if reused is not None else "",
        "out": text.short(talker.output_tokens),
    }
