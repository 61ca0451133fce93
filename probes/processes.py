"""The processes behind a server as the kernel tells of them: state, processor time, memory, threads, open files."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes

from .cgroups import Limits, parse_memory, read_limits

_FAMILY_NS = 10 * SECOND
_MOST_PROCESSES = 64
_TICK_NS = SECOND // os.sysconf("SC_CLK_TCK")


class ProcFiles(NamedTuple):
    """What was read of one process; None: it may not be read by us, or is gone. ``open_files``: entries of fd/."""

    stat: bytes
    status: bytes | None = None
    limits: bytes | None = None
    open_files: int | None = None


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are wanted; see proc_pid_stat(5)."""

    pid: int
    comm: str
    state: str
    parent: int
    cpu_ns: int
    threads: int


@dataclass
class ProcessFiles:
    """A process and its descendants, from /proc. Reads ``stat`` and ``status`` first, and never what a stuck process
    can keep for itself (cmdline, maps, smaps). ``role``: what the first one is called."""

    pid: int
    role: str = "engine"
    proc: str = "/proc"

    name = "processes"
    sections = ("processes",)
    cadence_ns = SECOND
    deadline_ns = SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._family: tuple[int, ...] = ()
        self._family_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        if self._family_ns is None or now_ns - self._family_ns >= _FAMILY_NS:
            self._family, self._family_ns = self._descendants(), now_ns
        files = [found for pid in (self.pid, *self._family) if (found := self._files(pid)) is not None]
        if not files or parse_stat(files[0].stat).pid != self.pid:
            return Reading(status="absent", message=f"process {self.pid} has ended")
        meminfo = _read(f"{self.proc}/meminfo") or b""
        limits = read_limits(_read(f"{self.proc}/{self.pid}/cgroup") or b"")
        section = parse(files, meminfo, limits, {self.pid: self.role}, Origin(self.name, now_ns))
        denied = sum(process.open_files is None and process.state != "Z" for process in section.items)
        if not denied:
            return Reading({"processes": section})
        return Reading(
            {"processes": section},
            message=f"open files of {denied} processes are hidden: they belong to somebody else",
            hint=f"sudo inferdbg attach {self.pid}",
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _files(self, pid: int) -> ProcFiles | None:
        folder = f"{self.proc}/{pid}"
        stat = _read(f"{folder}/stat")
        if stat is None:
            return None
        try:
            open_files = sum(1 for _ in os.scandir(f"{folder}/fd"))
        except OSError:
            open_files = None
        return ProcFiles(stat, _read(f"{folder}/status"), _read(f"{folder}/limits"), open_files)

    def _descendants(self) -> tuple[int, ...]:
        """All processes that descend from ours. Not every kernel lists children, so everybody's parent is read."""
        parents = {}
        for entry in os.scandir(self.proc):
            if entry.name.isdecimal() and (stat := _read(f"{self.proc}/{entry.name}/stat")) is not None:
                with suppress(ValueError, IndexError):
                    parents[int(entry.name)] = parse_stat(stat).parent
        return descendants(self.pid, parents)[:_MOST_PROCESSES]


def parse(
    files: Iterable[ProcFiles], meminfo: bytes, limits: Limits, roles: Mapping[int, str], origin: Origin
) -> Processes:
    """The section; machine figures are those that the limits of the target's control groups leave of it."""
    items: list[Process] = []
    cpus = limits.cpus
    for one in files:
        stat, status = parse_stat(one.stat), parse_status(one.status or b"")
        allowed = count_of_list(status.get("Cpus_allowed_list"))
        if not items and allowed is not None:
            cpus = allowed if cpus is None else min(cpus, allowed)
        items.append(
            Process(
                pid=stat.pid,
                name=stat.comm,
                role=roles.get(stat.pid) or role_of(stat.comm),
                state=stat.state,
                cpu_ns=stat.cpu_ns,
                rss_bytes=kilobytes(status.get("VmRSS")),
                threads=stat.threads,
                open_files=one.open_files,
                open_files_limit=parse_open_files_limit(one.limits or b""),
            )
        )
    total, available = parse_memory(meminfo, limits)
    return Processes(origin, tuple(items), cpus, total, available)


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
    )


def parse_status(status: bytes) -> dict[str, str]:
    """``Name: value`` lines of /proc/PID/status."""
    lines = (line.partition(":") for line in status.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, _, value in lines}


def parse_open_files_limit(limits: bytes) -> int | None:
    """The soft limit of /proc/PID/limits; None when there is none."""
    for line in limits.splitlines():
        if line.startswith(b"Max open files"):
            soft = line.removeprefix(b"Max open files").split()[0]
            return int(soft) if soft.isdigit() else None
    return None


def kilobytes(value: str | None) -> int | None:
    """``2100 kB`` in bytes."""
    return None if value is None else int(value.split()[0]) * 1024


def count_of_list(ranges: str | None) -> int | None:
    """How many numbers ``0-3,8`` names."""
    if not ranges:
        return None
    ends = [part.partition("-") for part in ranges.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def role_of(name: str) -> str | None:
    """What a server's process does, by the names that engines give theirs."""
    lowered = name.lower()
    for mark, role in (
        ("worker", "worker"),
        ("schedul", "engine"),
        ("enginec", "engine"),
        ("apiserver", "front end"),
    ):
        if mark in lowered:
            return role
    return None


def descendants(pid: int, parents: Mapping[int, int]) -> tuple[int, ...]:
    """Children, their children, and so on, nearest first."""
    found: list[int] = []
    parents_left = [pid]
    while parents_left:
        parents_left = sorted(child for child, parent in parents.items() if parent in parents_left)
        parents_left = [child for child in parents_left if child not in found and child != pid]
        found += parents_left
    return tuple(found)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16)
    except OSError:
        return None
