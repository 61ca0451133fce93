"""What a person means by TARGET: a PID, a URL, a black box, a recording, or nothing; found and turned into a Source."""

import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from inferdbg import text
from inferdbg.cli.depth import Depth, Wanted, depth_of
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.cli.brief import BriefSource
    from inferdbg.collect.collector import Collector
    from inferdbg.collect.live import LiveSource
    from inferdbg.collect.probe import Probe
    from inferdbg.facts.source import Source
    from inferdbg.probes.discovery import Found, FoundEngine
    from inferdbg.probes.servers import FoundServer
    from inferdbg.record.writer import RecordingWriter

    Record = Callable[[], RecordingWriter | None]
    Engine = FoundEngine | FoundServer

HELP = "TARGET is a PID, the URL of a server, a black box or a recording."
DEEPEST = Wanted()
_ADDRESS = re.compile(r"(?:https?://.+|(?:\[[0-9a-f:]+\]|[\w.-]+)?:[0-9]+(?:/.*)?)", re.IGNORECASE)
_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")
_LISTED = 5
_MOST_DIGITS = 10
_ASK_NS = 500_000_000
_CONNECT_S = 3.0
_ASKED = ("/version", "/health")
"""What any server may be asked to learn whether it is one: neither changes anything."""


def discovered(folders: Sequence[str] = ()) -> "Found":
    """Engines of this machine, living and dead, and other people's servers. ``folders``: further ones to look into."""
    from msgspec.structs import replace

    from inferdbg.probes.discovery import discover
    from inferdbg.probes.servers import discover_servers

    now_mono_ns = time.monotonic_ns()
    found = discover(now_wall_ns=time.time_ns(), now_mono_ns=now_mono_ns, folders=folders)
    servers = discover_servers(now_mono_ns=now_mono_ns, ask=_answers)
    return joined(replace(found, servers=servers.servers, unseen=(*found.unseen, *servers.unseen)))


def joined(found: "Found") -> "Found":
    """With the box that a plug-in keeps inside somebody else's server at that server, and not as an engine of its
    own."""
    from msgspec.structs import replace

    boxes = {engine.pid: engine.box_path for engine in found.engines if engine.alive}
    inside = {pid for server in found.servers for pid in server.pids if pid in boxes}
    servers = tuple(
        replace(server, box_path=next((boxes[pid] for pid in sorted(server.pids & inside)), None))
        for server in found.servers
    )
    engines = tuple(engine for engine in found.engines if not engine.alive or engine.pid not in inside)
    return replace(found, engines=engines, servers=servers)


def living(found: "Found") -> "list[Engine]":
    """Engines and servers that are there to be looked at."""
    return [
        *(engine for engine in found.engines if engine.alive),
        *(server for server in found.servers if server.alive),
    ]


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
    """Whether a file is meant that is no black box. Raises InferdbgError for what is no file."""
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
        return _of_pid(pid)
    if os.path.exists(target):
        if not _is_box(target):
            raise InferdbgError(f"{target} is no black box of an engine", f"inferdbg open {target}", Exit.USAGE)
        return _described(target)
    if _ADDRESS.fullmatch(target):
        return _of_url(target)
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

    gone = _is_remains(engine)
    return (Remains if gone else LiveSource)(_collector(engine, wanted), recording=recording)


def brief_source(engine: "Engine", wanted: Wanted = DEEPEST) -> "BriefSource":
    """The same for a look or two, sooner there."""
    from inferdbg.cli.brief import BriefSource

    return BriefSource(_collector(engine, wanted, brief=True), live=not _is_remains(engine))


def _is_remains(engine: "Engine") -> bool:
    """A dead engine's box; orphans live on."""
    from inferdbg.probes.discovery import FoundEngine

    return isinstance(engine, FoundEngine) and not engine.alive


def _collector(engine: "Engine", wanted: Wanted, *, brief: bool = False) -> "Collector":
    from inferdbg.collect.collector import Collector
    from inferdbg.facts.snapshot import Target

    kind: Literal["process", "box", "url"] = "process" if engine.pid is not None else "url"
    if _is_remains(engine):
        kind = "box"
    return Collector(Target(kind, name_of(engine), engine.pid, engine.box_path), probes_of(engine, wanted, brief=brief))


