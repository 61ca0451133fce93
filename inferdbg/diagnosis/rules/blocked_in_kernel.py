"""A thread sleeps in the kernel where no signal reaches it, and stays there: a disk, a server or a driver hangs."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.roles import VITAL, named
from inferdbg.facts.sections.processes import Blocked, Process
from inferdbg.facts.window import SECOND, Window

_PATIENCE_NS = 5 * SECOND  # a busy disk keeps one for some ms
_SURE_NS = 15 * SECOND
_WAITS_FOR = (
    (("nfs", "rpc_"), "a file server (NFS)", "mount -t nfs,nfs4   (names the servers; does df answer?)"),
    (
        ("fuse_", "request_wait_answer", "ceph_", "ll_", "cl_"),
        "a file system that another process or machine serves",
        "mount",
    ),
    (("nv_", "nvidia", "uvm_", "os_acquire", "rm_"), "the GPU driver", "dmesg -T | grep -iE 'xid|nvrm'"),
    (("wait_for_vfork_done", "kernel_clone"), "a child that it has just made", "ps --ppid {pid}"),
    (
        ("__refrigerator", "do_freezer_trap"),
        "nothing: it is frozen",
        "cat /proc/{pid}/cgroup   (whose cgroup.freeze is 1)",
    ),
    (
        (
            "folio_wait",
            "wait_on_page",
            "io_schedule",
            "blk_",
            "submit_bio",
            "ext4_",
            "xfs_",
            "btrfs_",
            "jbd2_",
            "swap_",
        ),
        "a disk",
        "iostat -x 1   or: cat /proc/pressure/io",
    ),
)
"""How names of functions of the kernel begin (6.x; nv_, nvidia, uvm_, os_ and rm_ of NVIDIA's open modules), what a
sleep in them waits for, and where to look next: a page of a file of NFS is waited for as any is, so NFS comes first."""


def check(window: Window) -> Iterator[Finding]:
    server, processes = window.now.server, window.now.processes
    if processes is None or (server is not None and server.state not in ("alive", "orphaned")):
        return
    for process in processes.items:
        for thread in process.blocked:
            since_ns, at_least = _since(window, process.pid, thread.native_id)
            lasts_ns = processes.origin.mono_ns - since_ns
            if lasts_ns >= _PATIENCE_NS:
                yield _finding(process, thread, since_ns, lasts_ns, at_least=at_least)


def _finding(process: Process, thread: Blocked, since_ns: int, lasts_ns: int, *, at_least: bool) -> Finding:
    first = thread.native_id == process.pid
    whose = named(process) if first else f"thread {text.safe(thread.name)} of {named(process)}"
    functions = [name for name in (thread.waits_in, *thread.kernel_stack) if name is not None]
    waits_for, look = _waits_for(functions)
    stack = f"sudo cat /proc/{process.pid}/task/{thread.native_id}/stack   (says where it sleeps)"
    return Finding(
        cause="blocked_in_kernel",
        severity="stuck" if first and (process.role is None or process.role in VITAL) else "note",
        confidence="sure" if lasts_ns >= _SURE_NS else "likely",
        summary=f"{whose} sleeps in the kernel for {text.lasting(lasts_ns, at_least=at_least)}"
        f"{f', for {waits_for}' if waits_for else ''}: no signal reaches it, SIGKILL neither",
        evidence=(
            Evidence("processes.blocked", f"/proc/{process.pid}/task/{thread.native_id}/stat says D at every look"),
            *((Evidence("processes.blocked", f"in {' ← '.join(functions)}"),) if functions else ()),
        ),
        next_step=look.format(pid=process.pid) if look else stack,
        since_ns=since_ns,
        at_least=at_least,
        explains=("step_stalled", "kernel_wedged", "engine_thread_gone", "front_and_engine_disagree", "not_answering"),
    )


def _waits_for(functions: list[str]) -> tuple[str, str]:
    for beginnings, what, look in _WAITS_FOR:
        if any(name.startswith(beginnings) for name in functions):
            return what, look
    return "", ""


def _since(window: Window, pid: int, native_id: int) -> tuple[int, bool]:
    """The first of the last looks at all of which that thread slept so; whether it was so at the first look."""
    began = window.now.mono_ns
    for snapshot in reversed(window.snapshots):
        if snapshot.processes is None:
            continue
        items = snapshot.processes.items
        if not any(one.native_id == native_id for process in items if process.pid == pid for one in process.blocked):
            return began, False
        began = snapshot.processes.origin.mono_ns
    return began, True
