"""Checks of what reads a process: memory, stacks, cores, the kernel's log, perf; tried on a child of ours."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from inferdbg import text
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.kernel_log import KernelLog as Section

from ..containers import container
from ..kernel_log.probe import KernelLog
from ..processes import parse_status, read_file
from ..pymem.memory import Process
from ..rights import denied_memory
from ..stacks import Stacks
from .check import Check, Place, first_line, said_by

_SECRET = b"evidence"
_CHILD = (
    "import ctypes, sys\n"
    f"kept = ctypes.create_string_buffer({_SECRET!r})\n"
    "print(ctypes.addressof(kept), flush=True)\n"
    "sys.stdin.read()"
)
_CAP_SYS_PTRACE, _CAP_PERFMON, _CAP_SYS_ADMIN = 19, 38, 21
_ANONYMOUS, _HEADERS = 1, 16
_NO_RIGHT = "docker run --cap-add SYS_PTRACE; in Kubernetes securityContext.capabilities.add: [SYS_PTRACE]"


def ptrace(place: Place) -> Check:
    """Really reads the memory of a child."""
    why = "objects and stacks of a hung server are read from its memory"
    with _child() as (pid, address):
        try:
            memory = Process(pid)
            read = memory.read(address, len(_SECRET))
            memory.close()
        except (OSError, InferdbgError) as error:
            said = error.message if isinstance(error, InferdbgError) else str(error.strerror)
            return Check("ptrace", "fail", f"a child's memory cannot be read: {said}", why, _NO_RIGHT)
    if read != _SECRET:
        return Check("ptrace", "fail", "a child's memory was read, and something else was in it", why, _NO_RIGHT)
    call = "process_vm_readv" if hasattr(ctypes.CDLL(None), "process_vm_readv") else "/proc/PID/mem"
    return Check("ptrace", "ok", f"read a child's memory ({call})", why)


def target_memory(place: Place) -> Check:
    """Opens the memory of each process of the target, and reads nothing."""
    why = "the server itself, which is no child of ours, is read so"
    if not place.pids:
        return Check("target-memory", "unknown", "no target was named", why, "inferdbg doctor PID")
    for pid in place.pids:
        denied = denied_memory(pid)
        if denied is not None:
            return Check("target-memory", "fail", denied.why, why, denied.cure)
    return Check("target-memory", "ok", f"of {text.counted(len(place.pids), 'process')} may be read", why)


def yama(place: Place) -> Check:
    scope = place.number("proc/sys/kernel/yama/ptrace_scope")
    why = "it decides whose memory may be read"
    if scope is None or scope == 0:
        return Check("yama", "ok", "no restriction by Yama" if scope is None else "ptrace_scope 0", why)
    if scope == 3:
        cure = "remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d and restart the machine"
        return Check("yama", "fail", "ptrace_scope 3: nobody may look into anybody", why, cure)
    if _capable(place, _CAP_SYS_PTRACE):
        return Check("yama", "ok", f"ptrace_scope {scope}, and we have CAP_SYS_PTRACE", why)
    whom = "only children may be looked into" if scope == 1 else "only with CAP_SYS_PTRACE"
    return Check(
        "yama", "fail", f"ptrace_scope {scope}: {whom}", why, "sudo sysctl kernel.yama.ptrace_scope=0, or sudo"
    )


def py_spy(place: Place) -> Check:
    """Really dumps the stacks of a child."""
    why = "Python stacks of a stuck process come from it"
    with _child() as (pid, _):
        reading = Stacks((pid,), ("child",)).read(0)
    if reading.status == "ok" and "stacks" in reading.sections:
        return Check("py-spy", "ok", "dumped a child's stacks", why)
    cure = reading.hint or "pip install --upgrade py-spy"
    return Check("py-spy", "fail", reading.message or "it dumped no stacks of a child", why, cure)


def gdb(place: Place) -> Check:
    why = "C and C++ stacks, of a living process and of a core"
    program = shutil.which("gdb")
    version = first_line(said_by([program, "--version"])) if program is not None else ""
    if not version:
        found = "not installed" if program is None else f"{program} does not start"
        return Check("gdb", "warn", found, why, "sudo apt install gdb   (or dnf install gdb)")
    return Check("gdb", "ok", version, why)


def pystack(place: Place) -> Check:
    why = "Python and C stacks together, also of a core"
    beside = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    if shutil.which("pystack", path=beside) is None and importlib.util.find_spec("pystack") is None:
        return Check("pystack", "warn", "not installed", why, "pip install 'inferdbg[remains]'")
    return Check("pystack", "ok", "installed", why)


def core_limit(place: Place) -> Check:
    """Of the target's processes; without one, of what is started from here."""
    why = "a process that crashes leaves a core only up to this size"
    limits = {pid: _core_limit(place.read(f"proc/{pid}/limits")) for pid in place.pids or ("self",)}
    known = {pid: limit for pid, limit in limits.items() if limit is not None}
    if not known:
        return Check("core-limit", "unknown", "the limits may not be read", why, "sudo inferdbg doctor …")
    pid, limit = min(known.items(), key=lambda pair: pair[1])
    whose = "of what is started here" if pid == "self" else f"of process {pid}"
    if limit == 0:
        cure = "ulimit -c unlimited   (before the server starts)"
        if pid != "self":
            cure = f"sudo prlimit --pid {pid} --core=unlimited"
        return Check("core-limit", "fail" if place.pids else "warn", f"0 {whose}: no core will be written", why, cure)
    size = "unlimited" if limit == _UNLIMITED else text.size(limit)
    return Check("core-limit", "ok", f"{size} {whose}", why)


