"""What people type and set: durations, sizes and the environment are understood here and refused in plain words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_DURATIONS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_LONGEST_NS = 3650 * _DURATIONS_NS["d"]
_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_LARGEST_BYTES = 1 << 60
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµ]*)\s*", re.IGNORECASE)


def duration_ns(text: str) -> int:
    """``250ms``, ``1.5 s``, ``10min``, ``6h`` as ns. Raises ValueError, which says what is wrong, also for a number
    without a unit: 60 of what?"""
    found = _QUANTITY.fullmatch(text)
    unit = found[2].lower() if found else ""
    if found is None or unit not in _DURATIONS_NS:
        raise ValueError(f"{text!r} is not a duration: write a number and a unit, like 250ms, 60s, 10min or 6h")
    span_ns = float(found[1]) * _DURATIONS_NS[unit]
    if span_ns > _LONGEST_NS:
        raise ValueError(f"{text!r} is too long: at most 3650d")
    return round(span_ns)


def size_bytes(text: str) -> int:
    """``512``, ``64k``, ``100 MB``, ``2G``, ``1.5GiB`` as bytes, in powers of 1024 as ``ls -h`` has them. Raises
    ValueError, which says what is wrong."""
    found = _QUANTITY.fullmatch(text)
    unit = found[2].lower() if found else ""
    power = unit.removesuffix("b").removesuffix("i") if unit else ""
    if found is None or power not in _SIZES or unit == "i":
        raise ValueError(f"{text!r} is not a size: write bytes, or a number and a unit, like 64k, 100M or 2G")
    count = float(found[1]) * _SIZES[power]
    if count > _LARGEST_BYTES:
        raise ValueError(f"{text!r} is too much: at most 1048576T")
    return round(count)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of a recording. ``clock``: seconds since midnight, here. ``from_start``, ``from_end``: ns."""

    clock_s: int | None = None
    from_start_ns: int | None = None
    from_end_ns: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Moment":
        """``14:02:07``, ``14:02``, ``+90s`` from the start, ``-10s`` from the end. Raises ValueError."""
        if text[:1] in ("+", "-"):
            span = duration_ns(text[1:])
            return cls(from_start_ns=span) if text[0] == "+" else cls(from_end_ns=span)
        found = _CLOCK.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a moment: write 14:02:07, +90s from the start or -10s from the end")
        return cls(clock_s=int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0))


@dataclass(frozen=True, slots=True)
class Environment:
    """``debug`` (INFERDBG_DEBUG): show the traceback of an unexpected error. ``colour``: unless NO_COLOR is set to
    anything (https://no-color.org)."""

    debug: bool
    colour: bool

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> "Environment":
        """Raises ValueError for a value of INFERDBG_DEBUG that means neither yes nor no."""
        debug = variables.get("INFERDBG_DEBUG", "").lower()
        if debug not in ("", "0", "1", "no", "yes", "false", "true"):
            raise ValueError(f"INFERDBG_DEBUG is {debug!r}: set it to 1 to see tracebacks, or unset it")
        return cls(debug=debug in ("1", "yes", "true"), colour=not variables.get("NO_COLOR"))
