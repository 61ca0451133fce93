"""Checks of what keeps evidence: whether a black box outlives its container and login, and whether dumps have room."""

import configparser
import os
import pwd

from inferdbg import text

from ..containers import container
from ..processes import kilobytes, parse_status, read_file
from .check import Check, Place

MIB, GIB = 1 << 20, 1 << 30
_BOX_BYTES = 64 * MIB
_DUMP_BYTES = 8 * GIB
_SYSTEM_UIDS = 1000
_MEMORY = ("tmpfs", "ramfs")
_LOGIND = ("usr/lib/systemd/logind.conf.d", "run/systemd/logind.conf.d", "etc/systemd/logind.conf.d")
_ELSEWHERE = "inferdbg serve --blackbox-dir /FOLDER   (also of the plug-in)"


def box_space(place: Place) -> Check:
    why = "the black box lies there"
    try:
        found = os.statvfs(place.path(place.box_folder.lstrip("/")))
    except OSError as error:
        said = f"{place.box_folder} cannot be looked at: {error.strerror}"
        return Check("box-space", "fail", said, why, _ELSEWHERE)
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    said = f"{place.box_folder}: {text.size(free)} of {text.size(size)} free"
    if free < _BOX_BYTES:
        cure = "docker run --shm-size 8g; else: ls -lS " + place.box_folder
        return Check("box-space", "fail" if free < MIB else "warn", f"{said}: rings will shrink", why, cure)
    return Check("box-space", "ok", said, why)


def box_outlives_login(place: Place) -> Check:
    """RemoveIPC of logind.conf(5), by default on, removes what a user has in /dev/shm at the end of his last session;
    system users and those that linger are spared."""
    why = "logind removes a user's files in /dev/shm when he logs out"
    if not os.path.isdir(place.path("run/systemd/system")):
        return Check("box-outlives-login", "ok", "no systemd runs here", why)
    if not place.box_folder.startswith("/dev/shm"):
        return Check("box-outlives-login", "ok", f"boxes lie in {place.box_folder}", why)
    if place.uid < _SYSTEM_UIDS:
        return Check("box-outlives-login", "ok", f"uid {place.uid} is a system user's", why)
    if not _removes(place):
        return Check("box-outlives-login", "ok", "RemoveIPC=no", why)
    try:
        name = pwd.getpwuid(place.uid).pw_name
    except KeyError:
        name = str(place.uid)
    if os.path.exists(place.path(f"var/lib/systemd/linger/{name}")):
        return Check("box-outlives-login", "ok", f"{name} lingers", why)
    found = "RemoveIPC is on: the box of a dead server goes with the last login of its user"
    return Check("box-outlives-login", "warn", found, why, f"sudo loginctl enable-linger {name}")


def _removes(place: Place) -> bool:
    """By the main file and then the others by their names, the last one counts."""
    parts: dict[str, str] = {}
    for folder in _LOGIND:
        try:
            parts |= {name: f"{folder}/{name}" for name in os.listdir(place.path(folder)) if name.endswith(".conf")}
        except OSError:
            continue
    removes = True
    for path in ("etc/systemd/logind.conf", *(parts[name] for name in sorted(parts))):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        try:
            parser.read_string(place.read(path) or "")
            removes = parser.getboolean("Login", "RemoveIPC", fallback=removes)
        except (configparser.Error, ValueError):
            continue
    return removes


def box_outlives_container(place: Place) -> Check:
    why = "what lies in a container's own memory ends with it"
    inside = container(place.root)
    kind = file_system(place.read("proc/self/mountinfo") or "", place.box_folder)
    on = f"{place.box_folder} ({kind})" if kind is not None else place.box_folder
    if inside is None:
        return Check("box-outlives-container", "ok", f"no container; {on}", why)
    if kind is not None and kind not in (*_MEMORY, "overlay"):
        return Check("box-outlives-container", "ok", f"in {inside}, but {on} comes from outside", why)
    cure = "docker run --ipc=host, or -v /dev/shm/boxes:/boxes and --blackbox-dir /boxes; in Kubernetes an emptyDir"
    return Check("box-outlives-container", "warn", f"in {inside}: a restart takes {on} along", why, cure)


def file_system(mountinfo: str, path: str) -> str | None:
    """What kind the mount is that a path lies in, by proc_pid_mountinfo(5): the longest mount point counts, of equal
    ones the last."""
    found, length = None, -1
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if dash and len(fields) >= 5 and right:
            point = fields[4].rstrip("/")
            if (path == point or path.startswith(f"{point}/")) and len(point) >= length:
                found, length = right.split()[0], len(point)
    return found


def disk(place: Place) -> Check:
    """Free space where a core or a dump would go: the folder that the target runs in, else ours."""
    why = "a core is as large as the memory of its process"
    pid = place.pids[0] if place.pids else None
    folder = place.path(f"proc/{pid}/cwd") if pid is not None else os.getcwd()
    sizes = [
        kilobytes(parse_status(read_file(place.path(f"proc/{one}/status")) or b"").get("VmRSS")) for one in place.pids
    ]
    needed = max((size for size in sizes if size is not None), default=_DUMP_BYTES)
    try:
        found = os.statvfs(folder)
        where = os.path.realpath(folder)
    except OSError as error:
        return Check(
            "disk", "unknown", f"the folder cannot be looked at: {error.strerror}", why, "sudo inferdbg doctor …"
        )
    free = found.f_bavail * found.f_frsize
    said = f"{text.safe(where, 60)}: {text.size(free)} free, a core takes up to {text.size(needed)}"
    if free < needed:
        return Check(
            "disk", "fail" if pid is not None else "warn", said, why, "df -h; or a core_pattern on a larger disk"
        )
    return Check("disk", "ok", said, why)
