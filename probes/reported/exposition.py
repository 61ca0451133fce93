"""The Prometheus text format 0.0.4 as series: strict, bounded and quick, for what is asked every two seconds.

    # HELP name what it counts
    # TYPE name counter | gauge | histogram | summary | untyped
    name{label="value",…} 1.5 [timestamp]
    name_bucket{le="0.1"} 3      of a histogram: observations up to 0.1, so the buckets are cumulative
    name_sum 4.5 · name_count 9

A line that is none of these is counted and passed over. (For the 58 KB of a vLLM server prometheus-client's own parser
takes 22 ms where this one takes 2; it ends at the first bad line, and has no limits.)
Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
import re
from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple, get_args

from inferdbg.facts.sections.metrics import Buckets, Label, MetricKind, Series

MAX_LINES = 100_000
"""A vLLM server has 600 an engine. That many take a second at worst."""
_MAX_NAME, _MAX_LABELS, _MAX_LINE = 300, 64, 20_000
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:[ \t]*+\{(.*)\}[ \t]*+|[ \t]++)([^ \t{}]++)(?:[ \t]+-?[0-9]+)?[ \t]*"
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,|$)')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?|(?i:[+-]?inf(?:inity)?|nan)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KINDS = frozenset(get_args(MetricKind))
_PARTS = ("_bucket", "_sum", "_count")
_MOST_COUNTED = 1 << 53  # beyond that a float, as which it was sent, is not exact


class Exposition(NamedTuple):
    """``series`` in the server's order, a histogram where its first bucket was. ``created``: the start times that
    prometheus-client gives beside each counter (``*_created``). ``bad_lines``: lines that made no sense, ``repeated``:
    that said a series once more, ``unread``: beyond the most that is read."""

    series: tuple[Series, ...] = ()
    helps: dict[str, str] = {}  # noqa: RUF012
    created: dict[str, float] = {}  # noqa: RUF012
    bad_lines: int = 0
    repeated: int = 0
    unread: int = 0


class _Histogram:
    """A histogram under one set of labels, while its lines come in."""

    def __init__(self) -> None:
        self.upto: dict[float, float] = {}
        self.sum: float | None = None
        self.count: float | None = None

    def buckets(self) -> Buckets | None:
        """None when it is no histogram: no bucket above all bounds, or one that holds less than the one before."""
        bounds = sorted(bound for bound in self.upto if bound != math.inf)
        whole = self.upto.get(math.inf, self.count)
        cumulative = [*(self.upto[bound] for bound in bounds), math.nan if whole is None else whole]
        counts = [counted(after - before) for before, after in zip([0.0, *cumulative], cumulative, strict=False)]
        if not bounds or None in counts:
            return None
        return Buckets(tuple(bounds), tuple(count for count in counts if count is not None), finite(self.sum))


def parse(body: bytes) -> Exposition:
    """Never raises: what is no exposition has no series, and bad lines."""
    lines = body.decode("utf-8", "replace").split("\n", MAX_LINES)
    unread = lines.pop().count("\n") + 1 if len(lines) > MAX_LINES else 0
    kinds: dict[str, MetricKind] = {}
    helps: dict[str, str] = {}
    created: dict[str, float] = {}
    found: dict[tuple[str, tuple[Label, ...]], float | _Histogram] = {}
    bad = repeated = 0
    for line in lines:
        if not line or line.isspace():
            continue
        if line[0] == "#":
            _comment(line, kinds, helps)
            continue
        sample = _SAMPLE.fullmatch(line.rstrip("\r")) if len(line) <= _MAX_LINE else None
        labels = labels_of(sample[2] or "") if sample is not None else None
        if sample is None or labels is None or len(sample[1]) > _MAX_NAME or not _NUMBER.fullmatch(sample[3]):
            bad += 1
            continue
        name, value = sample[1], float(sample[3])
        part = next(
            (part for part in _PARTS if name.endswith(part) and kinds.get(name[: -len(part)]) == "histogram"), ""
        )
        if part:
            known = _add(found, name.removesuffix(part), part, labels, value)
            bad += known is None
            repeated += known is True
        elif name.endswith("_created") and _twin(name, kinds):
            created[name] = min(value, created.get(name, value))
        elif (name, labels) in found:
            repeated += 1
        else:
            found[name, labels] = value
    series = tuple(_series(name, labels, value, kinds) for (name, labels), value in found.items())
    return Exposition(series, helps, created, bad, repeated, unread)


def by_name(exposition: Exposition) -> dict[str, list[Series]]:
    found: defaultdict[str, list[Series]] = defaultdict(list)
    for series in exposition.series:
        found[series.name].append(series)
    return dict(found)


@lru_cache(maxsize=8192)
def labels_of(text: str) -> tuple[Label, ...] | None:
    """What stands between the braces; None when that is no list of labels, or a name comes twice."""
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        label = _LABEL.match(text, place)
        if label is None or label[1] in found or len(found) == _MAX_LABELS:
            return None if text[place:].strip() else tuple(Label(*pair) for pair in found.items())
        found[label[1]] = _ESCAPE.sub(_unescaped, label[2]) if "\\" in label[2] else label[2]
        place = label.end()
    return tuple(Label(*pair) for pair in found.items())


def counted(value: float | None) -> int | None:
    """A count; None for what cannot be one, or is more than can be counted."""
    return round(value) if value is not None and 0 <= value < _MOST_COUNTED else None


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _comment(line: str, kinds: dict[str, MetricKind], helps: dict[str, str]) -> None:
    words = line.split(None, 3)
    if len(words) < 4 or len(words[2]) > _MAX_NAME:
        return
    if words[1] == "TYPE" and words[3].strip() in _KINDS:
        kinds.setdefault(words[2], words[3].strip())  # type: ignore[arg-type]
    elif words[1] == "HELP":
        helps.setdefault(words[2], words[3][:500])


def _add(
    found: "dict[tuple[str, tuple[Label, ...]], float | _Histogram]",
    name: str,
    part: str,
    labels: tuple[Label, ...],
    value: float,
) -> bool | None:
    """Puts a line of a histogram where it belongs. True: it was there already; None: it has no place."""
    bound = 0.0
    if part == "_bucket":
        edge = next((label.value for label in labels if label.name == "le"), "")
        if not _NUMBER.fullmatch(edge) or math.isnan(bound := float(edge)):
            return None
        labels = _without_bound(labels)
    histogram = found.setdefault((name, labels), _Histogram())
    if not isinstance(histogram, _Histogram):
        return None
    if part == "_bucket":
        if bound in histogram.upto:
            return True
        histogram.upto[bound] = value
    elif part == "_sum":
        histogram.sum = value if histogram.sum is None else histogram.sum
    else:
        histogram.count = value if histogram.count is None else histogram.count
    return False


@lru_cache(maxsize=8192)
def _without_bound(labels: tuple[Label, ...]) -> tuple[Label, ...]:
    return tuple(label for label in labels if label.name != "le")


def _twin(name: str, kinds: dict[str, MetricKind]) -> bool:
    base = name.removesuffix("_created")
    return base in kinds or f"{base}_total" in kinds


def _series(name: str, labels: tuple[Label, ...], value: "float | _Histogram", kinds: dict[str, MetricKind]) -> Series:
    if isinstance(value, _Histogram):
        return Series(name, "histogram", labels, None, value.buckets())
    base = next((name.removesuffix(part) for part in ("_sum", "_count") if name.endswith(part)), name)
    return Series(name, kinds.get(name) or kinds.get(base, "untyped"), labels, finite(value))


def _unescaped(escape: "re.Match[str]") -> str:
    return "\n" if escape[1] == "n" else escape[1]
