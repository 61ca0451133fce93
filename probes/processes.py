"""The processes behind a server as the kernel tells of them: state, processor time, memory, threads, open files."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes

from .cgroups import Limits, parse_memory, read_limits
from .families import by_titles, families
from .process_table import Stat, descendants, parse_stat, read_table
from .roles import STARTING, Part, helper_of_arguments, part_of_arguments, part_of_title, split
from .slow_files import read_slow

_FAMILY_NS = 10 * SECOND
_UNSETTLED_NS = 2 * SECOND
_MOST_PROCESSES = 64


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
    can keep for itself (cmdline, maps, smaps), unless ``foreign``: then titles and arguments tell the roles in somebody
    else's server, read in a child that is given up when it hangs; its processes are followed when the front end is
    gone; and orphans of any server are looked for. ``role``: what the first one is called."""

    pid: int
    role: str = "engine"
    foreign: bool = False
    proc: str = "/proc"

    name = "processes"
    sections = ("processes",)
    cadence_ns = SECOND
    deadline_ns = 3 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._family: tuple[int, ...] = ()
        self._orphans: tuple[int, ...] = ()
        self._looked_ns: int | None = None
        self._started: dict[int, int] = {}  # of every process that was once in the family
        self._titles: dict[tuple[int, int, str], Title] = {}
        self._shares: dict[int, int] = {}

    def read(self, now_ns: int) -> Reading:
        if self._looked_ns is None or now_ns - self._looked_ns >= (_UNSETTLED_NS if self._unsettled() else _FAMILY_NS):
            self._look_around()
            self._looked_ns = now_ns
        files = [found for pid in (self.pid, *self._family) if (found := self._files(pid)) is not None]
        pids = [parse_stat(one.stat).pid for one in files]
        alive = self.pid in pids
        if not files or (not alive and not self.foreign):
            return Reading(status="absent", message=f"process {self.pid} has ended")
        meminfo = _read(f"{self.proc}/meminfo") or b""
        limits = read_limits(_read(f"{self.proc}/{pids[0]}/cgroup") or b"")
        section = parse(files, meminfo, limits, self._named(), Origin(self.name, now_ns))
        section = replace(section, orphans=self._orphaned(section.origin))
        if not alive:
            self._looked_ns = None  # what is left changes by the moment
            message = f"process {self.pid} has ended; what it started lives on"
            return Reading({"processes": section}, message=message)
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

    def _unsettled(self) -> bool:
        """A server that starts has other processes every moment."""
        return self.foreign and any(title.role == STARTING for title in self._titles.values())

    def _named(self) -> dict[int, Title]:
        titles = {pid: title for (pid, _, _), title in self._titles.items()}
        return titles | {self.pid: titles.get(self.pid, Title())._replace(role=self.role)}

    def _orphaned(self, origin: Origin) -> tuple[Process, ...]:
        files = [found for pid in self._orphans if (found := self._files(pid)) is not None]
        items = parse(files, b"", Limits(), self._named(), origin).items
        return tuple(replace(item, pss_bytes=self._shares.get(item.pid)) for item in items)

    def _files(self, pid: int) -> ProcFiles | None:
        """None when it is gone, or when another process has got its number."""
        folder = f"{self.proc}/{pid}"
        stat = _read(f"{folder}/stat")
        if stat is None:
            return None
        found = parse_stat(stat)
        if self._started.setdefault(pid, found.start_ticks) != found.start_ticks:
            return None
        if self.foreign and found.state in ("Z", "X"):
            return None
        try:
            open_files = sum(1 for _ in os.scandir(f"{folder}/fd"))
        except OSError:
            open_files = None
        return ProcFiles(stat, _read(f"{folder}/status"), _read(f"{folder}/limits"), open_files)

    def _look_around(self) -> None:
        """Who descends from ours; not every kernel lists children, so everybody's parent is read."""
        table = read_table(self.proc)
        below = descendants(self.pid, {stat.pid: stat.parent for stat in table.values()})[:_MOST_PROCESSES]
        if not self.foreign:
            self._family = below
            return
        left = [pid for pid in self._family if pid in table and pid not in below]  # taken over by somebody else
        self._family = (*below, *left)
        orphans = [one.pids for one in families(table, by_titles(table)) if one.root is None]
        self._orphans = tuple(pid for pids in orphans for pid in pids)[:_MOST_PROCESSES]
        self._read_titles([table[pid] for pid in (self.pid, *self._family, *self._orphans) if pid in table])
        self._read_shares()

    def _read_titles(self, stats: Iterable[Stat]) -> None:
        """Of those that have another comm than when we last asked."""
        titles, new = {}, []
        for stat in stats:
            key = (stat.pid, stat.start_ticks, stat.comm)
            if key in self._titles:
                titles[key] = self._titles[key]
            else:
                new.append(key)
        read = read_slow([f"{self.proc}/{pid}/cmdline" for pid, _, _ in new]) if new else None
        for pid, ticks, comm in new:
            argv = split(read.contents.get(f"{self.proc}/{pid}/cmdline", b"")) if read is not None else ()
            titles[pid, ticks, comm] = title_of(comm, argv)
        self._titles = titles

    def _read_shares(self) -> None:
        if not self._orphans:
            self._shares = {}
            return
        read = read_slow([f"{self.proc}/{pid}/smaps_rollup" for pid in self._orphans])
        found = {
            int(path.split("/")[-2]): kilobytes(parse_status(raw).get("Pss")) for path, raw in read.contents.items()
        }
        self._shares = {pid: share for pid, share in found.items() if share is not None}


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


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16)
    except OSError:
        return None
