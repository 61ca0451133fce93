"""What a person means by TARGET: a PID, a URL, a black box, a recording, or nothing; found and turned into a Source."""

import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from inferdbg import text
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.cli.brief import BriefSource
    from inferdbg.collect.collector import Collector
    from inferdbg.collect.live import LiveSource
    from inferdbg.collect.probe import Probe
    from inferdbg.facts.source import Source
    from inferdbg.probes.discovery import Found, FoundEngine
    from inferdbg.record.writer import RecordingWriter

    Record = Callable[[], RecordingWriter | None]

HELP = "TARGET is a PID, the URL of a bundled engine on this machine, a black box or a recording."
_ADDRESS = re.compile(r"(?:https?://.+|(?:\[[0-9a-f:]+\]|[\w.-]+)?:[0-9]+/?)", re.IGNORECASE)
_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")
_LISTED = 5
_MOST_DIGITS = 10


def discovered(folders: Sequence[str] = ()) -> "Found":
    """Engines of this machine, living and dead. ``folders``: further ones to look into."""
    from inferdbg.probes.discovery import discover

    return discover(now_wall_ns=time.time_ns(), now_mono_ns=time.monotonic_ns(), folders=folders)


def source_of(target: str | None, record: "Record" = lambda: None, *, brief: bool = False) -> "Source":
    """Raises InferdbgError when there is no such thing, it cannot be read, or nothing was named and several are there.
    ``record`` opens what gets all that is seen of an engine, if anything does. ``brief``: for a look or two."""
    if target is not None and _pid_in(target) is None and os.path.exists(target) and not _is_box(target):
        return _replayed(target)
    engine = engine_of(target)
    recording = record()
    return brief_source(engine) if brief and recording is None else engine_source(engine, recording)


def source_of_file(path: str, *, brief: bool = False) -> "Source":
    """A recording or a black box. Raises InferdbgError."""
    if not os.path.exists(path) and not _has_parts(path):
        raise InferdbgError(f"there is no file {path}", "name a recording (run.idbg) or a black box")
    return _replayed(path) if _has_parts(path) or not _is_box(path) else source_of(path, brief=brief)


def engine_of(target: str | None) -> "FoundEngine":
    """The engine, living or dead, that a PID, a URL, a box or nothing means. Raises InferdbgError."""
    if target is None:
        return the_only_one(discovered())
    pid = _pid_in(target)
    if pid is not None:
        return _of_pid(pid)
    if os.path.exists(target):
        if not _is_box(target):
            raise InferdbgError(f"{target} is no black box of an engine", f"inferdbg open {target}", Exit.USAGE)
        return _described(target)
    if _ADDRESS.fullmatch(target):
        return _of_url(target)
    raise InferdbgError(f"there is no file {target}", HELP)


def engine_source(engine: "FoundEngine", recording: "RecordingWriter | None" = None) -> "LiveSource":
    """Reads an engine's box; of a living one also what the kernel says of its process."""
    from inferdbg.collect.live import LiveSource

    class Remains(LiveSource):
        """Of an engine that is gone: nothing new will come."""

        live = False

    return (LiveSource if engine.alive else Remains)(_collector(engine), recording=recording)


def brief_source(engine: "FoundEngine") -> "BriefSource":
    """The same for a look or two, sooner there."""
    from inferdbg.cli.brief import BriefSource

    return BriefSource(_collector(engine, brief=True), live=engine.alive)


def _collector(engine: "FoundEngine", *, brief: bool = False) -> "Collector":
    from inferdbg.collect.collector import Collector
    from inferdbg.facts.snapshot import Target

    kind: Literal["process", "box"] = "process" if engine.alive else "box"
    return Collector(Target(kind, name_of(engine), engine.pid, engine.box_path), probes_of(engine, brief=brief))


def probes_of(engine: "FoundEngine", *, brief: bool = False) -> list["Probe"]:
    """In order of authority."""
    from inferdbg.probes.engine_box import EngineBox
    from inferdbg.probes.processes import ProcessFiles

    probes: list[Probe] = [EngineBox(engine.box_path, whole=brief)]
    if engine.alive and engine.pid is not None:
        processes = ProcessFiles(engine.pid)
        processes.isolated = not brief  # what it reads does not block; to start a child takes longer than a look
        probes.append(processes)
    return probes


