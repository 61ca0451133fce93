"""What clients feel: tokens per second in and out, time to first token and between tokens."""

from inferdbg import text
from inferdbg.facts.window import SECOND, Counter, Window

from ..ink import Line, Piece, Span, beside, chart, dim, fit_text, flow, line, value, width_of
from .counters import MINUTE, Buckets, generated, itl, minute_delta, prefilled, ttft
from .marks import mark, missing

_STANDS_NS = 5 * SECOND


def tokens_lines(window: Window, width: int, rows: int = 1) -> list[Line]:
    """Tokens per second over the last 10 s, out of the model and into it, and how they went over the last minute."""
    scheduler = window.now.scheduler
    if scheduler is None:
        return missing(window.now, "scheduler", width, "tokens and queues")
    found = mark(scheduler.totals_origin, window.now.mono_ns)
    half = (width - 3) // 2
    left = _rate_lines("out", generated, window, half, rows, found)
    right = _rate_lines("in", prefilled, window, half, rows, found)
    return beside(left, right, half, "   ")


def _rate_lines(label: str, counter: Counter, window: Window, width: int, rows: int, found: Span) -> list[Line]:
    per_second = window.rate(counter, 10 * SECOND, section="scheduler")
    if counter is generated and window.rate(counter, _STANDS_NS, section="scheduler") == 0:
        per_second = 0.0  # beside a server that stands, what it did before is no rate
    head = line(dim(f"{label:<4}"), value(fit_text(text.short(_whole(per_second)), 4, right=True)), found, " ")
    points = min(60, width - width_of(head))
    if points < 8:
        return [head]
    drawn = chart(window.rates(counter, points, MINUTE, "scheduler"), rows, "accent")
    space = Span(" " * width_of(head))
    return [line(head if index == 0 else space, drawn_line) for index, drawn_line in enumerate(drawn)]


def _whole(number: float | None) -> float | None:
    return number if number is None or number < 10 else round(number)


def latency_lines(window: Window, width: int) -> list[Line]:
    """Medians and 95th percentiles of the last minute, with a mark where the last 10 s are clearly worse or better."""
    scheduler = window.now.scheduler
    if scheduler is None:
        return missing(window.now, "scheduler", width, "latencies")
    found = mark(scheduler.totals_origin, window.now.mono_ns)
    seen_ns = max(window.read_span_ns(histogram, MINUTE, "scheduler") for histogram in (ttft, itl))
    parts = [
        _latency("TTFT", ttft, "no first token", window, found),
        _latency("ITL", itl, "no further token", window, found),
    ]
    if seen_ns > 0:
        parts.append((dim(f"last {text.duration(seen_ns)}"),))
    elif len(window.snapshots) == 1 or any(window.percentile(one, 0.5, MINUTE) is not None for one in (ttft, itl)):
        parts.append((dim("since the start"),))
    return flow(parts, width, "   ")


def draft_lines(window: Window, width: int) -> list[Line]:
    """What speculation brought in the last minute, or since the start where this is the first look; nothing where
    nothing was drafted."""
    scheduler = window.now.scheduler
    if scheduler is None:
        return []
    if len(window.snapshots) > 1:
        names = ("drafts_total", "drafted_tokens_total", "accepted_tokens_total")
        drafts, drafted, accepted = (minute_delta(window, name) for name in names)
    else:
        drafts, drafted = scheduler.drafts_total, scheduler.drafted_tokens_total
        accepted = scheduler.accepted_tokens_total
    if not drafts or not drafted or accepted is None:
        return []
    parts: list[Piece] = [
        line(
            value(text.percent(accepted / drafted)), dim(" accepted"), mark(scheduler.totals_origin, window.now.mono_ns)
        ),
        dim(f"{drafted / drafts:.1f} tokens a draft"),
        line(value(f"{1 + accepted / drafts:.1f}"), dim(" tokens a step with one, 1 without")),
    ]
    return flow(parts, width, " · ")


def _latency(label: str, histogram: Buckets, nothing: str, window: Window, found: Span) -> Line:
    """``nothing``: what did not come, when the time looked at has no such latency."""
    half, most = (window.percentile(histogram, q, MINUTE) for q in (0.5, 0.95))
    if half is None and len(window.snapshots) > 1 and not window.read_span_ns(histogram, MINUTE, "scheduler"):
        return line(dim(f"{label} "), text.UNKNOWN)  # read once: what came since then is not known
    if half is None:
        whole = histogram(window.now)
        if whole is None and generated(window.now) != 0:
            return line(dim(f"{label} "), text.UNKNOWN)
        ever = whole is not None and whole.percentile(0.5) is not None
        return line(dim(f"{label} "), dim(nothing if ever else f"{nothing} yet"))
    return line(
        dim(f"{label} p50 "),
        value(fit_text(text.duration(half), 6)),
        dim(" p95 "),
        value(fit_text(text.duration(most), 6)),
        _trend(histogram, window),
        found,
    )


def _trend(histogram: Buckets, window: Window) -> Span:
    """▲ when p95 of the last 10 s is a quarter above that of the minute, ▼ when a fifth below."""
    if window.span_ns < 20 * SECOND:
        return Span(" ")
    minute, lately = window.percentile(histogram, 0.95, MINUTE), window.percentile(histogram, 0.95, 10 * SECOND)
    if not minute or lately is None:
        return Span(" ")
    if lately > 1.25 * minute:
        return Span("▲", "slow")
    return Span("▼", "ok") if lately < 0.8 * minute else Span(" ")
