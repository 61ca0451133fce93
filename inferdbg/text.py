"""How values look: durations, sizes, counts, ratios and foreign text are formatted here and nowhere else."""

import re
import time
from collections.abc import Sequence

UNKNOWN = "-"
_BARS = "▁▂▃▄▅▆▇█"
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_].*?\x1b\\|.?)", re.DOTALL
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def duration(ns: float | None) -> str:
    """A time span in three digits or fewer with its unit, in six characters: ``850 µs``, ``33 ms``, ``1.9 s``,
    ``198 s``, ``12 min``, ``3.1 h``. Below ten minutes only whole ones are called so: ``3.3 min`` needs seven."""
    if ns is None:
        return UNKNOWN
    if abs(ns) < 60e9 or (abs(ns) < 599.5e9 and ns % 60e9):  # what rounds up to the next unit is written in it
        for unit, size, limit in (("ns", 1.0, 999.5), ("µs", 1e3, 999.5), ("ms", 1e6, 999.5), ("s", 1e9, 1e9)):
            if abs(ns) / size < limit:
                return f"{_digits(ns / size)} {unit}"
    for unit, seconds, limit in (("min", 60.0, 59.95), ("h", 3600.0, 47.95)):
        if abs(ns) / 1e9 / seconds < limit:
            return f"{_digits(ns / 1e9 / seconds)} {unit}"
    return f"{_digits(ns / 86400e9)} d"


def lasting(ns: float, *, at_least: bool) -> str:
    """A time span of which only the end may be known: ``1.7 s``, ``at least 1.7 s``."""
    return f"at least {duration(ns)}" if at_least else duration(ns)


def clock(wall_ns: int | None) -> str:
    """The time of day, here: ``14:02:07``."""
    return UNKNOWN if wall_ns is None else time.strftime("%H:%M:%S", time.localtime(wall_ns / 1e9))


def size(count: float | None) -> str:
    """Bytes in powers of 1024: ``512 B``, ``3.1 MiB``."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 999.5:
            return f"{_digits(value) if unit != 'B' else f'{value:.0f}'} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def count(value: float | None) -> str:
    """A whole number with thousands separators: ``48,112``."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def count_within(value: float | None, columns: int) -> str:
    """A whole number that is never cut: as ``count`` writes it where that fits in ``columns``, else as ``short``."""
    whole = count(value)
    return whole if len(whole) <= columns else short(value)


def out_of(value: float | None, total: float | None, columns: int) -> str:
    """``1,266/4,477``; where that does not fit in ``columns`` the total is rounded, then both: ``20,160/131k``. A total
    that is unknown is left out."""
    if total is None:
        return count_within(value, columns)
    tries = (f"{count(value)}/{count(total)}", f"{count(value)}/{short(total)}")
    return next((said for said in tries if len(said) <= columns), f"{short(value)}/{short(total)}")


def counted(value: int | None, noun: str) -> str:
    """``1 request``, ``48,112 requests``."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def short(value: float | None) -> str:
    """A number in four characters or fewer: ``283``, ``1.2k``, ``3.1M``."""
    if value is None:
        return UNKNOWN
    scaled = float(value)
    for unit in ("", "k", "M", "G"):
        if abs(scaled) < 999.5:
            return f"{_digits(scaled) if unit or scaled != int(scaled) else f'{scaled:.0f}'}{unit}"
        scaled /= 1000
    return f"{_digits(scaled)}T"


def percent(ratio: float | None) -> str:
    """A share (0..1) in percent; never rounds something to 0 % or nearly all to 100 %."""
    if ratio is None:
        return UNKNOWN
    if 0 < ratio < 0.01:
        return "<1 %"
    if 0.99 < ratio < 1:
        return ">99 %"
    return f"{ratio * 100:.0f} %"


def sparkline(values: Sequence[float | None], top: float | None = None) -> str:
    """One character a value, scaled from 0 to ``top`` (default: the largest); a space where nothing is known."""
    known = [value for value in values if value is not None]
    ceiling = top if top is not None else max(known, default=0.0)
    if ceiling <= 0:
        return "".join(" " if value is None else _BARS[0] for value in values)
    last = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[min(last, max(0, round(value / ceiling * last)))] for value in values
    )


def safe(text: str, limit: int = 2000) -> str:
    """Foreign text that may reach a terminal: no escape sequences, control or direction characters; tabs and newlines
    as a space; cut at ``limit`` characters."""
    cleaned = _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\t", " ").replace("\n", " ")))
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def _digits(value: float) -> str:
    if abs(value) >= 9.95 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}"
