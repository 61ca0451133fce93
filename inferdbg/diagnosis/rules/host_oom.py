"""Memory of the machine or of a container ended, and the kernel killed a process for it: of this server, or another."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.kernel import ENDS, told, whose
from inferdbg.facts.sections.kernel_log import KernelEvent
from inferdbg.facts.window import SECOND, Window

_LATELY_NS = 600 * SECOND


def check(window: Window) -> Iterator[Finding]:
    for event in told(window, "oom kill"):
        victim = whose(window, event)
        if victim is not None:
            yield _finding(event, victim[0], ours=True)
        elif event.mono_ns is not None and window.now.mono_ns - event.mono_ns < _LATELY_NS:
            yield _finding(event, f"process {event.pid} ({text.safe(event.process or '?')})", ours=False)


def _finding(event: KernelEvent, victim: str, *, ours: bool) -> Finding:
    of = f"memory of {text.safe(event.group)}" if event.group is not None else "the machine's memory"
    held = f", which held {text.size(event.rss_bytes)}" if event.rss_bytes is not None else ""
    asked = f"; {text.safe(event.asked_by)} asked for more" if event.asked_by else ""
    return Finding(
        cause="host_oom" if ours else "host_oom_elsewhere",
        severity="dead" if ours else "note",
        confidence="sure",
        summary=f"{of} ended: the kernel killed {victim}{held}{asked}"
        + ("" if ours else ", which is not of this server"),
        evidence=(Evidence("kernel_log", text.safe(event.text)),),
        next_step="raise its memory limit, or let it hold less: less CPU offload and prompt cache, fewer requests",
        since_ns=event.mono_ns,
        explains=ENDS if ours else (),
    )
