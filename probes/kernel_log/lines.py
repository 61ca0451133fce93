"""A kernel log as lines with their times, however it was printed: dmesg, /dev/kmsg, journalctl, syslog."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from inferdbg.text import safe

MOST_BYTES = 64 << 20
_LONGEST = 2_000
_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KMSG = re.compile(r"(\d+),(\d+),(\d+),[^;]*;(.*)")
_LEVEL = re.compile(r"(?:<\d+>|[a-z]+ *:[a-z]+ *: )?")
_SINCE_BOOT = re.compile(r"\[ *(\d+)\.(\d{6})\] ?(?:\[ *[TC]\d+\] ?)?(.*)")
_BY_CLOCK = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?(.*)")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) (.*)")
_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(\.\d+)? (.*)")
_FROM_KERNEL = re.compile(r"\S+ kernel: (?:\[ *(\d+)\.(\d{6})\] )?(.*)")
_OF_ANOTHER = re.compile(r"\S+ [\w./@-]+(?:\[\d+\])?: ")


class Entry(NamedTuple):
    """``number``: of the line, from 1. ``mono_ns``: since boot; ``wall_ns``: by the clock. Either may be unknown."""

    number: int
    text: str
    mono_ns: int | None = None
    wall_ns: int | None = None


def entries(content: bytes, now_wall_ns: int | None = None) -> Iterator[Entry]:
    """Messages of the kernel in their order. A line that goes on with the one before (indented, without a time) is
    joined to it. Times without a year are of the last year in which they are not to come, by ``now_wall_ns``."""
    before: Entry | None = None
    lines = content[:MOST_BYTES].decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, 1):
        line = line[:_LONGEST].rstrip("\r")
        if before is not None and line[:1] in (" ", "\t") and line.strip():
            before = before._replace(text=f"{before.text} {safe(line.strip())}"[:_LONGEST])
            continue
        found = _entry(number, line, now_wall_ns)
        if found is not None:
            if before is not None:
                yield before
            before = found
    if before is not None:
        yield before


def _entry(number: int, line: str, now_wall_ns: int | None) -> Entry | None:
    """None for what is no message of the kernel."""
    if line.startswith("{"):
        return _of_json(number, line)
    if found := _KMSG.fullmatch(line):
        return Entry(number, safe(found[4]), int(found[3]) * 1000)
    line = line[_LEVEL.match(line).end() :]  # type: ignore[union-attr]  # it matches anything
    if found := _SINCE_BOOT.fullmatch(line):
        return Entry(number, safe(found[3]), int(found[1]) * _NS + int(found[2]) * 1000)
    if found := _BY_CLOCK.fullmatch(line):
        return Entry(number, safe(found[2]), wall_ns=_clock(found[1], "%a %b %d %H:%M:%S %Y"))
    if found := _ISO.fullmatch(line):
        return _from_kernel(number, found[2], _iso(found[1]))
    if found := _SYSLOG.fullmatch(line):
        return _from_kernel(number, found[3], _without_year(found[1], now_wall_ns))
    return None


def _from_kernel(number: int, rest: str, wall_ns: int | None) -> Entry | None:
    """A line of syslog or of the journal, by whoever wrote it; dmesg itself names nobody."""
    if found := _FROM_KERNEL.fullmatch(rest):
        mono_ns = int(found[1]) * _NS + int(found[2]) * 1000 if found[1] is not None else None
        return Entry(number, safe(found[3]), mono_ns, wall_ns)
    return None if _OF_ANOTHER.match(rest) else Entry(number, safe(rest), None, wall_ns)


def _of_json(number: int, line: str) -> Entry | None:
    """``journalctl -o json``."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    message = fields.get("MESSAGE") if isinstance(fields, dict) else None
    if not isinstance(message, str) or fields.get("_TRANSPORT", "kernel") != "kernel":
        return None
    mono, wall = (
        int(value) * 1000 if isinstance(value := fields.get(name), str) and value.isdecimal() else None
        for name in ("_SOURCE_MONOTONIC_TIMESTAMP", "__REALTIME_TIMESTAMP")
    )
    return Entry(number, safe(message[:_LONGEST]), mono, wall)


def _clock(said: str, form: str) -> int | None:
    try:
        return round(time.mktime(time.strptime(said, form))) * _NS
    except (ValueError, OverflowError):
        return None


def _iso(said: str) -> int | None:
    try:
        since = datetime.fromisoformat(said.replace(",", ".")).astimezone(UTC) - _EPOCH
        return since // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        return None


def _without_year(said: str, now_wall_ns: int | None) -> int | None:
    if now_wall_ns is None:
        return None
    year = time.localtime(now_wall_ns / _NS).tm_year
    found = (_clock(f"{said} {one}", "%b %d %H:%M:%S %Y") for one in (year, year - 1, year - 2, year - 3, year - 4))
    return next((at for at in found if at is not None and at <= now_wall_ns), None)
