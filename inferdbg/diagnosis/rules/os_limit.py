"""A process is about to run out of files, or the server of shared memory: what fails next fails with other words."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.roles import named
from inferdbg.facts.window import Window

_NEARLY = 0.95


def check(window: Window) -> Iterator[Finding]:
    processes = window.now.processes
    if processes is None:
        return
    for process in processes.items:
        opened, limit = process.open_files, process.open_files_limit
        if opened is not None and limit and opened >= _NEARLY * limit:
            yield Finding(
                cause="os_limit",
                severity="wrong",
                confidence="sure",
                summary=f"{named(process)} has {text.count(opened)} of {text.count(limit)} files open: with the last "
                "one it takes no connection any more (EMFILE, ZMQError)",
                evidence=(Evidence("processes.open_files", f"entries of /proc/{process.pid}/fd, and its limits"),),
                next_step=f"ls -l /proc/{process.pid}/fd   (what they are);  prlimit --pid {process.pid} "
                f"--nofile={4 * limit}   (raises the limit while it runs)",
            )
    size, used = processes.shm_bytes, processes.shm_used_bytes
    if size and used is not None and used >= _NEARLY * size:
        yield Finding(
            cause="shm_exhausted",
            severity="wrong",
            confidence="sure",
            summary=f"/dev/shm is full: {text.size(used)} of {text.size(size)}; whoever writes more dies of SIGBUS",
            evidence=(Evidence("processes.shm_used_bytes", "by statvfs of the server's /dev/shm"),),
            next_step="ls -lS /dev/shm   (what fills it);  docker run --shm-size=16g, in Kubernetes an emptyDir with "
            "medium: Memory",
        )
