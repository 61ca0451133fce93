"""Front end and engine know of different requests, and not just for a moment: some are lost, or computed for nobody."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.roles import with_role
from inferdbg.facts.sections.wiring import Stray, Wiring
from inferdbg.facts.window import SECOND, Window

_PATIENCE_NS = 3 * SECOND  # on their way requests are known to one side for some ms
_SURE_NS = 10 * SECOND
_NAMED = 3


def check(window: Window) -> Iterator[Finding]:
    wiring, server = window.now.wiring, window.now.server
    if wiring is None or (server is not None and server.state != "alive"):
        return
    still_ns = _still_since(window)
    lasting = [stray for stray in wiring.strays if still_ns - stray.since_ns > _PATIENCE_NS]
    if not lasting:
        return
    lost = [stray for stray in lasting if stray.known_by == "front end"]
    forgotten = [stray for stray in lasting if stray.known_by == "engine"]
    since_ns = min(stray.since_ns for stray in lasting)
    words = []
    if lost:
        words.append(f"{text.counted(len(lost), 'request')} waited for that the engine does not know: never answered")
    if forgotten:
        words.append(f"{text.counted(len(forgotten), 'request')} computed that nobody waits for")
    yield Finding(
        cause="front_and_engine_disagree",
        severity="wrong",
        confidence="sure" if wiring.origin.mono_ns - since_ns > _SURE_NS else "likely",
        summary=f"front end and engine disagree for {text.duration(wiring.origin.mono_ns - since_ns)}: "
        + "; ".join(words),
        evidence=tuple(_evidence(wiring, lost, forgotten)),
        next_step="look at how these ended: an abort that was not passed on, or an answer that was lost",
        since_ns=since_ns,
    )


def _still_since(window: Window) -> int:
    """Until when both took what the other sent. While one of them is stopped, or the engine is within a step, messages
    wait in a queue between them: who is not known to both then is not lost."""
    pulse, wiring = window.now.pulse, window.now.wiring
    assert wiring is not None
    both = [process for role in ("front end", "engine core") for process in with_role(window.now, role)]
    if any(process.state in ("T", "t") for process in both):
        return min(window.snapshots[0].mono_ns, pulse.phase_since_ns if pulse is not None else wiring.origin.mono_ns)
    if pulse is None or pulse.phase in ("idle", "starting", "stopping"):
        return wiring.origin.mono_ns
    return min(pulse.phase_since_ns, wiring.origin.mono_ns)


def _evidence(wiring: Wiring, lost: list[Stray], forgotten: list[Stray]) -> Iterator[Evidence]:
    yield Evidence(
        "wiring.front_requests",
        f"the front end waits for {text.count(wiring.front_requests)}, "
        f"the engine has {text.count(wiring.engine_requests)}",
    )
    for strays, side in ((lost, "front end"), (forgotten, "engine")):
        if strays:
            named = ", ".join(text.safe(stray.id, 60) for stray in strays[:_NAMED])
            more = f" and {text.count(len(strays) - _NAMED)} more" if len(strays) > _NAMED else ""
            yield Evidence("wiring.strays", f"only the {side} knows {named}{more}")
