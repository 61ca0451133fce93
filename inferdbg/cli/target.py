"""What a person means by TARGET: a PID, a URL, a black box, a recording, a core file, or nothing; made a Source."""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from inferdbg.cli.depth import Depth, Wanted, depth_of, depth_of_engine, stacks_of_engine
from inferdbg.cli.here import discovered, of_pid, of_url, the_only_one
from inferdbg.cli.naming import engine_name, is_remains, name_of
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.cli.brief import BriefSource
    from inferdbg.cli.naming import Engine
    from inferdbg.collect.collector import Collector
    from inferdbg.collect.live import LiveSource
    from inferdbg.collect.probe import Probe
    from inferdbg.facts.source import Source
    from inferdbg.probes.discovery import FoundEngine
    from inferdbg.record.writer import RecordingWriter

    Record = Callable[[], RecordingWriter | None]

HELP = "TARGET is a PID, the URL of a server, a black box, a recording or a core file."
DEEPEST = Wanted()
_ADDRESS = re.compile(r"(?:https?://.+|(?:\[[0-9a-f:]+\]|[\w.-]+)?:[0-9]+(?:/.*)?)", re.IGNORECASE)
_MOST_DIGITS = 10


def source_of(target: str | None, record: "Record" = lambda: None, *, brief: bool = False) -> "Source":
    """Raises InferdbgError when there is no such thing, it cannot be read, or nothing was named and several are there.
    ``record`` opens what gets all that is seen of an engine, if anything does. ``brief``: for a look or two."""
    if is_recording(target):
        assert target is not None
        return _replayed(target)
    found = engine_of(target)
    recording = record()
    return brief_source(found) if brief and recording is None else engine_source(found, recording)


def is_recording(target: str | None) -> bool:
    """Whether a file is meant that is no black box: a recording, a core. Raises InferdbgError for what is no file."""
    return target is not None and _pid_in(target) is None and os.path.exists(target) and not _is_box(target)


def source_of_file(path: str, *, brief: bool = False) -> "Source":
    """A recording or a black box. Raises InferdbgError."""
    if not os.path.exists(path) and not _has_parts(path):
        raise InferdbgError(f"there is no file {path}", "name a recording (run.idbg) or a black box")
    return _replayed(path) if _has_parts(path) or not _is_box(path) else source_of(path, brief=brief)


def engine_of(target: str | None) -> "Engine":
    """The engine or server, living or dead, that a PID, a URL, a box or nothing means. Raises InferdbgError."""
    if target is None:
        return the_only_one(discovered())
    pid = _pid_in(target)
    if pid is not None:
        return of_pid(pid)
    if os.path.exists(target):
        if not _is_box(target):
            raise InferdbgError(f"{target} is no black box of an engine", f"inferdbg open {target}", Exit.USAGE)
        return _described(target)
    if _ADDRESS.fullmatch(target):
        return of_url(target)
    raise InferdbgError(f"there is no file {target}", HELP)


def engine_source(
    engine: "Engine", recording: "RecordingWriter | None" = None, wanted: Wanted = DEEPEST
) -> "LiveSource":
    """Reads an engine's box, or of a server what ``wanted`` says; of a living one also what the kernel says of its
    processes. Raises InferdbgError where that depth cannot be had."""
    from inferdbg.collect.live import LiveSource

    class Remains(LiveSource):
        """Of an engine that is gone: nothing new will come."""

        live = False

    gone = is_remains(engine)
    return (Remains if gone else LiveSource)(_collector(engine, wanted), recording=recording)


def brief_source(engine: "Engine", wanted: Wanted = DEEPEST) -> "BriefSource":
    """The same for a look or two, sooner there."""
    from inferdbg.cli.brief import BriefSource

    return BriefSource(_collector(engine, wanted, brief=True), live=not is_remains(engine))


def _collector(engine: "Engine", wanted: Wanted, *, brief: bool = False) -> "Collector":
    from inferdbg.collect.collector import Collector
    from inferdbg.facts.snapshot import Target

    give_way()
    kind: Literal["process", "box", "url"] = "process" if engine.pid is not None else "url"
    if is_remains(engine):
        kind = "box"
    return Collector(Target(kind, name_of(engine), engine.pid, engine.box_path), probes_of(engine, wanted, brief=brief))


