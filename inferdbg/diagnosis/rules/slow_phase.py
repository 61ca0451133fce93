"""Something else than arithmetic takes most of a step: choosing, preparing, sampling or storing."""

from collections.abc import Iterator
from statistics import median

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.lately import steps_of
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.window import SECOND, Window

_OVER_NS = 10 * SECOND
_ENOUGH = 8  # steps
_NOTABLE_NS = 5_000_000  # below that a tiny model's steps would be blamed


def check(window: Window) -> Iterator[Finding]:
    steps = [
        step
        for step in steps_of(window, _OVER_NS)
        if step.prefill_tokens + step.decode_tokens and step.total_ns is not None
    ]
    if len(steps) < _ENOUGH:
        return
    spent_ns = sum(step.total_ns or 0 for step in steps)
    for phase in ("schedule", "prepare", "sample", "commit"):
        phase_ns = [_phase_ns(step, phase) for step in steps]
        typical_ns = round(median(phase_ns))
        if 2 * sum(phase_ns) < spent_ns or typical_ns < _NOTABLE_NS:
            continue
        yield Finding(
            cause=f"slow_{phase}",
            severity="slow",
            confidence="sure",
            summary=f"{text.percent(sum(phase_ns) / spent_ns)} of a step goes into {phase}: "
            f"{text.duration(typical_ns)}, the forward pass takes "
            f"{text.duration(median(step.forward_ns or 0 for step in steps))}",
            evidence=(Evidence(f"steps.{phase}_ns", f"median of the last {len(steps)} steps"),),
            next_step="py-spy top --nonblocking --pid "
            + (str(window.now.server.pid) if window.now.server is not None and window.now.server.pid else "PID"),
            since_ns=steps[0].start_ns,
        )


def _phase_ns(step: Step, phase: str) -> int:
    found: int | None = getattr(step, f"{phase}_ns")
    return found or 0
