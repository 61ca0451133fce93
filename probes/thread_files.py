"""What the kernel says of each thread: /proc/PID/task/TID, which stops nobody and is there without Python, too."""

import contextlib
import os
import platform
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from inferdbg import text
from inferdbg.facts.sections.stacks import ThreadStack

from .process_table import parse_stat
from .processes import parse_status, read_file

MOST_THREADS = 512
_MOST_KERNEL_CALLS = 16
_FUTEX = {"x86_64": 202, "aarch64": 98}
"""arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h"""


class ThreadFiles(NamedTuple):
    """What could be read of /proc/PID/task/TID; None: not by us."""

    stat: bytes
    status: bytes | None = None
    schedstat: bytes | None = None
    wchan: bytes | None = None
    syscall: bytes | None = None
    stack: bytes | None = None


def read_threads(pid: int, proc: str = "/proc") -> tuple[ThreadStack, ...]:
    """Every thread, the main one first; none of a process that is gone."""
    folder = f"{proc}/{pid}/task"
    try:
        tids = sorted((int(name) for name in os.listdir(folder)), key=lambda tid: (tid != pid, tid))[:MOST_THREADS]
    except OSError:
        return ()
    found: list[ThreadStack] = []
    for tid in tids:
        here = f"{folder}/{tid}"
        stat, *others = (read_file(f"{here}/{name}") for name in ThreadFiles._fields)
        with contextlib.suppress(ValueError, IndexError):  # it ended meanwhile
            found.append(parse_thread(ThreadFiles(stat or b"", *others)))
    return tuple(found)


def parse_thread(files: ThreadFiles, machine: str = platform.machine()) -> ThreadStack:
    """A thread as the kernel sees it, without its calls; see proc_pid_stat(5), proc_pid_syscall(5), proc_pid_wchan(5).
    ValueError or IndexError where ``stat`` is none."""
    stat = parse_stat(files.stat)
    woken = parse_status(files.status or b"").get("voluntary_ctxt_switches", "")
    ran = (files.schedstat or b"").split()
    wait = (files.wchan or b"").decode("ascii", "replace").partition(".")[0]
    return ThreadStack(
        text.safe(stat.comm),
        stat.pid,
        active=stat.state == "R",
        state=text.safe(stat.state),
        kernel_wait=text.safe(wait) if wait not in ("", "0") else None,
        timed=_timed(files.syscall or b"", machine),
        cpu_ns=int(ran[0]) if ran and ran[0].isdigit() else stat.cpu_ns,
        wakes=int(woken) if woken.isdigit() else None,
        kernel_calls=_kernel_calls(files.stack or b"") if stat.state == "D" else (),
    )


def _timed(syscall: bytes, machine: str) -> bool | None:
    """Whether it sleeps on a futex with a timeout, as whoever waits for the GIL does; None: on no futex."""
    words = syscall.split()
    if len(words) < 5 or words[0] != str(_FUTEX.get(machine)).encode():
        return None
    return words[4] != b"0x0"


def _kernel_calls(stack: bytes) -> tuple[str, ...]:
    """``[<0>] futex_do_wait+0x46/0x90`` is ``futex_do_wait``."""
    lines = stack.decode("ascii", "replace").splitlines()[:_MOST_KERNEL_CALLS]
    return tuple(text.safe(line.rpartition("] ")[2].partition("+")[0]) for line in lines)


def with_kernel(
    threads: Sequence[ThreadStack], kernel: Sequence[ThreadStack], *, native: bool = False
) -> tuple[ThreadStack, ...]:
    """Threads with what the kernel says of each. ``native``: those that only the kernel knows behind them."""
    by_id = {thread.native_id: thread for thread in kernel}
    known = {thread.native_id for thread in threads}
    joined = tuple(
        replace(
            thread,
            name=thread.name or there.name,
            active=thread.active or there.state == "R",
            state=there.state,
            kernel_wait=there.kernel_wait,
            timed=there.timed,
            cpu_ns=there.cpu_ns,
            wakes=there.wakes,
            kernel_calls=there.kernel_calls,
        )
        if (there := by_id.get(thread.native_id)) is not None
        else thread
        for thread in threads
    )
    return joined + (tuple(thread for thread in kernel if thread.native_id not in known) if native else ())
