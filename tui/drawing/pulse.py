"""What the engine does this very moment, and whether it stands still as the findings say."""

from collections.abc import Sequence
from statistics import median

from inferdbg import text
from inferdbg.diagnosis.finding import Finding
from inferdbg.diagnosis.roles import with_role
from inferdbg.facts.sections.pulse import Intent
from inferdbg.facts.window import Window

from ..ink import Line, Piece, Span, dim, flow
from .marks import mark, missing
from .names import names_of

_TURNS = "scheduler_livelock"
"""Stuck, but its steps go by."""
WORKING = ("schedule", "prepare", "forward", "sample", "commit")


def usual_step_ns(window: Window) -> float | None:
    """Median time of the last sixty steps; None when none was timed."""
    times = [step.total_ns for step in window.steps(60) if step.total_ns is not None]
    return median(times) if times else None


def now_lines(window: Window, findings: Sequence[Finding], width: int) -> list[Line]:
    """Step, phase and for how long, layer, kernel; in red when a finding says that it stands still, in the past tense
    when it is dead."""
    snapshot = window.now
    pulse = snapshot.pulse
    if pulse is None:
        return missing(snapshot, "pulse", width, "what the engine does now")
    dead = snapshot.server is not None and snapshot.server.state == "dead" and not with_role(snapshot, "engine core")
    still = not dead and any(found.severity == "stuck" and found.cause != _TURNS for found in findings)
    strong = "dead" if dead else "stuck" if still else "value"
    parts: list[Piece] = [
        Span(f"step {text.count(pulse.step)}"),
        Span(f"died in {pulse.phase}" if dead else pulse.phase, strong),
    ]
    since_ns = snapshot.mono_ns - pulse.phase_since_ns
    usual = usual_step_ns(window) if still else None
    if not dead and pulse.phase_since_ns and since_ns > 0:
        lasts = text.lasting(since_ns, at_least=pulse.phase_since_ns == pulse.seen_from_ns)
        parts.append(Span(f"for {lasts}", strong if still else ""))
    if usual is not None:
        parts.append(dim(f"a whole step usually takes {text.duration(usual)}"))
    if pulse.layer is not None:
        parts.append(Span(f"layer {pulse.layer}", strong if still else ""))
    parts.extend(_kernel(pulse.kernel, _running_kernels(window), strong if dead or still else ""))
    work = _running_work(window) if dead or still else ""
    if work:
        parts.append(Span(work, strong))
    if pulse.intent is not None:
        parts.append(Span(_intent(window, pulse.intent), strong))
    if still and pulse.phase not in WORKING and pulse.heartbeat_ns is not None:
        parts.append(Span(f"no heartbeat for {text.duration(snapshot.mono_ns - pulse.heartbeat_ns)}", "stuck"))
    lines = flow(parts, width, " · ")
    found = mark(pulse.origin, snapshot.mono_ns)
    return [(*lines[0], found), *lines[1:]] if found.text and not dead else lines


def _running_work(window: Window) -> str:
    """What the step that is not over works on: ``on prefill r-91 256 and 9 decodes``."""
    running = window.now.steps.running if window.now.steps is not None else None
    if running is None:
        return ""
    names = names_of(window.now)
    chunks = [f"{names(chunk.request)} {chunk.tokens}" for chunk in running.shares.prefills()]
    said = (
        [f"prefill {', '.join(chunks[:2])}{f' and {len(chunks) - 2} more' if len(chunks) > 2 else ''}"]
        if chunks
        else []
    )
    if running.decode_tokens:
        said.append(text.counted(running.decode_tokens, "decode"))
    return f"on {' and '.join(said)}" if said else ""


def _running_kernels(window: Window) -> int | None:
    pulse = window.now.pulse
    if pulse is None or pulse.kernels_launched is None or pulse.kernels_completed is None:
        return None
    return pulse.kernels_launched - pulse.kernels_completed


def _kernel(kernel: str | None, running: int | None, ink: str) -> list[Piece]:
    if kernel is None:
        return []
    state = "" if not running else " has not returned" if ink else " running"
    return [Span(f"kernel {text.safe(kernel)}{state}", ink)]


def _intent(window: Window, intent: Intent) -> str:
    words = f"half done: {text.safe(intent.operation)}"
    if intent.block is not None:
        words += f" block {intent.block}"
    if intent.request is not None:
        words += f" for {names_of(window.now)(intent.request)}"
    return words