_UNLIMITED = 1 << 63


def _core_limit(limits: str | None) -> int | None:
    for line in (limits or "").splitlines():
        if line.startswith("Max core file size"):
            soft = line.removeprefix("Max core file size").split()[0]
            return _UNLIMITED if soft == "unlimited" else int(soft) if soft.isdigit() else None
    return None


def core_pattern(place: Place) -> Check:
    why = "it says where a core goes"
    pattern = (place.read("proc/sys/kernel/core_pattern") or "").strip()
    said = text.safe(pattern, 100)
    if not pattern:
        return Check("core-pattern", "unknown", "core_pattern may not be read", why)
    inside = container(place.root)
    if pattern.startswith("|"):
        program = pattern[1:].split()[0]
        if inside is not None:
            found = f"{said}: the host's handler takes it, not this container ({inside})"
            return Check(
                "core-pattern", "warn", found, why, "on the host: coredumpctl list, or look where it writes to"
            )
        if not os.path.exists(place.path(program.lstrip("/"))):
            cure = "sudo sysctl -w kernel.core_pattern=/var/tmp/core.%e.%p"
            return Check("core-pattern", "fail", f"its handler {text.safe(program, 80)} is not there", why, cure)
        cure = "coredumpctl info" if "systemd-coredump" in program else ""
        return Check("core-pattern", "ok", f"{said.split()[0]} takes it", why, cure)
    folder = os.path.dirname(pattern)
    if not folder:
        found = f"{said}: into the folder that the process runs in"
        return Check("core-pattern", "ok", found, why)
    if not os.path.isdir(place.path(folder.lstrip("/"))):
        where = "in this container " if inside is not None else ""
        cure = f"sudo mkdir -p -m 1777 {text.safe(folder, 80)}"
        return Check("core-pattern", "fail", f"{said}: there is no such folder {where}".rstrip(), why, cure)
    return Check("core-pattern", "ok", said, why)


def coredump_filter(place: Place) -> Check:
    """Bits of core(5): 0 private memory, 4 ELF headers."""
    why = "a core without private memory holds no objects"
    pid = place.pids[0] if place.pids else "self"
    said = (place.read(f"proc/{pid}/coredump_filter") or "").strip()
    try:
        bits = int(said, 16)
    except ValueError:
        return Check("coredump-filter", "unknown", "it may not be read", why)
    if bits & _ANONYMOUS and bits & _HEADERS:
        return Check("coredump-filter", "ok", f"0x{bits:x}: private memory and headers go into a core", why)
    cure = f"echo 0x{bits | _ANONYMOUS | _HEADERS:x} | sudo tee /proc/{pid}/coredump_filter"
    return Check("coredump-filter", "fail", f"0x{bits:x} leaves out what objects lie in", why, cure)


def kernel_log(place: Place) -> Check:
    why = "who was killed for memory, crashed, or lost a GPU stands there alone"
    probe = KernelLog(place.path("dev/kmsg"))
    try:
        reading = probe.read(time.monotonic_ns())
    except InferdbgError as error:
        return Check("kernel-log", "fail", error.message, why, error.hint)
    finally:
        probe.close()
    section = reading.sections.get("kernel_log")
    if not isinstance(section, Section):
        return Check("kernel-log", "fail", reading.message, why, reading.hint)
    return Check("kernel-log", "ok", f"{section.source} can be read", why)


def perf(place: Place) -> Check:
    """perf_event_paranoid: 2 lets everybody profile his own programs, not the kernel; more (Debian, Ubuntu) nobody."""
    why = "perf record and flame graphs need it"
    level = place.number("proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return Check("perf", "unknown", "this kernel has no perf events", why)
    if level <= 2 or _capable(place, _CAP_PERFMON) or _capable(place, _CAP_SYS_ADMIN):
        return Check("perf", "ok", f"perf_event_paranoid {level}", why)
    found = f"perf_event_paranoid {level}: nobody without rights may profile"
    return Check("perf", "warn", found, why, "sudo sysctl kernel.perf_event_paranoid=1")


def _capable(place: Place, number: int) -> bool:
    found = parse_status(read_file(place.path("proc/self/status")) or b"").get("CapEff", "")
    try:
        return bool(int(found, 16) >> number & 1)
    except ValueError:
        return False


@contextmanager
def _child() -> Iterator[tuple[int, int]]:
    """A Python of ours that waits, and the address of something in it."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline() or 0)
        finally:
            process.kill()
