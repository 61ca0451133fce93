"""Checks of the machine under the server: clock, memory placement, limits."""

import ctypes
import glob
import os
import re

from inferdbg import text

from ..cgroups import read_limits
from ..processes import kilobytes, parse_open_files_limit, parse_status, read_file
from .check import Check, Place

_TIME_ERROR, _STA_UNSYNC = 5, 0x40
_STATUS_OFFSET = 40
"""Of ``status`` in struct timex (adjtimex(2)), where a long has 64 bits: modes, offset, freq, maxerror, esterror."""
_FEW_FILES = 4096
_TIGHT = 0.9


def clock(place: Place) -> Check:
    """Asks the kernel (adjtimex(2), which changes nothing when asked so) whether anybody keeps its clock."""
    why = "logs of several machines are put in order by it"
    state, status = _adjtimex()
    if state is None:
        return Check("clock", "unknown", "the kernel does not say whether its clock is kept", why)
    if state == _TIME_ERROR or status & _STA_UNSYNC:
        cure = "timedatectl set-ntp true   (or start chronyd; of a container: on the host)"
        return Check("clock", "warn", "nobody synchronises it", why, cure)
    return Check("clock", "ok", "synchronised", why)


def _adjtimex() -> tuple[int | None, int]:
    if ctypes.sizeof(ctypes.c_long) != 8:
        return None, 0
    timex = ctypes.create_string_buffer(512)  # all zero: modes 0 sets nothing
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None, 0
    status = int.from_bytes(timex.raw[_STATUS_OFFSET : _STATUS_OFFSET + 4], "little")
    return (None, 0) if state < 0 else (state, status)


def numa_balancing(place: Place) -> Check:
    why = "pages that move between nodes fault, and steps get uneven"
    nodes = len(glob.glob(place.path("sys/devices/system/node/node[0-9]*")))
    value = place.number("proc/sys/kernel/numa_balancing")
    if value is None:
        return Check("numa-balancing", "ok", "this kernel has none", why)
    if value == 0 or nodes < 2:
        return Check("numa-balancing", "ok", "off" if value == 0 else "on, of one node", why)
    return Check("numa-balancing", "warn", f"on, of {nodes} nodes", why, "sudo sysctl kernel.numa_balancing=0")


def huge_pages(place: Place) -> Check:
    why = "compacting memory for them at every fault stalls a process for milliseconds"
    folder = "sys/kernel/mm/transparent_hugepage"
    enabled, defrag = (_chosen(place.read(f"{folder}/{name}")) for name in ("enabled", "defrag"))
    if enabled is None:
        return Check("huge-pages", "unknown", "this kernel has no transparent huge pages", why)
    found = f"enabled {enabled}, defrag {defrag}"
    if (enabled, defrag) == ("always", "always"):
        return Check("huge-pages", "warn", found, why, f"echo madvise | sudo tee /{folder}/defrag")
    return Check("huge-pages", "ok", found, why)


def _chosen(said: str | None) -> str | None:
    """``always [madvise] never``"""
    found = re.search(r"\[([\w+]+)\]", said or "")
    return found[1] if found is not None else None


def open_files(place: Place) -> Check:
    why = "each client and each ZMQ socket takes some; at the limit new clients are refused"
    tight: list[tuple[float, str, int]] = []
    least: tuple[int, int | str] | None = None
    for pid in place.pids or ("self",):
        limit = parse_open_files_limit(read_file(place.path(f"proc/{pid}/limits")) or b"")
        if limit is None:
            continue
        least = (limit, pid) if least is None else min(least, (limit, pid), key=lambda one: one[0])
        try:
            used = len(os.listdir(place.path(f"proc/{pid}/fd")))
        except OSError:
            continue
        if used > _TIGHT * limit:
            tight.append((used / limit, f"process {pid} has {text.count(used)} of {text.count(limit)}", limit))
    if least is None:
        return Check("open-files", "unknown", "the limits may not be read, or there are none", why)
    if tight:
        cure = f"sudo prlimit --pid {least[1]} --nofile=65536"
        return Check("open-files", "fail", max(tight)[1], why, cure)
    whose = "of what is started here" if least[1] == "self" else f"of process {least[1]}"
    if least[0] < _FEW_FILES:
        cure = "ulimit -n 65536   (before the server starts)"
        return Check("open-files", "warn", f"{text.count(least[0])} {whose}", why, cure)
    return Check("open-files", "ok", f"{text.count(least[0])} {whose}", why)


def memory_limit(place: Place) -> Check:
    """Of the control groups of the target, or ours."""
    why = "at the limit the kernel kills with SIGKILL, and no log of the server says so"
    pid = place.pids[0] if place.pids else "self"
    limits = read_limits(read_file(place.path(f"proc/{pid}/cgroup")) or b"", place.path("sys/fs/cgroup"))
    if limits.memory_bytes is None:
        return Check("memory-limit", "ok", "no limit by a control group", why)
    if limits.memory_used is None:
        return Check("memory-limit", "unknown", f"{text.size(limits.memory_bytes)}; how much is used is not told", why)
    used = limits.memory_used / limits.memory_bytes if limits.memory_bytes else 1.0
    found = f"{text.size(limits.memory_used)} of {text.size(limits.memory_bytes)} used ({text.percent(used)})"
    if used > _TIGHT:
        cure = "raise it: docker update --memory 64g NAME; in Kubernetes resources.limits.memory"
        return Check("memory-limit", "warn", found, why, cure)
    return Check("memory-limit", "ok", found, why)


def swap(place: Place) -> Check:
    why = "a server whose memory is swapped out stalls for seconds"
    found = parse_status(read_file(place.path("proc/meminfo")) or b"")
    total, free = kilobytes(found.get("SwapTotal")), kilobytes(found.get("SwapFree"))
    if total is None or free is None:
        return Check("swap", "unknown", "/proc/meminfo does not tell of swap", why)
    mine = [
        kilobytes(parse_status(read_file(place.path(f"proc/{pid}/status")) or b"").get("VmSwap")) or 0
        for pid in place.pids
    ]
    if sum(mine):
        return Check(
            "swap",
            "warn",
            f"{text.size(sum(mine))} of the target are swapped out",
            why,
            "sudo swapoff -a   (where memory suffices)",
        )
    used = f"{text.size(total - free)} of {text.size(total)} used" if total else "none"
    return Check("swap", "ok", used, why)
