"""Who is whose child: /proc/PID/stat of every process, which even a stuck one cannot keep for itself."""

import os
from collections.abc import Mapping
from typing import NamedTuple

SECOND = 1_000_000_000
_TICK_NS = SECOND // os.sysconf("SC_CLK_TCK")
_KERNEL_THREADS = 2


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are wanted; see proc_pid_stat(5). ``start_ticks``: since boot; together with
    the PID it names a process for ever."""

    pid: int
    comm: str
    state: str
    parent: int
    cpu_ns: int
    threads: int
    group: int = 0
    session: int = 0
    start_ticks: int = 0
    major_faults: int = 0


def parse_stat(stat: bytes) -> Stat:
    """ValueError or IndexError when it is not that. The name may hold spaces and brackets: it ends at the last one."""
    opened, closed = stat.index(b"("), stat.rindex(b")")
    after = stat[closed + 2 :].split()
    return Stat(
        pid=int(stat[:opened]),
        comm=stat[opened + 1 : closed].decode("utf-8", "replace"),
        state=after[0].decode("ascii", "replace"),
        parent=int(after[1]),
        cpu_ns=(int(after[11]) + int(after[12])) * _TICK_NS,
        threads=int(after[17]),
        group=int(after[2]),
        session=int(after[3]),
        start_ticks=int(after[19]),
        major_faults=int(after[9]),
    )


def read_table(proc: str = "/proc") -> dict[int, Stat]:
    """Of every process but kernel threads and those that have ended."""
    table: dict[int, Stat] = {}
    for name in os.listdir(proc):
        if not name.isdecimal():
            continue
        try:
            with open(f"{proc}/{name}/stat", "rb", buffering=0) as file:
                stat = parse_stat(file.read(4096))
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile
        if stat.state not in ("Z", "X") and _KERNEL_THREADS not in (stat.pid, stat.parent):
            table[stat.pid] = stat
    return table


def descendants(pid: int, parents: Mapping[int, int]) -> tuple[int, ...]:
    """Children, their children, and so on, nearest first."""
    found: list[int] = []
    parents_left = [pid]
    while parents_left:
        parents_left = sorted(child for child, parent in parents.items() if parent in parents_left)
        parents_left = [child for child in parents_left if child not in found and child != pid]
        found += parents_left
    return tuple(found)


def start_mono_ns(start_ticks: int, uptime: bytes, now_mono_ns: int) -> int:
    """When a process started, as CLOCK_MONOTONIC, which is ``now_mono_ns`` while /proc/uptime says ``uptime``: ticks
    count the time that the machine slept as well, and so does that. The start of time where it makes no sense."""
    try:
        up_ns = int(float(uptime.split()[0]) * SECOND)
    except (ValueError, IndexError):
        return now_mono_ns
    return now_mono_ns - max(0, up_ns - start_ticks * _TICK_NS)
