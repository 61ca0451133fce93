"""The front end answers nothing any more, or nothing that makes sense, or says itself that it cannot serve."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.provenance import ProbeReport
from inferdbg.facts.window import SECOND, Window

_LIKELY_NS, _SURE_NS = 5 * SECOND, 30 * SECOND
_LOADS = "llama.cpp"
"""Its /health answers 503 while it loads a model, and only then."""


def check(window: Window) -> Iterator[Finding]:
    server = window.now.server
    starting = window.now.processes is not None and window.now.processes.startup is not None
    if server is None or server.state != "alive" or starting:
        return
    report = next((one for one in window.now.probes if one.probe == "reported"), None)
    health = server.health
    if report is not None and report.status in ("not answering", "failed"):
        # where it never answered, since it was first asked
        since_ns = report.answered_ns if report.answered_ns is not None else window.snapshots[0].mono_ns
        silent_ns = window.now.mono_ns - since_ns
        if silent_ns >= _LIKELY_NS:
            yield _silent(window, report, silent_ns)
    elif health is not None and health.answer.startswith("5") and server.engine != _LOADS:
        yield Finding(
            cause="not_answering",
            severity="stuck",
            confidence="sure",
            summary=f"/health answers {health.answer}: the server itself says that it cannot serve",
            evidence=(Evidence("server.health", f"answered {health.answer} in {text.duration(health.took_ns)}"),),
            next_step=f"curl -si {server.url or 'URL'}/health   (its body may say why), then its log",
        )


def _silent(window: Window, report: ProbeReport, silent_ns: int) -> Finding:
    server = window.now.server
    health = server.health if server is not None else None
    healthy = health is not None and health.answer == "200"
    silent = report.status == "not answering"
    never = report.answered_ns is None
    lasts = text.lasting(silent_ns, at_least=never)
    nothing = silent and not healthy
    what = "has answered nothing" if nothing else "has told no metrics that can be read"
    where = server.url if server is not None else None
    at = f" at {where}" if where is not None else ""
    pid = server.pid if server is not None else None
    # llama.cpp answers /health on a thread of its own, and /metrics between two batches only
    return Finding(
        cause="not_answering",
        severity="stuck" if nothing else "slow" if silent else "wrong",
        confidence="sure" if silent_ns >= _SURE_NS else "likely",
        summary=f"the front end{at} {what} for {lasts}: its numbers here are that old",
        evidence=(
            Evidence("probes.reported", report.message),
            *([Evidence("server.health", f"/health: {health.answer}")] if health is not None else ()),
        ),
        next_step=f"py-spy dump --nonblocking --pid {pid}"
        if pid is not None
        else f"curl -m 5 -sv {where or 'URL'}/health",
        since_ns=window.now.mono_ns - silent_ns,
        at_least=never,
        explains=("no_progress",),
    )
