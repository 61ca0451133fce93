"""One step as a picture: whose tokens filled the budget, and which phase took the time."""

from collections.abc import Sequence
from functools import lru_cache

from inferdbg import text
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.window import Window

from ..ink import NOTHING, Line, Piece, Span, dim, fit_text, flow, line, stacked_bar, value, width_of
from .marks import mark, missing
from .names import Names, names_of
from .pulse import usual_step_ns

PHASES: tuple[tuple[str, str], ...] = (
    ("schedule", "▚"),
    ("prepare", "▒"),
    ("forward", "█"),
    ("sample", "▓"),
    ("commit", "░"),
)
"""Phases of a step in their order, with the glyph each has in a bar of time."""
_USED = 11
_SCALES = (10, 15, 20, 30, 40, 50, 60, 80, 100)
"""Columns of the tokens of a step against its budget."""


def batch_lines(window: Window, width: int) -> list[Line]:
    """The last step: a bar of its tokens against the budget, and its time by phase."""
    steps = window.now.steps
    if steps is None:
        return missing(window.now, "steps", width, "what each step ran")
    last = next(iter(window.steps(1)), None)
    if last is None:
        return [(dim("no step in the time looked at"),)]
    found = mark(steps.origin, window.now.mono_ns)
    of = "" if last.budget is None else f" of {text.count(last.budget)}"
    ran = line(value(text.count(last.prefill_tokens + last.decode_tokens)), dim(f"{of} tokens"), found)
    bar = line(dim("▕"), budget_bar(last, min(60, max(8, width - width_of(ran) - 18))), dim("▏"))
    head = line(dim(f"step {text.count(last.step)} "), bar, ran)
    return [head, *flow(_shares(last, names_of(window.now)), width, " · "), *time_lines(window, last, width)]


def budget_bar(step: Step, width: int) -> Line:
    """Prefill chunks, one glyph after another so that neighbours differ, then decodes, then what was left."""
    chunks = [chunk.tokens for chunk in step.shares.prefills()] or [step.prefill_tokens]
    parts = [
        (tokens, "▒" if index % 2 else "▓", "prefill-other" if index % 2 else "prefill")
        for index, tokens in enumerate(chunks)
    ]
    parts.append((step.decode_tokens, "█", "decode"))
    total = max(step.budget or 0, step.prefill_tokens + step.decode_tokens)
    return stacked_bar([part for part in parts if part[0]], total, width)


def phase_ns(step: Step, phase: str) -> int:
    """0 where it is not known: it has no bar then."""
    found: int | None = getattr(step, f"{phase}_ns")
    return found or 0


def time_bar(step: Step, longest_ns: float, width: int) -> Line:
    """Time by phase; ``longest_ns`` takes the whole width."""
    return stacked_bar([(phase_ns(step, phase), glyph, phase) for phase, glyph in PHASES], longest_ns, width)


def time_lines(window: Window, step: Step, width: int) -> list[Line]:
    """The step's time in words beside what is usual, then its phases, the longest first; those that took no time are
    left out. Of a step that was only seen in passing no time is known."""
    if step.total_ns is None:
        return [(dim("seen in passing: how long it took is not known"),)]
    usual = usual_step_ns(window)
    beside = line(dim(", usually "), text.duration(usual)) if usual is not None else NOTHING
    parts: list[Piece] = [line(value(text.duration(step.total_ns)), dim(" a step"), beside)]
    for phase, _ in sorted(PHASES, key=lambda item: -phase_ns(step, item[0])):
        if phase_ns(step, phase):
            parts.append(line(dim(f"{phase} "), text.duration(phase_ns(step, phase))))
    if step.idle_ns:
        parts.append(line(dim("idle before "), text.duration(step.idle_ns)))
    return flow(parts, width, " · ")


def scale_ns(steps: Sequence[Step]) -> int:
    """What fills the bars of time of these steps: the longest, rounded up, so that bars do not shrink and grow with
    every step that comes and goes. 0 where no time is known."""
    longest = max((step.total_ns or 0 for step in steps), default=0)
    unit = 10 ** (len(str(longest)) - 1)
    return next(unit * tenths // 10 for tenths in _SCALES if unit * tenths >= 10 * longest) if longest else 0


def bar_widths(width: int, longest_ns: float) -> tuple[int, int]:
    """Columns of the bar of tokens and of the bar of time, when a step has ``width`` columns for both and words. Where
    no time is known, the bar of tokens takes its place too."""
    room = max(16, width - 9 - (_USED + 2) - 8)
    return (room * 3 // 5, room - room * 3 // 5) if longest_ns else (room + 8, 0)


@lru_cache(maxsize=256)
def step_line(step: Step, width: int, longest_ns: float, ink: str = "") -> Line:
    """One step in one line: number, tokens against the budget, time by phase. ``longest_ns`` fills the bar of time."""
    tokens, times = bar_widths(width, longest_ns)
    used = text.out_of(step.prefill_tokens + step.decode_tokens, step.budget, _USED)
    number = text.count(step.step) if step.step < 1_000_000 else str(step.step)
    bar = budget_bar(step, tokens)
    work: Line = (Span(fit_text(number, 8), ink), dim("▕"), *bar, dim(f"▏{fit_text(used, _USED)}"))
    if not times:
        return work
    took = fit_text(text.duration(step.total_ns), 6, right=True)
    return (*work, dim("▕"), *time_bar(step, longest_ns, times), dim(f"▏{took}"))


def _shares(step: Step, names: Names) -> list[Piece]:
    parts: list[Piece] = []
    chunks = step.shares.prefills()
    decodes = step.shares.decodes
    for index, work in enumerate(chunks[:3]):
        ink = "prefill-other" if index % 2 else "prefill"
        parts.append(
            line(Span("▒ " if index % 2 else "▓ ", ink), dim("prefill "), f"{names(work.request)} {work.tokens}")
        )
    if len(chunks) > 3:
        more = sum(work.tokens for work in chunks[3:])
        parts.append(line(dim("and "), f"{len(chunks) - 3} more prefills {text.count(more)}"))
    if not chunks and step.prefill_tokens:
        parts.append(line(Span("▓ ", "prefill"), dim("prefill "), text.count(step.prefill_tokens)))
    if step.decode_tokens:
        each = text.counted(decodes, "request") if decodes else text.count(step.decode_tokens)
        parts.append(line(Span("█ ", "decode"), dim("decode "), each))
    if step.budget is not None:
        left = step.budget - step.prefill_tokens - step.decode_tokens
        parts.append(line(text.count(max(0, left)), dim(" unused")))
    return parts
