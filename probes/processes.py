"""The engine's process as the kernel sees it: state, CPU, memory, threads, open files; only files that never block."""

import os
from collections.abc import Mapping
from pathlib import Path

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes

_STAT, _LIMITS, _MEMORY = "stat", "limits", "meminfo"
_KIB = 1024


class ProcessFiles:
    """Process ``pid``, with what it does for the server as ``role``. Reads stat and limits, which the kernel answers
    without asking the process; cmdline, maps and smaps would wait for a stuck one. ``proc``: where to look, for tests.
    """

    name = "processes"
    sections = ("processes",)
    cadence_ns = SECOND // 4
    deadline_ns = SECOND
    isolated = False

    def __init__(self, pid: int, role: str, *, proc: str = "/proc") -> None:
        self._pid = pid
        self._role = role
        self._proc = Path(proc)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(self, now_ns: int) -> Reading:
        folder = self._proc / str(self._pid)
        try:
            files = {_STAT: (folder / _STAT).read_bytes(), _MEMORY: (self._proc / _MEMORY).read_bytes()}
        except FileNotFoundError:
            return Reading(status="absent", message=f"process {self._pid} is gone")
        message = ""
        try:
            files[_LIMITS] = (folder / _LIMITS).read_bytes()
            open_files = len(os.listdir(folder / "fd"))
        except PermissionError:
            open_files, message = None, "open files can be counted by the process's user only"
        except FileNotFoundError:
            return Reading(status="absent", message=f"process {self._pid} is gone")
        found = parse(
            files,
            Origin(self.name, now_ns),
            role=self._role,
            open_files=open_files,
            cpus=_cpus(self._pid),
            ticks=self._ticks,
            page_bytes=self._page_bytes,
        )
        hint = f"sudo inferdbg attach {self._pid}" if message else ""
        return Reading({"processes": found}, message=message, hint=hint)

    def close(self) -> None:
        """Holds nothing open."""


def parse(
    files: Mapping[str, bytes],
    origin: Origin,
    *,
    role: str,
    open_files: int | None,
    cpus: int | None,
    ticks: int,
    page_bytes: int,
) -> Processes:
    """``files``: stat, limits and meminfo as proc(5) describes them. ``ticks``: clock ticks a second.
    Raises ValueError for what is none of these."""
    before, _, after = files[_STAT].rpartition(b")")  # the name may hold anything, brackets too
    pid, _, name = before.partition(b" (")
    fields = after.split()
    if len(fields) < 22 or not pid.isdigit():
        raise ValueError(f"stat makes no sense: {files[_STAT][:80]!r}")
    process = Process(
        pid=int(pid),
        name=name.decode("utf-8", "replace"),
        role=role,
        state=fields[0].decode("ascii", "replace"),
        cpu_ns=(int(fields[11]) + int(fields[12])) * SECOND // ticks,
        rss_bytes=int(fields[21]) * page_bytes,
        threads=int(fields[17]),
        open_files=open_files,
        open_files_limit=_open_files_limit(files.get(_LIMITS, b"")),
    )
    memory = {line.partition(b":")[0]: line.split()[1] for line in files[_MEMORY].splitlines() if len(line.split()) > 1}
    return Processes(
        origin,
        (process,),
        cpus=cpus,
        memory_bytes=_kib(memory.get(b"MemTotal")),
        memory_available_bytes=_kib(memory.get(b"MemAvailable")),
    )


def _open_files_limit(limits: bytes) -> int | None:
    """The soft limit; None when there is none."""
    for line in limits.splitlines():
        if line.startswith(b"Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def _kib(count: bytes | None) -> int | None:
    return int(count) * _KIB if count is not None and count.isdigit() else None


def _cpus(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return None
