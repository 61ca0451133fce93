"""The processes behind a server as the kernel tells of them: state, processor time, memory, threads, open files."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes

from .cgroups import Limits, parse_memory, read_limits
from .process_table import descendants, parse_stat, read_table
from .roles import Part, helper_of_arguments, part_of_arguments, part_of_title

_FAMILY_NS = 10 * SECOND
MOST_PROCESSES = 64


class ProcFiles(NamedTuple):
    """What was read of one process; None: it may not be read by us, or is gone. ``open_files``: entries of fd/."""

    stat: bytes
    status: bytes | None = None
    limits: bytes | None = None
    open_files: int | None = None


class Title(NamedTuple):
    """What is known of a process beyond its numbers. ``name``: its whole title; comm has 15 characters of it."""

    role: str | None = None
    rank: str | None = None
    name: str | None = None


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
            parents = {stat.pid: stat.parent for stat in read_table(self.proc).values()}
            self._family, self._family_ns = descendants(self.pid, parents)[:MOST_PROCESSES], now_ns
        files = [found for pid in (self.pid, *self._family) if (found := proc_files(self.proc, pid)) is not None]
        if not files or parse_stat(files[0].stat).pid != self.pid:
            return Reading(status="absent", message=f"process {self.pid} has ended")
        meminfo = read_file(f"{self.proc}/meminfo") or b""
        limits = read_limits(read_file(f"{self.proc}/{self.pid}/cgroup") or b"")
        section = parse(files, meminfo, limits, {self.pid: Title(self.role)}, Origin(self.name, now_ns))
        return Reading(
            {"processes": section},
            message=(hidden := hidden_in(section)),
            hint=f"sudo inferdbg attach {self.pid}" if hidden else "",
        )

    def close(self) -> None:
        """Nothing is held open."""


def proc_files(proc: str, pid: int) -> ProcFiles | None:
    """None when it is gone."""
    folder = f"{proc}/{pid}"
    stat = read_file(f"{folder}/stat")
    if stat is None:
        return None
    try:
        open_files = sum(1 for _ in os.scandir(f"{folder}/fd"))
    except OSError:
        open_files = None
    return ProcFiles(stat, read_file(f"{folder}/status"), read_file(f"{folder}/limits"), open_files)


def hidden_in(section: Processes) -> str:
    """What may not be seen of these processes; nothing where all may."""
    denied = sum(process.open_files is None and process.state != "Z" for process in section.items)
    return f"open files of {denied} processes are hidden: they belong to somebody else" if denied else ""


def title_of(comm: str, argv: tuple[str, ...]) -> Title:
    """The role of a process by what its engine calls it, else by its arguments."""
    whole = argv[0] if argv and argv[0].startswith(comm) and part_of_title(argv[0]) is not None else None
    part: Part | None = part_of_title(whole or comm) or part_of_arguments(argv)
    if part is not None:
        return Title(part.role, part.rank, whole)
    return Title(helper_of_arguments(argv))


def parse(
    files: Iterable[ProcFiles], meminfo: bytes, limits: Limits, titles: Mapping[int, Title], origin: Origin
) -> Processes:
    """The section; machine figures are those that the limits of the target's control groups leave of it."""
    items: list[Process] = []
    cpus = limits.cpus
    for one in files:
        stat, status = parse_stat(one.stat), parse_status(one.status or b"")
        allowed = count_of_list(status.get("Cpus_allowed_list"))
        if not items and allowed is not None:
            cpus = allowed if cpus is None else min(cpus, allowed)
        title, part = titles.get(stat.pid, Title()), part_of_title(stat.comm)
        items.append(
            Process(
                pid=stat.pid,
                name=title.name or stat.comm,
                role=title.role or (part.role if part is not None else None),
                state=stat.state,
                cpu_ns=stat.cpu_ns,
                rss_bytes=kilobytes(status.get("VmRSS")),
                threads=stat.threads,
                open_files=one.open_files,
                open_files_limit=parse_open_files_limit(one.limits or b""),
                rank=title.rank,
            )
        )
    total, available = parse_memory(meminfo, limits)
    return Processes(origin, tuple(items), cpus, total, available)


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


def read_file(path: str) -> bytes | None:
    """Its first 64 KiB; None where it may not be read or is gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16)
    except OSError:
        return None
