"""What runs here: bundled engines and other people's servers, and which of them a PID, an address or nothing means."""

import os
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from inferdbg import text
from inferdbg.cli.naming import handle_of, line_of
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.cli.naming import Engine
    from inferdbg.probes.discovery import Found
    from inferdbg.probes.servers import FoundServer

_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")
_LISTED = 5
_ASK_NS = 500_000_000
_CONNECT_S = 3.0
_ASKED = ("/version", "/health")
"""What any server may be asked to learn whether it is one: neither changes anything."""


def discovered(folders: Sequence[str] = ()) -> "Found":
    """Engines of this machine, living and dead, and other people's servers. ``folders``: further ones to look into."""
    from msgspec.structs import replace

    from inferdbg.probes.servers import discover_servers

    found = with_boxes(folders)
    servers = discover_servers(now_mono_ns=time.monotonic_ns(), ask=_answers)
    return joined(replace(found, servers=servers.servers, unseen=(*found.unseen, *servers.unseen)))


def with_boxes(folders: Sequence[str] = ()) -> "Found":
    """Only what keeps a black box: to look for the others takes a child or two."""
    from inferdbg.probes.discovery import discover

    return discover(now_wall_ns=time.time_ns(), now_mono_ns=time.monotonic_ns(), folders=folders)


def joined(found: "Found") -> "Found":
    """With the box that a plug-in keeps inside somebody else's server at that server, and not as an engine of its
    own."""
    from msgspec.structs import replace

    boxes = {engine.pid: engine.box_path for engine in found.engines if engine.alive}
    inside = {pid for server in found.servers for pid in server.pids if pid in boxes}
    servers = tuple(
        replace(server, box_path=next((boxes[pid] for pid in sorted(server.pids & inside)), None))
        if not server.is_group
        else server
        for server in found.servers
    )
    engines = tuple(engine for engine in found.engines if not engine.alive or engine.pid not in inside)
    return replace(found, engines=engines, servers=servers)


def living(found: "Found") -> "list[Engine]":
    """Engines and servers that are there to be looked at: of a server with data-parallel ranks each of these."""
    return [one for one in _addressable(found) if not getattr(one, "is_group", False)]


def _addressable(found: "Found") -> "list[Engine]":
    """What a PID or an address may mean. A server's own address means all its ranks."""
    return [
        *(engine for engine in found.engines if engine.alive),
        *(server for server in found.servers if server.alive),
    ]


def the_only_one(found: "Found") -> "Engine":
    """Raises InferdbgError when there is none, or more than one that lives."""
    here = living(found)
    if len(here) > 1:
        listed = "\n".join(f"inferdbg {_verb()} {handle_of(engine)}   {line_of(engine)}" for engine in here)
        kind = "servers" if found.servers else "engines"
        raise InferdbgError(f"{len(here)} {kind} run here: name one", listed, Exit.USAGE)
    if not here:
        raise nothing_found(found)
    return here[0]


def _verb() -> str:
    """What was typed."""
    import click

    context = click.get_current_context(silent=True)
    return (context.info_name if context is not None else None) or "attach"


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


def of_pid(pid: int) -> "Engine":
    name = _comm_of(pid)
    own = with_boxes()
    ours = next((engine for engine in own.engines if engine.pid == pid), None)
    if ours is not None and not _is_part_of_another(name):
        return ours
    found = discovered()
    for server in reversed(found.servers):  # a rank, before the server that it is part of
        if pid in server.pids:
            return server
    if ours is not None:
        return ours
    if name is None:
        raise InferdbgError(
            f"there is no process {pid}, and no black box of one is found",
            "\n".join((f"if it ran with --blackbox-dir DIR: inferdbg attach DIR/{pid}-*.box", *_those_of(found))),
        )
    for box in found.broken:
        if box.pid == pid:
            raise InferdbgError(
                f"process {pid} ({name}) has a black box, and it is damaged: {box.why}",
                "it is made when an engine starts: only a new start makes another",
            )
    ended = _how_it_ended(pid)
    if ended is not None:
        raise InferdbgError(
            f"process {pid} ({name}) has ended{ended}; only its parent has not asked for its exit status yet",
            "\n".join(_those_of(found)) or "inferdbg top   looks for what else runs here",
        )
    return _of_unknown(pid, name, found)