def give_way() -> None:
    """Never drives a server from its processor when we wake up to look, but waits until it pauses (SCHED_BATCH, see
    sched(7)). What we start later does the same."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def depth_in_use(engine: "Engine", wanted: Wanted = DEEPEST) -> Depth | None:
    """How deep a server is looked into; None of an engine whose black box tells all. Raises InferdbgError."""
    from inferdbg.probes.servers import FoundServer

    return depth_of(engine, wanted) if isinstance(engine, FoundServer) else depth_of_engine(engine, wanted)


def probes_of(engine: "Engine", wanted: Wanted = DEEPEST, *, brief: bool = False) -> list["Probe"]:
    """In order of authority. Raises InferdbgError."""
    from inferdbg.probes.engine_box import EngineBox
    from inferdbg.probes.kernel_log.probe import KernelLog
    from inferdbg.probes.nvml import gpus_here
    from inferdbg.probes.processes import ProcessFiles
    from inferdbg.probes.server_files import ServerFiles
    from inferdbg.probes.servers import FoundServer

    probes: list[Probe] = []
    depth = depth_in_use(engine, wanted)
    if engine.box_path is not None and (depth is None or isinstance(engine, FoundServer)):
        probes.append(EngineBox(engine.box_path, whole=brief))
    if depth is not None and engine.pid is not None:
        first = getattr(engine, "front_pid", None) or engine.pid
        probes.append(ServerFiles(first, engine_name(engine), engine.url, not engine.alive))
    if depth is not None:
        probes += depth.probes
    elif engine.alive and engine.pid is not None:
        probes += [ProcessFiles(engine.pid), stacks_of_engine(engine.pid, wanted)]
    if engine.pid is not None:
        probes.append(KernelLog())
    if brief:
        probes = [_here(probe) for probe in probes]
    return [*probes, gpus_here()] if engine.alive and engine.pid is not None else probes


def _here(probe: "Probe") -> "Probe":
    """Read on our own thread: to start a child takes longer than a look, and each has limits of its own. NVML has
    none."""
    if probe.isolated:
        probe.isolated = False  # type: ignore[misc]  # a plain attribute of those that may run in a child
    return probe


def probes_in_words() -> list[tuple[str, tuple[str, ...], str]]:
    """Every probe there is: its name, the sections that it may fill, and the sentence that its file begins with."""
    import importlib

    found: list[tuple[str, tuple[str, ...], str]] = []
    for module_name, class_name in _PROBES:
        try:
            module = importlib.import_module(f"inferdbg.probes.{module_name}")
        except ModuleNotFoundError:
            continue
        kind = getattr(module, class_name)
        found.append((kind.name, kind.sections, (module.__doc__ or "").partition("\n")[0]))
    return found


_PROBES = (
    ("engine_box", "EngineBox"),
    ("processes", "ProcessFiles"),
    ("server_files", "ServerFiles"),
    ("followed_memory", "FollowedMemory"),
    ("vllm_memory", "VllmMemory"),
    ("sglang_memory", "SglangMemory"),
    ("core_file", "CoreFile"),
    ("stacks", "Stacks"),
    ("kv_events.probe", "KVEvents"),
    ("reported.probe", "Reported"),
    ("kernel_log.probe", "KernelLog"),
    ("nvml", "Nvml"),
)


def _pid_in(target: str) -> int | None:
    """ASCII digits, no more than any PID has; None for other words."""
    return int(target) if target.isascii() and target.isdecimal() and len(target) <= _MOST_DIGITS else None


def _is_box(path: str) -> bool:
    """By its first bytes; by its name where they are missing."""
    from inferdbg.blackbox.writer import MAGIC, SUFFIX

    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            raise InferdbgError(f"{path} is a folder", "name a black box or a recording in it")
        if not stat.S_ISREG(kind):  # opening a FIFO waits for its writer, opening a device may do anything
            raise InferdbgError(f"{path} is not a regular file", "name a black box or a recording", Exit.USAGE)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.endswith(SUFFIX)
    except OSError as error:
        raise InferdbgError(f"{path} cannot be read: {error.strerror}", "is it yours? try sudo") from None


def _described(path: str) -> "FoundEngine":
    """Raises InferdbgError for what is no sound box."""
    from inferdbg.probes.discovery import describe

    return describe(path, now_wall_ns=time.time_ns(), now_mono_ns=time.monotonic_ns())


def _has_parts(path: str) -> bool:
    """A rotating recorder wrote run.000001.idbg and so on for run.idbg."""
    from pathlib import Path

    from inferdbg.record.reader import numbered_parts

    return bool(numbered_parts(Path(path)))


def _replayed(path: str) -> "Source":
    """A recording; or a core file, of which there is one moment."""
    from inferdbg.record.replay import ReplaySource

    return _of_core(path) if is_core_file(path) else ReplaySource(path)


def is_core_file(path: str) -> bool:
    """By its first bytes; False for what is no file or cannot be read."""
    from inferdbg.probes.core_file import is_core

    try:
        return os.path.isfile(path) and is_core(path)
    except OSError:
        return False


def _of_core(path: str) -> "Source":
    from inferdbg.cli.brief import BriefSource
    from inferdbg.collect.collector import Collector
    from inferdbg.facts.snapshot import Target
    from inferdbg.probes.core_file import CoreFile, WrittenThen

    return BriefSource(
        Collector(Target("core", f"core file {path}", path=path), [CoreFile(path)], WrittenThen(path)), live=False
    )