def depth_in_use(engine: "Engine", wanted: Wanted = DEEPEST) -> Depth | None:
    """How deep a server is looked into; None of an engine whose black box tells all. Raises InferdbgError."""
    from inferdbg.probes.servers import FoundServer

    return depth_of(engine, wanted) if isinstance(engine, FoundServer) else None


def probes_of(engine: "Engine", wanted: Wanted = DEEPEST, *, brief: bool = False) -> list["Probe"]:
    """In order of authority. Raises InferdbgError."""
    from inferdbg.probes.engine_box import EngineBox
    from inferdbg.probes.processes import ProcessFiles
    from inferdbg.probes.server_files import ServerFiles

    probes: list[Probe] = []
    if engine.box_path is not None:
        probes.append(EngineBox(engine.box_path, whole=brief))
    depth = depth_in_use(engine, wanted)
    if depth is not None and engine.pid is not None:
        probes.append(ServerFiles(engine.pid, engine_name(engine), engine.url, not engine.alive))
    if depth is not None:
        probes += depth.probes
    elif engine.alive and engine.pid is not None:
        probes.append(ProcessFiles(engine.pid))
    return [_here(probe) if brief else probe for probe in probes]


def _here(probe: "Probe") -> "Probe":
    """Read on our own thread: to start a child takes longer than a look, and each has limits of its own."""
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
    ("vllm_memory", "VllmMemory"),
    ("kv_events.probe", "KVEvents"),
    ("reported.probe", "Reported"),
)


def the_only_one(found: "Found") -> "Engine":
    """Raises InferdbgError when there is none, or more than one that lives."""
    here = living(found)
    if len(here) > 1:
        listed = "\n".join(f"inferdbg attach {handle_of(engine)}   {line_of(engine)}" for engine in here)
        kind = "servers" if found.servers else "engines"
        raise InferdbgError(f"{len(here)} {kind} run here: name one", listed, Exit.USAGE)
    if not here:
        raise nothing_found(found)
    return here[0]


def nothing_found(found: "Found") -> InferdbgError:
    """Says so, names the dead, what could not be looked at, and how to see something all the same."""
    dead = [engine for engine in found.engines if not engine.alive]
    lines = [f"inferdbg attach {handle_of(one)}   {line_of(one)}" for one in found.servers if one.orphaned]
    lines += [f"inferdbg attach {engine.box_path}   {line_of(engine)}" for engine in dead[:_LISTED]]
    if len(dead) > _LISTED:
        lines.append(f"and {len(dead) - _LISTED} more in {os.path.dirname(dead[0].box_path)}")
    broken = [box.why for box in found.broken]
    lines += [*found.unseen, *broken, "inferdbg top --demo   starts a small engine under traffic and shows it"]
    return InferdbgError("no engine that inferdbg can look at runs here", "\n".join(lines), Exit.NOTHING_CHECKED)


def engine_name(engine: "Engine") -> str:
    from inferdbg.probes.servers import FoundServer

    return engine.engine if isinstance(engine, FoundServer) else "inferdbg"


def handle_of(engine: "Engine") -> str:
    """What to type to mean it."""
    return str(engine.pid if engine.pid is not None else engine.box_path or engine.url)


def name_of(engine: "Engine") -> str:
    if engine.pid is not None and not _is_remains(engine):
        return f"pid {engine.pid}"
    return os.path.basename(engine.box_path) if engine.box_path is not None else str(engine.url)


def line_of(engine: "Engine") -> str:
    """``pid 58 · SmolLM2-135M · http://127.0.0.1:8000 · up 12 min``."""
    from inferdbg.probes.servers import FoundServer

    age = text.duration(engine.age_ns)
    model = text.safe(engine.model.rstrip("/").rpartition("/")[2], 60) if engine.model else None
    pid = f"pid {engine.pid}" if engine.pid is not None else None
    if not isinstance(engine, FoundServer):
        since = f"up {age}" if engine.alive else f"{'dead' if engine.state == 'dead' else 'stopped'} for {age}"
        return " · ".join(part for part in (pid, model, engine.url, since) if part)
    where = f"in container {engine.container}" if engine.container is not None else None
    owner = f"of uid {engine.uid}" if engine.uid not in (None, os.geteuid()) else None
    if engine.orphaned:
        return " · ".join(part for part in (orphans_line(engine), where, owner) if part)
    since = f"starting for {age}" if engine.starting else f"up {age}"
    return " · ".join(part for part in (pid, engine.engine, model, engine.url, since, where, owner) if part)