def probes_in_words() -> list[tuple[str, tuple[str, ...], str]]:
    """Every probe there is: its name, the sections that it may fill, and the sentence that its file begins with."""
    from inferdbg.probes import engine_box, processes

    kinds = ((engine_box, engine_box.EngineBox), (processes, processes.ProcessFiles))
    return [(kind.name, kind.sections, (module.__doc__ or "").partition("\n")[0]) for module, kind in kinds]


def the_only_one(found: "Found") -> "FoundEngine":
    """Raises InferdbgError when there is none, or more than one that lives."""
    living = [engine for engine in found.engines if engine.alive]
    if len(living) > 1:
        listed = "\n".join(f"inferdbg attach {engine.pid or engine.box_path}   {line_of(engine)}" for engine in living)
        raise InferdbgError(f"{len(living)} engines run here: name one", listed, Exit.USAGE)
    if not living:
        raise nothing_found(found)
    return living[0]


def nothing_found(found: "Found") -> InferdbgError:
    """Says so, names the dead, what could not be looked at, and how to see something all the same."""
    dead = [engine for engine in found.engines if not engine.alive]
    lines = [f"inferdbg attach {engine.box_path}   {line_of(engine)}" for engine in dead[:_LISTED]]
    if len(dead) > _LISTED:
        lines.append(f"and {len(dead) - _LISTED} more in {os.path.dirname(dead[0].box_path)}")
    broken = [box.why for box in found.broken]
    lines += [*found.unseen, *broken, "inferdbg top --demo   starts a small engine under traffic and shows it"]
    return InferdbgError("no engine that inferdbg can look at runs here", "\n".join(lines), Exit.NOTHING_CHECKED)


def name_of(engine: "FoundEngine") -> str:
    return f"pid {engine.pid}" if engine.alive and engine.pid is not None else os.path.basename(engine.box_path)


def line_of(engine: "FoundEngine") -> str:
    """``pid 58 · SmolLM2-135M · http://127.0.0.1:8000 · up 12 min``."""
    age = text.duration(engine.age_ns)
    since = f"up {age}" if engine.alive else f"{'dead' if engine.state == 'dead' else 'stopped'} for {age}"
    model = text.safe(engine.model, 60) if engine.model else None
    parts = (f"pid {engine.pid}" if engine.pid is not None else None, model, engine.url, since)
    return " · ".join(part for part in parts if part)


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
    from inferdbg.record.replay import ReplaySource

    return ReplaySource(path)


def _of_pid(pid: int) -> "FoundEngine":
    found = discovered()
    for engine in found.engines:
        if engine.pid == pid:
            return engine
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = text.safe(file.read().strip())
    except OSError:
        raise InferdbgError(
            f"there is no process {pid}, and no black box of one is found",
            f"if it ran with --blackbox-dir DIR: inferdbg attach DIR/{pid}-*.box",
        ) from None
    for box in found.broken:
        if box.pid == pid:
            raise InferdbgError(
                f"process {pid} ({name}) has a black box, and it is damaged: {box.why}",
                "it is made when an engine starts: only a new start makes another",
            )
    unseen = "\n".join(found.unseen)
    raise InferdbgError(
        f"process {pid} ({name}) keeps no black box that can be seen from here",
        unseen or "engines started with `inferdbg serve` keep one, unless started with --no-blackbox",
    )


def _of_url(url: str) -> "FoundEngine":
    host, port = _host_and_port(url)
    if host not in _HERE:
        raise InferdbgError(f"{host} is another machine: only engines of this one can be attached to", HELP)
    found = discovered()
    for engine in found.engines:
        if engine.url is not None:
            its_host, its_port = _host_and_port(engine.url)
            if its_port == port and (its_host == host or its_host in _HERE):
                return engine
    others = [line_of(engine) for engine in found.engines if engine.alive]
    raise InferdbgError(
        f"no engine that inferdbg can look at serves {url}",
        "\n".join(["there are:", *others]) if others else "inferdbg serve starts one",
    )


def _host_and_port(url: str) -> tuple[str, int]:
    """Raises InferdbgError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        return (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InferdbgError(f"{url} is not an address: {error}", "write it like http://127.0.0.1:8000") from None
