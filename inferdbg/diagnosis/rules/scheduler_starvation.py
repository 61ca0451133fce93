"""Prefill chunks fill the token budget, and the streams that decode in the same steps stutter."""

from collections.abc import Iterator
from statistics import median

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import median_ns, steps_of
from inferdbg.diagnosis.options import option_or_words
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.window import SECOND, Window

_OVER_NS = 30 * SECOND
_ENOUGH = 8  # steps of either kind, before their medians are compared
_FULL = 0.9
_MUCH_LONGER = 3
_NOTABLE_NS = 50_000_000  # below that nobody sees a stutter


def check(window: Window) -> Iterator[Finding]:
    p95_ns = window.percentile(lambda s: s.scheduler.itl if s.scheduler else None, 0.95, _OVER_NS)
    if p95_ns is None or p95_ns < _NOTABLE_NS:
        return
    steps = [step for step in steps_of(window, _OVER_NS) if step.decode_tokens]
    crowded = [step for step in steps if step.prefill_tokens and _is_full(step) and step.total_ns is not None]
    if len(crowded) < _ENOUGH:
        return
    alone = [step for step in steps if not step.prefill_tokens and step.total_ns is not None]
    if len(alone) < _ENOUGH:
        return
    alone_ns, crowded_ns = median_ns(alone), median_ns(crowded)
    if min(crowded_ns, p95_ns) < _MUCH_LONGER * alone_ns or crowded_ns < _NOTABLE_NS:
        return
    yield Finding(
        cause="scheduler_starvation",
        severity="slow",
        confidence="likely",
        summary=f"long prefills make decoding stutter: a step takes {text.duration(crowded_ns)} when prefill fills the "
        f"budget and {text.duration(alone_ns)} otherwise; ITL p95 {text.duration(p95_ns)}",
        evidence=(
            Evidence("steps", f"{len(crowded)} of {len(steps)} decoding steps were filled with prefill"),
            Evidence("scheduler.itl", f"p95 {text.duration(p95_ns)} against steps of {text.duration(alone_ns)} alone"),
        ),
        next_step=f"lower {option_or_words(window, 'token budget')} to {_budget(alone_ns, crowded)}: "
        "such a step then takes about twice as long as one of decodes alone",
        since_ns=crowded[0].start_ns,
    )


def _is_full(step: Step) -> bool:
    return step.prefill_tokens >= _FULL * ((step.budget or 0) - step.decode_tokens) > 0


def _budget(alone_ns: int, crowded: list[Step]) -> int:
    """Decodes, and as many prefill tokens as cost what the decodes alone do, the cost being linear in tokens."""
    extra_ns = median_ns(crowded) - alone_ns
    prefill = median(step.prefill_tokens for step in crowded)
    decode = median(step.decode_tokens for step in crowded)
    return max(1, round(decode + prefill * alone_ns / extra_ns))