def _comm_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return text.safe(file.read().strip())
    except OSError:
        return None


def _how_it_ended(pid: int) -> str | None:
    """Of a process that has ended and waits for its parent (a zombie): by what, where that can be seen. None of others.
    The last field of proc_pid_stat(5), as waitpid(2) has it; the kernel shows 0 to whoever may not trace it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] not in ("Z", "X"):
        return None
    status = int(fields[-1])
    if os.WIFSIGNALED(status):
        return f" by signal {os.WTERMSIG(status)} ({signal.strsignal(os.WTERMSIG(status)) or '?'})"
    return f" with exit status {os.WEXITSTATUS(status)}" if os.WEXITSTATUS(status) else ""


def _is_part_of_another(name: str | None) -> bool:
    """A plug-in of ours keeps its box inside somebody else's server."""
    from inferdbg.probes.roles import part_of_title

    return name is not None and part_of_title(name) is not None


def _of_unknown(pid: int, name: str, found: "Found") -> "FoundServer":
    """A process that was named and that nothing marks: if it answers, it is a server. Raises InferdbgError."""
    from inferdbg.probes.servers import server_of

    server = server_of(pid, now_mono_ns=time.monotonic_ns(), ask=_answers)
    if server is not None:
        return server
    raise InferdbgError(
        f"process {pid} ({name}) keeps no black box that can be seen from here, and is no server that inferdbg knows",
        "\n".join(
            (*found.unseen, *_those_of(found))
            or ("engines started with `inferdbg serve` keep one, unless started with --no-blackbox",)
        ),
    )


def _those_of(found: "Found") -> list[str]:
    """What else is there, orphans first: whoever asks for a process that is gone may mean what it left."""
    orphans = [server for server in found.servers if server.orphaned]
    return [f"inferdbg attach {handle_of(one)}   {line_of(one)}" for one in (*orphans, *living(found))]


def is_here(url: str) -> bool:
    """Whether an address leads to this machine, as far as its name says."""
    return _host_and_port(url)[0] in _HERE


def of_url(url: str) -> "Engine":
    host, port = _host_and_port(url)
    full = url if "://" in url else f"http://{url}" if host else f"http://127.0.0.1:{port}"
    if host not in _HERE:
        refused = _refusal(host, port)
        if refused is not None:
            raise InferdbgError(
                f"nobody answers at {host}:{port}: {refused}", "is it the right address, and may this machine reach it?"
            )
        return _elsewhere(full)
    found = discovered()
    for one in _addressable(found):
        if one.url is not None:
            its_host, its_port = _host_and_port(one.url)
            if its_port == port and (its_host == host or its_host in _HERE):
                return one
        elif getattr(one, "starting", False) and getattr(one, "port", None) == port:
            return one
    refused = _refusal(host or "127.0.0.1", port)
    if refused is None:
        return _elsewhere(full)  # on this machine, and its process cannot be seen or tells nothing
    others, dead = (
        [f"{line_of(one)}   inferdbg attach {handle_of(one)}" for one in engines]
        for engines in (living(found), [one for one in found.engines if not one.alive])
    )
    listed = [
        *found.unseen,
        *(["there are:", *others] if others else []),
        *(["died:", *dead[:_LISTED]] if dead else []),
    ]
    raise InferdbgError(
        f"nobody listens at {url}: {refused}", "\n".join(listed) if listed else "inferdbg serve starts one"
    )


def _elsewhere(url: str) -> "FoundServer":
    """A server of which we have the address alone."""
    from inferdbg.probes.servers import FoundServer

    return FoundServer("server", (), 0, url=url)


def _refusal(host: str, port: int) -> str | None:
    """Why nobody takes a connection there; None where somebody does: one that then hangs is worth looking at."""
    import socket

    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


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
