"""Conditions that a person writes to be told: ``stall>10s | itl.p95>200ms | kv>0.95 | preemptions>5/s``.

``|`` stands between alternatives. Each is a measure, a sign (``>`` or ``<``) and a value with its unit, or one of the
words ``dead``, ``stuck``, ``wrong``, ``slow``: a finding at least that bad, or ``finding=CAUSE``.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inferdbg import text
from inferdbg.config import duration_ns, size_bytes
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.window import SECOND, Window

LATELY_NS = 10 * SECOND
_SEVERITIES = ("dead", "stuck", "wrong", "slow")
_COMPARED = re.compile(r"\s*([a-z0-9.]+)\s*([<>])=?\s*(\S(?:.*\S)?)\s*")
_PERCENTILE = re.compile(r"(ttft|itl)\.p([0-9]{1,2})")
Measure = Callable[[Window, Sequence[Finding]], float | None]


class Alternative(NamedTuple):
    """``said``: as it was written. ``holds``: whether it is so now, None where the server does not tell. ``now``: the
    measure in words."""

    said: str
    holds: Callable[[Window, Sequence[Finding]], bool | None]
    now: Callable[[Window, Sequence[Finding]], str]


class Condition(NamedTuple):
    alternatives: tuple[Alternative, ...]

    def holding(self, window: Window, findings: Sequence[Finding]) -> list[Alternative]:
        return [one for one in self.alternatives if one.holds(window, findings)]

    def untold(self, window: Window, findings: Sequence[Finding]) -> list[Alternative]:
        """Those of which nothing can be said: where that stays so, they are watched for in vain."""
        return [one for one in self.alternatives if one.holds(window, findings) is None]


def parse(said: str) -> Condition:
    """Raises ValueError, which says what is wrong and what could stand there."""
    parts = [part.strip() for part in said.split("|")]
    return Condition(tuple(_alternative(part) for part in parts))


def _alternative(said: str) -> Alternative:
    if said in _SEVERITIES:
        return _by_severity(said)
    if said.startswith("finding="):
        return _by_cause(said, said.removeprefix("finding=").strip())
    found = _COMPARED.fullmatch(said)
    kind = _kind(found[1]) if found is not None else None
    if found is None or kind is None:
        raise ValueError(
            f"{said!r} is no condition: write {', '.join(_KINDS)}, ttft.p95 or itl.p95 with < or > and a "
            f"value, such as stall>10s; or {', '.join(_SEVERITIES)}, finding=CAUSE"
        )
    limit = kind.value(found[3])
    above = found[2] == ">"

    def holds(window: Window, findings: Sequence[Finding]) -> bool | None:
        now = kind.measure(window, findings)
        return None if now is None else now > limit if above else now < limit

    return Alternative(said, holds, lambda window, findings: kind.words(kind.measure(window, findings)))


def _by_severity(word: str) -> Alternative:
    bad = _SEVERITIES[: _SEVERITIES.index(word) + 1]

    def worst(findings: Sequence[Finding]) -> Finding | None:
        return next((finding for finding in findings if finding.severity in bad), None)

    return Alternative(
        word,
        lambda _, findings: worst(findings) is not None,
        lambda _, findings: found.summary if (found := worst(findings)) is not None else "no such finding",
    )


def _by_cause(said: str, cause: str) -> Alternative:
    if not re.fullmatch("[a-z_]+", cause):
        raise ValueError(f"{said!r}: a cause is a word like process_stopped, as --json has it")

    def there(findings: Sequence[Finding]) -> Finding | None:
        return next((finding for finding in findings if finding.cause == cause), None)

    return Alternative(
        said,
        lambda _, findings: there(findings) is not None,
        lambda _, findings: found.summary if (found := there(findings)) is not None else "no such finding",
    )


class _Kind(NamedTuple):
    """A measure, how its value is written, and how it is said."""

    measure: Measure
    value: Callable[[str], float]
    words: Callable[[float | None], str]


def _stall(window: Window, findings: Sequence[Finding]) -> float | None:
    """ns that the server has stood for, by the findings that say so; 0 while none does."""
    began = [one.since_ns for one in findings if one.severity in ("dead", "stuck") and one.since_ns is not None]
    return float(window.now.mono_ns - min(began)) if began else 0.0


def _kv(window: Window, _: Sequence[Finding]) -> float | None:
    cache = window.now.kvcache
    return None if cache is None or cache.used_blocks is None else cache.used_blocks / max(1, cache.num_blocks)


def _oldest(window: Window, _: Sequence[Finding]) -> float | None:
    requests = window.now.requests
    if requests is None:
        return None
    came = [one.arrived_ns for one in requests.items if one.stage == "waiting" and one.arrived_ns is not None]
    return float(window.now.mono_ns - min(came)) if came else 0.0


def _free_memory(window: Window, _: Sequence[Finding]) -> float | None:
    return window.now.processes.memory_available_bytes if window.now.processes is not None else None


def _count(field: str) -> Measure:
    def measure(window: Window, _: Sequence[Finding]) -> float | None:
        found: int | None = _field(window.now.scheduler, field)
        return found

    return measure


def _per_second(field: str) -> Measure:
    return lambda window, _: window.rate(lambda snapshot: _field(snapshot.scheduler, field), LATELY_NS, "scheduler")


def _percentile(histogram: str, percent: int) -> Measure:
    return lambda window, _: window.percentile(
        lambda snapshot: getattr(snapshot.scheduler, histogram) if snapshot.scheduler is not None else None,
        percent / 100,
        LATELY_NS,
    )


def _field(scheduler: Scheduler | None, name: str) -> int | None:
    found: int | None = getattr(scheduler, name) if scheduler is not None else None
    return found


def _share(said: str) -> float:
    number = said.removesuffix("%").strip()
    value = _number(number) / (100 if said.endswith("%") else 1)
    if not 0 <= value <= 1:
        raise ValueError(f"{said!r} is no share: write 0.95 or 95%")
    return value


def _rate(said: str) -> float:
    return _number(said.removesuffix("/s").strip())


def _number(said: str) -> float:
    try:
        return float(said)
    except ValueError:
        raise ValueError(f"{said!r} is no number") from None


def _known(words: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: "not known" if value is None else words(value)


_NS = (lambda said: float(duration_ns(said)), _known(text.duration))
_COUNTED = (_number, _known(lambda value: text.count(round(value))))
_RATE = (_rate, _known(lambda value: f"{text.short(value)}/s"))
_KINDS = {
    "stall": _Kind(_stall, *_NS),
    "oldest": _Kind(_oldest, *_NS),
    "kv": _Kind(_kv, _share, _known(text.percent)),
    "waiting": _Kind(_count("waiting"), *_COUNTED),
    "running": _Kind(_count("running"), *_COUNTED),
    "preemptions": _Kind(_per_second("preempted_total"), *_RATE),
    "tokens": _Kind(_per_second("generated_tokens_total"), *_RATE),
    "memory": _Kind(_free_memory, lambda said: float(size_bytes(said)), _known(text.size)),
}


def _kind(name: str) -> _Kind | None:
    found = _PERCENTILE.fullmatch(name)
    return _Kind(_percentile(found[1], int(found[2])), *_NS) if found is not None else _KINDS.get(name)


class Incidents:
    """One for as long as a condition lasts: it begins once that held for ``hold_ns``, and the next not before it did
    not hold for ``calm_ns``: what flickers is one incident."""

    def __init__(self, hold_ns: int, calm_ns: int) -> None:
        self._hold_ns, self._calm_ns = hold_ns, calm_ns
        self._since_ns: int | None = None  # when it began to hold
        self._last_ns: int | None = None  # when it last held, of the incident that is on

    def begins(self, now_ns: int, *, holds: bool) -> bool:
        if self._last_ns is not None:
            if holds:
                self._last_ns = now_ns
            elif now_ns - self._last_ns >= self._calm_ns:
                self._last_ns = self._since_ns = None
            return False
        if not holds:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = now_ns
        if now_ns - self._since_ns < self._hold_ns:
            return False
        self._last_ns = now_ns
        return True
