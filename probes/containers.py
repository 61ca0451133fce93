"""Whether we run in a container, and whether our PIDs are those of the machine."""

import os
import re

from .processes import read_file

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: the same on every machine."""
_MARKS = (
    ("var/run/secrets/kubernetes.io", "kubernetes"),
    ("run/.containerenv", "podman"),
    (".dockerenv", "docker"),
)
_PATHS = re.compile(rb"docker|kubepods|containerd|libpod|lxc|crio", re.IGNORECASE)


def container(root: str = "/") -> str | None:
    """What kind of container this looks like (docker, podman, kubernetes …); None where it looks like none."""
    if told := (read_file(f"{root}/run/systemd/container") or b"").strip():
        return told.decode("ascii", "replace")[:40]
    for path, kind in _MARKS:
        if os.path.exists(f"{root}/{path}"):
            return kind
    found = _PATHS.search(read_file(f"{root}/proc/1/cgroup") or b"")
    return found[0].decode().lower() if found else None


def has_own_pids(proc: str = "/proc") -> bool:
    """We are in a PID namespace of our own: the kernel's log counts PIDs otherwise than we."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PID_NAMESPACE
    except OSError:
        return False
