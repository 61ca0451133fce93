"""What the control groups of a process leave it of the machine: processors and memory. Versions 1 and 2."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from inferdbg.facts.sections.processes import Stalled

_ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60  # version 1 writes a number near 2**63 for "no limit"


class Limits(NamedTuple):
    """None: no limit that we can see. ``memory_used`` is counted against ``memory_bytes``, what the kernel can drop
    at once not included."""

    cpus: int | None = None
    memory_bytes: int | None = None
    memory_used: int | None = None


def read_limits(cgroup: bytes, root: str = _ROOT) -> Limits:
    """The tightest limits on the way from the groups in /proc/PID/cgroup up to the root."""
    cpus: int | None = None
    memory: int | None = None
    used: int | None = None
    for controllers, path in groups(cgroup):
        for folder in folders(root, controllers, path):
            if "cpu" in controllers or not controllers:
                allowed = parse_cpus(
                    _read(f"{folder}/cpu.max"),
                    _read(f"{folder}/cpu.cfs_quota_us"),
                    _read(f"{folder}/cpu.cfs_period_us"),
                )
                if allowed is not None:
                    cpus = allowed if cpus is None else min(cpus, allowed)
            if "memory" in controllers or not controllers:
                limit = number(_read(f"{folder}/memory.max") or _read(f"{folder}/memory.limit_in_bytes"))
                if limit is not None and (memory is None or limit < memory):
                    memory = limit
                    current = number(_read(f"{folder}/memory.current") or _read(f"{folder}/memory.usage_in_bytes"))
                    used = (
                        None if current is None else max(0, current - droppable(_read(f"{folder}/memory.stat") or b""))
                    )
    return Limits(cpus, memory, used)


def read_stalled(cgroup: bytes, machine: str, root: str = _ROOT) -> tuple[tuple[Stalled, ...], bool]:
    """Pressure stall information of the process's own group (True), or, where that has none, of the whole machine,
    whose folder ``machine`` is; see the kernel's Documentation/accounting/psi.rst."""
    for controllers, path in groups(cgroup):
        if not controllers and path != "/" and ".." not in path:
            found = _stalled(f"{root}{path}", ".pressure")
            if found:
                return found, True
    return _stalled(machine, ""), False


def _stalled(folder: str, suffix: str) -> tuple[Stalled, ...]:
    read = {resource: _read(f"{folder}/{resource}{suffix}") for resource in ("cpu", "memory", "io")}
    return tuple(parse_stalled(resource, content) for resource, content in read.items() if content)


def parse_stalled(resource: str, content: bytes) -> Stalled:
    """``some avg10=0.00 … total=351807477`` and ``full …``; totals are microseconds. Missing lines are 0."""
    totals = {b"some": 0, b"full": 0}
    for line in content.splitlines():
        kind, _, rest = line.partition(b" ")
        total = number(rest.rpartition(b"total=")[2])
        if kind in totals and total is not None:
            totals[kind] = total
    return Stalled(resource, totals[b"some"] * 1000, totals[b"full"] * 1000)


def read_oom_kills(cgroup: bytes, root: str = _ROOT) -> int | None:
    """How often the kernel killed somebody in the process's group; None where it has none of its own, or of no
    memory."""
    for controllers, path in groups(cgroup):
        if path != "/" and ("memory" in controllers or not controllers):
            folder = next(folders(root, controllers, path), None)
            for name in ("memory.events", "memory.oom_control"):
                for line in (_read(f"{folder}/{name}") or b"").splitlines():
                    if line.startswith(b"oom_kill "):
                        return number(line.removeprefix(b"oom_kill "))
    return None


def parse_memory(meminfo: bytes, limits: Limits) -> tuple[int | None, int | None]:
    """Total and available bytes of the machine, from /proc/meminfo, within the limits."""
    kilobytes = {}
    for line in meminfo.splitlines():
        name, _, value = line.partition(b":")
        if name in (b"MemTotal", b"MemAvailable"):
            kilobytes[name] = int(value.split()[0])
    total, available = (
        kilobytes[name] * 1024 if name in kilobytes else None for name in (b"MemTotal", b"MemAvailable")
    )
    if limits.memory_bytes is None or (total is not None and limits.memory_bytes >= total):
        return total, available
    if limits.memory_used is None:
        return limits.memory_bytes, available
    left = max(0, limits.memory_bytes - limits.memory_used)
    return limits.memory_bytes, left if available is None else min(left, available)


def groups(cgroup: bytes) -> Iterator[tuple[tuple[str, ...], str]]:
    """Controllers and path of each line of /proc/PID/cgroup; version 2 has no controllers."""
    for line in cgroup.decode("utf-8", "replace").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            yield tuple(filter(None, parts[1].split(","))), parts[2]


def folders(root: str, controllers: tuple[str, ...], path: str) -> Iterator[str]:
    """Where the group lies as we see it, and its ancestors."""
    if any(controller.startswith("name=") for controller in controllers) or ".." in path:
        return
    base = f"{root}/{','.join(controllers)}" if controllers else root
    group = PurePosixPath(path)
    for part in (group, *group.parents):
        yield f"{base}{part}".rstrip("/")


def parse_cpus(maximum: bytes | None, quota: bytes | None, period: bytes | None) -> int | None:
    """Processors' worth of time, rounded up: cpu.max of version 2, or quota and period of version 1."""
    words = maximum.split() if maximum else [quota or b"", period or b""]
    allowed, per = number(words[0]), number(words[-1])
    return None if allowed is None or not per else -(-allowed // per)


def droppable(stat: bytes) -> int:
    """Bytes of the page cache that go first (memory.stat)."""
    for line in stat.splitlines():
        name, _, value = line.partition(b" ")
        if name in (b"inactive_file", b"total_inactive_file"):
            return int(value)
    return 0


def number(text: bytes | None) -> int | None:
    """None for "max", -1, and what stands for no limit."""
    if text is None or not text.strip().isdigit():
        return None
    value = int(text)
    return value if value < _UNLIMITED else None


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16)
    except OSError:
        return None
