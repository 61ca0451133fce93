"""Finds the boxes of bundled engines on this machine, of living and dead ones, also in containers and of other users.

Where it looks, cheapest first: the folders that boxes go to by default, of every user; the same folders in every other
mount namespace, through one process of each; and what any process holds locked as an engine locks its box, wherever
--blackbox-dir put it. Nothing here waits for an engine, and no file of /proc is read that a stuck process can block.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from inferdbg.blackbox.reader import Box, holder_of, is_locked
from inferdbg.blackbox.writer import SUFFIX, boot_id, default_folders, start_ticks
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.server import ServerState

from .engine_columns import items
from .engine_facts import EngineFacts, parse_facts
from .servers import FoundServer

DAY_NS = 86400 * 10**9
MAX_BOXES = 200
"""Looked at in one folder; whoever has more finds the rest when these are cleared."""
_PARENTS = ("dev/shm", "run/user/*", "tmp")


class FoundEngine(Struct, frozen=True):
    """``pid``: as seen from here when alive (None: in a PID namespace that we cannot look into); the engine's own word
    when dead. ``age_ns``: since its start when alive, since its last sign of life when dead."""

    box_path: str
    state: ServerState
    age_ns: int
    pid: int | None = None
    model: str | None = None
    url: str | None = None

    @property
    def alive(self) -> bool:
        return self.state == "alive"


class BrokenBox(Struct, frozen=True):
    """A file that should be a box and is none that can be read. ``pid``: of the engine that holds it all the same, else
    the one that its name tells. ``why``: a line for people, with the path."""

    path: str
    why: str
    pid: int | None = None


class Found(Struct, frozen=True):
    """``engines``: living ones first, then the latest to die. ``unseen``: what could not be looked at and what to type
    to see it, lines for people; ``broken``: files that should be boxes and are not. ``servers``: other people's, which
    probes.servers finds."""

    engines: tuple[FoundEngine, ...] = ()
    unseen: tuple[str, ...] = ()
    broken: tuple[BrokenBox, ...] = ()
    servers: tuple[FoundServer, ...] = ()


def discover(
    *, now_wall_ns: int, now_mono_ns: int, folders: Sequence[str] = (), proc: str = "/proc", root: str = "/"
) -> Found:
    """Every box that can be found; ``folders``: further ones to look into. This process's own is left out: opening it
    would tell others that we died. ``proc`` and ``root``: where to look, for tests."""
    engines: list[FoundEngine] = []
    unseen: list[str] = []
    broken: list[BrokenBox] = []
    seen: set[tuple[int, int]] = set()
    for path in _box_paths(folders, proc, root, unseen):
        try:
            found = os.lstat(path)
        except OSError:
            continue  # gone meanwhile
        identity = (found.st_dev, found.st_ino)
        if identity in seen or not stat.S_ISREG(found.st_mode) or _is_own(path):
            continue
        seen.add(identity)
        try:
            engines.append(describe(path, now_wall_ns=now_wall_ns, now_mono_ns=now_mono_ns))
        except InferdbgError as error:
            if os.access(path, os.R_OK):
                broken.append(BrokenBox(path, error.message, _engine_behind(path)))
            else:
                unseen.append(f"{error.message}: {error.hint}")
    engines.sort(key=lambda engine: (not engine.alive, engine.age_ns))
    return Found(engines=tuple(engines), unseen=tuple(dict.fromkeys(unseen)), broken=tuple(broken))


def _engine_behind(path: str) -> int | None:
    """Whose box it is, or was, as well as can be told without reading it."""
    try:
        holder = holder_of(path)
    except OSError:
        holder = None
    told = os.path.basename(path).partition("-")[0]
    return holder if holder is not None else int(told) if re.fullmatch("[0-9]{1,10}", told) else None


def describe(path: str, *, now_wall_ns: int, now_mono_ns: int) -> FoundEngine:
    """What a box says about its engine, in a line. Raises InferdbgError."""
    box = Box.open(path)
    try:
        state: ServerState = box.state()
        layout = box.layout
        pulse = items(box.read(["pulse"]).columns, "pulse", "Q")
        heartbeat = max(layout.created_mono_ns, pulse[0] if pulse else 0)
        since = layout.created_mono_ns if state == "alive" else heartbeat
        if layout.boot == boot_id():
            age_ns = now_mono_ns - since
        else:  # its clock stopped with that boot
            age_ns = now_wall_ns - layout.created_wall_ns - (since - layout.created_mono_ns)
        encoded = box.facts()
        try:
            static = parse_facts(encoded)
        except msgspec.DecodeError:
            static = parse_facts(None)
        facts: EngineFacts = static.facts
        return FoundEngine(
            box_path=path,
            state=state,
            age_ns=max(0, age_ns),
            pid=box.holder() if state == "alive" else layout.pid,
            model=facts.model.name if facts.model is not None else None,
            url=static.url if state == "alive" else None,
        )
    finally:
        box.close()


def clear_old(
    *,
    now_wall_ns: int,
    now_mono_ns: int,
    folders: Sequence[str] | None = None,
    max_age_ns: int = 7 * DAY_NS,
    keep: int = 20,
) -> list[str]:
    """Removes our own dead engines' boxes that are older than ``max_age_ns``, and all but the latest ``keep``; returns
    their paths. ``folders``: where to look (None: where our boxes go by default). A box whose lock is held stays."""
    dead: list[FoundEngine] = []
    uid = os.geteuid()
    for folder in default_folders(uid) if folders is None else folders:
        for path in _boxes_in(folder, []):
            try:
                found = os.lstat(path)
                if found.st_uid != uid or not stat.S_ISREG(found.st_mode) or _is_own(path):
                    continue
                engine = describe(path, now_wall_ns=now_wall_ns, now_mono_ns=now_mono_ns)
                if not is_locked(path):
                    dead.append(engine)
            except InferdbgError:  # broken, or being made this moment: only its date says which
                if now_wall_ns - found.st_mtime_ns > max_age_ns and not is_locked(path):
                    dead.append(FoundEngine(box_path=path, state="dead", age_ns=max_age_ns + 1))
            except OSError:
                continue  # gone meanwhile
    dead.sort(key=lambda engine: engine.age_ns)
    old = [engine for rank, engine in enumerate(dead) if rank >= keep or engine.age_ns > max_age_ns]
    return [engine.box_path for engine in old if _removed(engine.box_path)]


def _removed(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _box_paths(folders: Sequence[str], proc: str, root: str, unseen: list[str]) -> Iterator[str]:
    for folder in [*folders, *_default_folders_under(root, unseen)]:
        yield from _boxes_in(folder, unseen)
    for process in _one_of_each_mount_namespace(proc, unseen):
        for folder in _default_folders_under(f"{process}/root", unseen):
            yield from _boxes_in(folder, unseen)
    for process in _lock_holders(proc):
        yield from _open_boxes(process)


def _default_folders_under(root: str, unseen: list[str]) -> Iterator[str]:
    """Of every user, below the root folder of a mount namespace."""
    parents = [*_PARENTS, *([tempfile.gettempdir().lstrip("/")] if root == "/" else [])]
    for pattern in dict.fromkeys(parents):
        try:
            yield from sorted(str(path) for path in Path(root).glob(f"{pattern}/inferdbg-*"))
        except OSError:
            unseen.append(f"{root} cannot be looked into: run inferdbg with sudo to see boxes in it")


def _boxes_in(folder: str, unseen: list[str]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    except PermissionError:
        unseen.append(f"{folder} is another user's: run inferdbg with sudo to see its boxes")
        return []
    except OSError:
        return []
    if len(names) > MAX_BOXES:
        unseen.append(f"{folder} has {len(names)} boxes: only {MAX_BOXES} of them were looked at")
    return [os.path.join(folder, name) for name in sorted(names)[:MAX_BOXES]]


def _one_of_each_mount_namespace(proc: str, unseen: list[str]) -> list[str]:
    """A process of every mount namespace but ours, as its folder in /proc."""
    known = {_read_link(f"{proc}/self/ns/mnt")}
    found: list[str] = []
    denied = 0
    for process in _processes(proc):
        namespace = _read_link(f"{process}/ns/mnt")
        if namespace is None:
            denied += 1
        elif namespace not in known:
            known.add(namespace)
            found.append(process)
    if denied and os.geteuid():
        unseen.append(f"{denied} processes of other users: run inferdbg with sudo to see boxes in their containers")
    return found


def _processes(proc: str) -> Iterable[str]:
    return (f"{proc}/{pid}" for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()))


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _lock_holders(proc: str) -> list[str]:
    """Processes that hold a write lock on the first byte of some file, as /proc/locks tells without any risk."""
    try:
        lines = Path(proc, "locks").read_text().splitlines()
    except OSError:
        return []
    fields = (line.split() for line in lines)
    pids = {
        row[4] for row in fields if len(row) == 8 and row[1] == "POSIX" and row[3] == "WRITE" and row[6:] == ["0", "0"]
    }
    return [f"{proc}/{pid}" for pid in sorted(pids) if pid.isdigit()]


def _open_boxes(process: str) -> list[str]:
    """Boxes among the open files of a process, by paths that lead there from our mount namespace too."""
    try:
        descriptors = os.listdir(f"{process}/fd")
    except OSError:
        return []
    found: list[str] = []
    for descriptor in descriptors:
        target = _read_link(f"{process}/fd/{descriptor}")
        if target is not None and target.startswith("/") and target.endswith(SUFFIX):
            found.append(target if _same_file(target, f"{process}/fd/{descriptor}") else f"{process}/root{target}")
    return found


def _same_file(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def _is_own(path: str) -> bool:
    return os.path.basename(path).startswith(f"{os.getpid()}-{start_ticks()}.")
