"""The columns of the table of requests: what each shows, how it sorts, and which give way when room is short."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from inferdbg import text
from inferdbg.facts.sections.requests import Request

from ..ink import Line, Span, fit_text
from .names import Names
from .queue import wait_text
from .request import age_ns, mean_itl_ns, prefix_share, ttft_ns

_STAGES = ("decode", "prefill", "waiting", "preempted", "finished")
_STAGE_INKS = {"decode": "decode", "prefill": "prefill", "waiting": "note", "preempted": "slow", "finished": "dim"}
Sortable = float | str
_OUT = 11
"""Columns of the tokens given out against how many may be."""
_BEFORE_REASON = 6
"""Where there is no room for the column of reasons, the reason stands in place of the columns below this rank."""


class Column(Struct, frozen=True):
    """``rank``: what is dropped first has the lowest. ``show`` and ``value``: of a request as it was at that time;
    ``value`` is what it sorts by, None last in either order.
    ``stretches``: it takes the room that is left."""

    title: str
    width: int
    rank: int
    show: Callable[[Request, int, Names], str]
    value: Callable[[Request, int], Sortable | None]
    right: bool = True
    descends: bool = True
    stretches: bool = False

    def sort_key(self, request: Request, now_ns: int) -> tuple[int, Sortable, int]:
        found = self.value(request, now_ns)
        if found is None:
            return (-1 if self.descends else 1, 0, request.number)
        return (0, found, request.number)


def _blank(value: str) -> str:
    return "" if value == text.UNKNOWN else value


def _out(request: Request) -> str:
    return text.out_of(request.output_tokens, request.max_output_tokens, _OUT)


def _preemptions(request: Request) -> str:
    return text.count_within(request.preemptions, 7) if request.preemptions else ""


COLUMNS: tuple[Column, ...] = (
    Column("request", 14, 9, lambda r, now, n: n(r.number), lambda r, now: r.number, right=False, descends=False),
    Column("stage", 9, 9, lambda r, now, n: r.stage, lambda r, _: _STAGES.index(r.stage), right=False, descends=False),
    Column("age", 6, 8, lambda r, now, n: text.duration(age_ns(r, now)), lambda r, now: age_ns(r, now)),
    Column("blocks", 6, 7, lambda r, now, n: text.count_within(r.block_count, 6), lambda r, now: r.block_count),
    Column("prompt", 6, 6, lambda r, now, n: text.count_within(r.prompt_tokens, 6), lambda r, now: r.prompt_tokens),
    Column("prefix", 6, 4, lambda r, now, n: _blank(text.percent(prefix_share(r))), lambda r, now: prefix_share(r)),
    Column("out", _OUT, 5, lambda r, now, n: _out(r), lambda r, now: r.output_tokens),
    Column("TTFT", 6, 5, lambda r, now, n: _blank(text.duration(ttft_ns(r))), lambda r, now: ttft_ns(r)),
    Column("ITL", 6, 5, lambda r, now, n: _blank(text.duration(mean_itl_ns(r))), lambda r, now: mean_itl_ns(r)),
    Column("worst", 6, 3, lambda r, now, n: _blank(text.duration(r.worst_itl_ns)), lambda r, now: r.worst_itl_ns),
    Column("preempt", 7, 2, lambda r, now, n: _preemptions(r), lambda r, now: r.preemptions),
    Column("waits for", 24, 1, lambda r, now, n: wait_text(r.wait, n), lambda r, now: r.wait.reason if r.wait else None,
           right=False, descends=False, stretches=True),
)  # fmt: skip


def fitting(width: int) -> list[tuple[Column, int]]:
    """The columns that fit, each with its width."""
    kept = list(COLUMNS)
    while sum(column.width + 1 for column in kept) > width and len(kept) > 1:
        kept.remove(min(kept, key=lambda column: column.rank))
    left = width - sum(column.width + 1 for column in kept)
    return [(column, column.width + (max(0, left) if column.stretches else 0)) for column in kept]


def heading(columns: Sequence[tuple[Column, int]], sort: Column, reverse: bool) -> Line:
    """Titles, the one that orders the rows with an arrow."""
    spans = [Span(" ", "label")]
    for column, width in columns:
        here = column is sort
        title = f"{column.title}{('▼' if reverse else '▲') if here else ''}"
        spans.append(Span(fit_text(title, width, right=column.right) + " ", "accent" if here else "label"))
    return tuple(spans)


def row(request: Request, columns: Sequence[tuple[Column, int]], now_ns: int, names: Names, *, selected: bool) -> Line:
    spans = [Span("▶" if selected else " ", "cursor" if selected else "")]
    waits = wait_text(request.wait, names)
    squeezed = bool(waits) and not any(column.stretches for column, _ in columns)
    left = sum(width + 1 for _, width in columns)
    for column, width in columns:
        if squeezed and column.rank < _BEFORE_REASON:
            break
        shown = fit_text(column.show(request, now_ns, names), width, right=column.right) + " "
        ink = _STAGE_INKS[request.stage] if column.title == "stage" else "slow" if column.title == "waits for" else ""
        spans.append(Span(shown, "cursor" if selected else ink))
        left -= width + 1
    else:
        return tuple(spans)
    return (*spans, Span(fit_text(f" {waits}", left), "cursor" if selected else "slow"))


def matches(request: Request, wanted: str, names: Names) -> bool:
    """Whether its name as the client or the screen writes it, its number, stage or reason contains what is wanted."""
    if not wanted:
        return True
    wait = wait_text(request.wait, names)
    reason = request.wait.reason if request.wait is not None else ""
    return any(
        wanted.lower() in field.lower()
        for field in (request.id, names(request.number), f"#{request.number}", request.stage, wait, reason)
    )
