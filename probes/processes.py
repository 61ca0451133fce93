"""The processes behind a server as the kernel tells of them: state, processor time, memory, threads, open files."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Blocked, Process, Processes

from .cgroups import Limits, parse_memory, read_limits, read_oom_kills, read_stalled
from .process_table import descendants, parse_stat, read_table
from .roles import Part, helper_of_arguments, part_of_arguments, part_of_title

_FAMILY_NS = 10 * SECOND
MOST_PROCESSES = 64
_MOST_THREADS = 512
_MOST_BLOCKED, _MOST_CALLS = 8, 12


class TaskFiles(NamedTuple):
    """What was read of a thread; where it sleeps in the kernel only of one that cannot be interrupted."""

    stat: bytes
    wchan: bytes | None = None
    stack: bytes | None = None


class ProcFiles(NamedTuple):
    """What was read of one process; None: it may not be read by us, or is gone. ``open_files``: entries of fd/."""

    stat: bytes
    status: bytes | None = None
    limits: bytes | None = None
    open_files: int | None = None
    oom_score: bytes | None = None
    tasks: tuple[TaskFiles, ...] | None = None


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
        section = around(section, self.proc, self.pid)
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
    return ProcFiles(
        stat,
        read_file(f"{folder}/status"),
        read_file(f"{folder}/limits"),
        open_files,
        read_file(f"{folder}/oom_score"),
        _task_files(folder),
    )


def _task_files(folder: str) -> tuple[TaskFiles, ...] | None:
    try:
        names = os.listdir(f"{folder}/task")[:_MOST_THREADS]
    except OSError:
        return None
    found = []
    for name in names:
        task = f"{folder}/task/{name}"
        stat = read_file(f"{task}/stat")
        if stat is None:
            continue
        asleep = _state(stat) == b"D"
        wchan, stack = (read_file(f"{task}/{file}") if asleep else None for file in ("wchan", "stack"))
        found.append(TaskFiles(stat, wchan, stack))
    return tuple(found)


def _state(stat: bytes) -> bytes:
    return stat[stat.rfind(b")") + 2 :][:1]


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
        states = [_state(task.stat) for task in one.tasks or ()]
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
                parent=stat.parent,
                shared_bytes=kilobytes(status.get("RssShmem")),
                swap_bytes=kilobytes(status.get("VmSwap")),
                major_faults=stat.major_faults,
                waits=_number(status.get("voluntary_ctxt_switches")),
                preempted=_number(status.get("nonvoluntary_ctxt_switches")),
                running=states.count(b"R") if one.tasks is not None else None,
                blocked=parse_blocked(one.tasks or ()),
                oom_score=_number((one.oom_score or b"").decode("ascii", "replace")),
                thread_ids=tuple(parse_stat(task.stat).pid for task in one.tasks or ()),
            )
        )
    total, available = parse_memory(meminfo, limits)
    return Processes(origin, tuple(items), cpus, total, available)


def parse_blocked(tasks: Iterable[TaskFiles]) -> tuple[Blocked, ...]:
    """Threads in uninterruptible sleep, the first of the process first. Lines of a kernel stack are
    ``[<0>] folio_wait_bit_common+0x135/0x340``; a wchan of 0 is hidden."""
    found: list[Blocked] = []
    for task in tasks:
        if _state(task.stat) == b"D" and len(found) < _MOST_BLOCKED:
            stat = parse_stat(task.stat)
            wchan = (task.wchan or b"").decode("ascii", "replace").strip()
            lines = (task.stack or b"").decode("ascii", "replace").splitlines()
            stack = tuple(line.split()[1].partition("+")[0] for line in lines[:_MOST_CALLS] if len(line.split()) > 1)
            found.append(Blocked(stat.pid, stat.comm, wchan if wchan not in ("", "0") else None, stack))
    return tuple(found)


def shared_memory(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Bytes that the process's /dev/shm holds at most, and that are in use."""
    try:
        found = os.statvfs(f"{proc}/{pid}/root/dev/shm")
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize


def around(section: Processes, proc: str, pid: int) -> Processes:
    """With what the machine, or the control group of the process, tells: time lost for want of something, /dev/shm,
    kills for want of memory."""
    cgroup = read_file(f"{proc}/{pid}/cgroup") or b""
    stalled, of_group = read_stalled(cgroup, f"{proc}/pressure")
    size, used = shared_memory(proc, pid)
    return replace(
        section,
        stalled=stalled,
        stalled_group=of_group,
        shm_bytes=size,
        shm_used_bytes=used,
        oom_kills=read_oom_kills(cgroup),
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


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.strip().isdecimal() else None


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