def orphans_line(server: "FoundServer") -> str:
    """``orphans of vllm: pid 60 (engine core) and 61 (worker) hold 1.2 GiB; to free it: kill 60 61``."""
    whom = " and ".join(f"{member.pid} ({member.role or text.safe(member.name)})" for member in server.members)
    one = len(server.members) == 1
    held = " lives on" if one else " live on"
    if server.memory_bytes is not None:
        held = f" {'holds' if one else 'hold'} {text.size(server.memory_bytes)}"
    pids = " ".join(str(member.pid) for member in server.members)
    return f"orphans of {server.engine}: pid {whom}{held}; to free it: kill {pids}"


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


def _of_pid(pid: int) -> "Engine":
    found = discovered()
    for engine in found.engines:
        if engine.pid == pid:
            return engine
    for server in found.servers:
        if pid in server.pids:
            return server
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
    return _of_unknown(pid, name, found)


def _of_unknown(pid: int, name: str, found: "Found") -> "FoundServer":
    """A process that was named and that nothing marks: if it answers, it is a server. Raises InferdbgError."""
    from inferdbg.probes.servers import server_of

    server = server_of(pid, now_mono_ns=time.monotonic_ns(), ask=_answers)
    if server is not None:
        return server
    others = [f"inferdbg attach {handle_of(one)}   {line_of(one)}" for one in living(found)]
    raise InferdbgError(
        f"process {pid} ({name}) keeps no black box that can be seen from here, and is no server that inferdbg knows",
        "\n".join(
            (*found.unseen, *others)
            or ("engines started with `inferdbg serve` keep one, unless started with --no-blackbox",)
        ),
    )


def _of_url(url: str) -> "Engine":
    host, port = _host_and_port(url)
    full = url if "://" in url else f"http://{url}" if host else f"http://127.0.0.1:{port}"
    if host not in _HERE:
        _refuse_silence(host, port)
        return _elsewhere(full)
    found = discovered()
    for one in living(found):
        if one.url is not None:
            its_host, its_port = _host_and_port(one.url)
            if its_port == port and (its_host == host or its_host in _HERE):
                return one
        elif getattr(one, "starting", False) and getattr(one, "port", None) == port:
            return one
    if _answers(full.rstrip("/")):
        return _elsewhere(full)  # on this machine, and its process cannot be seen or tells nothing
    others = [line_of(one) for one in living(found)]
    raise InferdbgError(
        f"no engine that inferdbg can look at serves {url}",
        "\n".join([*found.unseen, "there are:", *others]) if others else "inferdbg serve starts one",
    )


def _elsewhere(url: str) -> "FoundServer":
    """A server of which we have the address alone."""
    from inferdbg.probes.servers import FoundServer

    return FoundServer("server", (), 0, url=url)


def _refuse_silence(host: str, port: int) -> None:
    """Raises InferdbgError where nobody listens; one that accepts and then hangs is worth looking at."""
    import socket

    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise InferdbgError(
            f"nobody answers at {host}:{port}: {why}", "is it the right address, and may this machine reach it?"
        ) from None


def _answers(url: str) -> bool:
    """Whether a server answers there, whatever it says."""
    from inferdbg.probes.reported.fetch import Connection, Unanswered

    connection = Connection(url)
    try:
        return any(connection.get(path, _ASK_NS).status in (200, 503) for path in _ASKED)
    except Unanswered:
        return False
    finally:
        connection.close()


def _host_and_port(url: str) -> tuple[str, int]:
    """Raises InferdbgError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        return (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InferdbgError(f"{url} is not an address: {error}", "write it like http://127.0.0.1:8000") from None
