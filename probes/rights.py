"""Whether we may read another process's memory, why not, and what to type to get the right."""

import os

from msgspec import Struct

from .processes import parse_status, read_file

_CAP_SYS_PTRACE = 19
_YAMA = "sys/kernel/yama/ptrace_scope"


class Denied(Struct, frozen=True):
    """``why`` and ``cure``: lines for people."""

    why: str
    cure: str


def denied_memory(pid: int, proc: str = "/proc") -> Denied | None:
    """None when its memory may be read. Opens /proc/PID/mem, for which the kernel asks what process_vm_readv asks
    (ptrace(2), PTRACE_MODE_ATTACH), and reads nothing."""
    try:
        os.close(os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return why_denied(
            owner=_uid(read_file(f"{proc}/{pid}/status") or b""),
            own=os.geteuid(),
            capable=_capable(read_file(f"{proc}/self/status") or b""),
            scope=_scope(read_file(f"{proc}/{_YAMA}") or b""),
            pid=pid,
        )
    except OSError as error:
        return Denied(f"process {pid} cannot be read: {error.strerror}", "inferdbg top   shows what runs here")
    return None


def why_denied(*, owner: int | None, own: int, capable: bool, scope: int, pid: int) -> Denied:
    """``capable``: we hold CAP_SYS_PTRACE; ``scope``: of Yama (0 where there is none)."""
    if scope == 3:
        return Denied(
            "this machine lets nobody read another process's memory (kernel.yama.ptrace_scope is 3)",
            "only a restart of the machine with another kernel.yama.ptrace_scope changes that",
        )
    if own == 0 and not capable:
        return Denied(
            f"reading the memory of process {pid} needs CAP_SYS_PTRACE, which this container does not have",
            "docker run --cap-add SYS_PTRACE; in Kubernetes securityContext.capabilities.add: [SYS_PTRACE]",
        )
    if owner is not None and owner != own:
        return Denied(f"process {pid} belongs to uid {owner}", f"sudo inferdbg attach {pid}")
    if scope >= 1:
        return Denied(
            f"only a parent may read the memory of process {pid} (kernel.yama.ptrace_scope is {scope})",
            f"sudo inferdbg attach {pid}" + (", or sudo sysctl kernel.yama.ptrace_scope=0" if scope == 1 else ""),
        )
    return Denied(f"process {pid} protects its memory", f"sudo inferdbg attach {pid}")


def _uid(status: bytes) -> int | None:
    words = parse_status(status).get("Uid", "").split()
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


def _capable(status: bytes) -> bool:
    try:
        return bool(int(parse_status(status).get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1)
    except ValueError:
        return False


def _scope(content: bytes) -> int:
    return int(content) if content.strip().isdigit() else 0
