"""The front end refuses what clients send: the engine never sees it, and by its own counts all is quiet."""

from collections import Counter
from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.sections.metrics import Metrics
from inferdbg.facts.window import SECOND, Window

_ANSWERS = "http_requests_total"
"""prometheus-fastapi-instrumentator, by path, method and status: 4xx or 404."""
_OVER_NS = 60 * SECOND
_ENOUGH = 5
_NOTABLE = 0.1
_UNKNOWN_PATH = "none"

Answers = Counter[tuple[str, str]]
"""How many by path and status."""


def check(window: Window) -> Iterator[Finding]:
    since_ns = window.past(_OVER_NS).mono_ns
    read = [one.metrics for one in window.snapshots if one.metrics is not None and one.mono_ns >= since_ns]
    if not read or read[0].origin.mono_ns == read[-1].origin.mono_ns:
        return
    before, now = _answers(read[0]), _answers(read[-1])
    lately = now - before if all(now[key] >= count for key, count in before.items()) else now
    refused = Counter({key: count for key, count in lately.items() if key[1].startswith("4")})
    if refused.total() < _ENOUGH:
        return
    share = refused.total() / lately.total()
    if share < _NOTABLE:
        return
    span_ns = read[-1].origin.mono_ns - read[0].origin.mono_ns
    (path, status), most = refused.most_common(1)[0]
    whole = "all" if share == 1 else text.count(refused.total())
    yield Finding(
        cause="requests_refused",
        severity="wrong" if share >= 0.5 else "note",
        confidence="sure",
        summary=f"{whole} of {text.counted(lately.total(), 'request')} in {text.duration(span_ns)} were refused: "
        f"POST {path} answers {status}",
        evidence=(
            Evidence(
                f"metrics.{_ANSWERS}", f"{path} answered {status} {text.count(most)} times: the engine saw none of them"
            ),
        ),
        next_step="send one of them by hand and read the answer's body: it names what is wrong with the model's name, "
        "the length, a parameter or the key",
    )


def _answers(metrics: Metrics) -> Answers:
    """To everything that clients post."""
    found = Answers()
    for series in metrics.named(_ANSWERS):
        path, status = series.label("handler") or _UNKNOWN_PATH, series.label("status") or ""
        if series.label("method") == "POST" and path != _UNKNOWN_PATH and series.value is not None:
            found[path, status] += int(series.value)
    return found
