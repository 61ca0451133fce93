"""Front end and engine know of different requests, and not just for a moment: some are lost, or computed for nobody."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.sections.wiring import Stray, Wiring
from inferdbg.facts.window import SECOND, Window

_PATIENCE_NS = 3 * SECOND  # on their way requests are known to one side for some ms
_SURE_NS = 10 * SECOND
_NAMED = 3


def check(window: Window) -> Iterator[Finding]:
    wiring, server = window.now.wiring, window.now.server
    if wiring is None or (server is not None and server.state != "alive"):
        return
    lasting = [stray for stray in wiring.strays if wiring.origin.mono_ns - stray.since_ns > _PATIENCE_NS]
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
