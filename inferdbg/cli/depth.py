"""How deep to look into somebody else's server: what each depth shows, what it costs, and which one can be had."""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.collect.probe import Probe
    from inferdbg.probes.discovery import FoundEngine
    from inferdbg.probes.servers import FoundServer

DepthName = Literal["reported", "stacks", "memory", "events"]
NAMES: tuple[DepthName, ...] = ("reported", "stacks", "memory", "events")
COSTS: dict[DepthName, str] = {
    "reported": "GET /metrics and status pages every 2 s: 5 to 9 ms of the server's time and a line in its access log",
    "memory": "also the engine core's objects, read from outside: no pause, nothing written, some ms of ours each time",
    "stacks": "also stacks by py-spy, without a stop: 20 ms or so of ours for each process, every 2 s",
    "events": "also what the server publishes of its KV cache: one more subscriber; prompts in it are dropped at once",
}
"""Each includes what ``reported`` costs, and ``stacks`` what ``memory`` does where that can be had."""
_SECTIONS: dict[DepthName, tuple[str, ...]] = {
    "reported": ("scheduler", "kvcache", "metrics"),
    "memory": ("pulse", "requests", "kvcache", "steps", "events", "wiring"),
    "events": ("prefixes",),
    "stacks": ("stacks",),
}
"""What stays empty without it."""
_HELPER = "resource tracker"
"""A process that Python starts for itself."""


class Wanted(NamedTuple):
    """What a person asked for. ``depth`` None: the deepest that can be had. ``events``: where the server publishes its
    KV cache, ``ENDPOINT#TOPIC`` where several share it; ``replay``: where it can be asked for what was missed."""

    depth: DepthName | None = None
    events: str | None = None
    replay: str | None = None


class Depth(NamedTuple):
    """``used``: what is looked at, ``probes`` of it in order of authority; ``words``: the costs, and why not more."""

    used: tuple[DepthName, ...]
    probes: tuple["Probe", ...]
    words: tuple[str, ...]


def depth_of(server: "FoundServer", wanted: Wanted) -> Depth:
    """Raises InferdbgError where what was asked for by name cannot be had."""
    if wanted.depth == "events" and wanted.events is None:
        raise InferdbgError(
            "depth events needs the address that the server publishes to",
            "inferdbg attach TARGET --events tcp://HOST:5557   (--kv-events-config of the server names it)",
            Exit.USAGE,
        )
    used: list[DepthName] = []
    probes: list[Probe] = []
    last: list[Probe] = []
    words: list[str] = []
    for name in ("memory", "stacks", "events", "reported"):
        refusal = _refusal(name, server, wanted)
        if refusal is None:
            probes.append(_probe(name, server, wanted))
            used.append(name)
            continue
        if wanted.depth == name:
            raise InferdbgError(f"depth {name} cannot be had: {refusal.why}", refusal.cure)
        if name == "memory" and wanted.depth in (None, "stacks") and not refusal.chosen:
            words.append(f"no depth memory: {refusal.why}. {refusal.cure}".rstrip(". "))
        last.append(_stand_in(name, refusal))
    deepest = used[0] if used else None
    costs = [f"depth {name}: {COSTS[name]}" for name in used if name in (deepest, "stacks", "events")]
    return Depth(tuple(used), (*probes, *last), (*costs, *words))


def depth_of_engine(engine: "FoundEngine", wanted: Wanted) -> Depth | None:
    """Of a bundled engine: None where its black box is read, which tells more than any depth. Raises InferdbgError."""
    if wanted.depth in (None, "stacks"):
        return None
    to_type = f"inferdbg attach {engine.pid or engine.box_path}"
    if wanted.depth != "reported":
        raise InferdbgError(
            f"depth {wanted.depth} is for other people's servers: the black box of this engine tells all of it",
            to_type,
            Exit.USAGE,
        )
    if engine.url is None or not engine.alive:
        raise InferdbgError("depth reported cannot be had: the engine does not answer HTTP", to_type)
    probe = _made("inferdbg.probes.reported.probe", "Reported", engine.url, "inferdbg")
    return Depth(("reported",), (probe,), (f"depth reported: {COSTS['reported']}",))


class Refusal(NamedTuple):
    """``chosen``: it could be had, and is not wanted. ``denied``: we have no right to it."""

    why: str
    cure: str = ""
    chosen: bool = False
    denied: bool = False


def _refusal(name: DepthName, server: "FoundServer", wanted: Wanted) -> Refusal | None:
    """None where it can be had and is wanted."""
    if name == "reported":
        return None if server.url is not None or server.starting else _without_url(server)
    if name == "events":
        if wanted.events is None:
            return Refusal("not asked for", "inferdbg attach TARGET --events ENDPOINT", chosen=True)
        return None if _known("inferdbg.probes.kv_events.probe") else _missing("KV events")
    if name == "stacks":
        if wanted.depth != "stacks":
            return _unasked_stacks(server.pid or server.url)
        return None if _known("inferdbg.probes.stacks") else _missing("stacks")
    if wanted.depth not in (None, "memory", "stacks"):
        return Refusal(
            f"depth {wanted.depth} was asked for", f"inferdbg attach {server.pid} --depth memory", chosen=True
        )
    if server.box_path is not None and wanted.depth is None:
        return Refusal("the black box in it tells more", f"inferdbg attach {server.pid} --depth memory", chosen=True)
    return _memory_refusal(server)


def _memory_refusal(server: "FoundServer") -> Refusal | None:
    from inferdbg.cli.here import is_here
    from inferdbg.probes.rights import denied_memory

    if server.pid is None:
        if server.url is not None and is_here(server.url):
            return Refusal("which process answers there is not known", "name it: inferdbg attach PID")
        return Refusal("memory can be read only where the server runs", "run inferdbg on that machine")
    if not _known("inferdbg.probes.followed_memory"):
        return _missing("reading memory")
    from inferdbg.probes.followed_memory import MAPPED

    if server.engine not in MAPPED:
        return Refusal(f"there is no map of the objects of {server.engine}")
    if not server.core_pids and not server.starting:
        return Refusal("its engine core is not there")
    if server.is_group:
        ranks = " or ".join(f"inferdbg attach {pid}" for pid in server.core_pids)
        return Refusal(f"it has {server.ranks} data-parallel ranks, each an engine of its own", f"name one: {ranks}")
    denied = denied_memory(server.core_pids[0] if server.core_pids else server.pid)
    return Refusal(denied.why, denied.cure, denied=True) if denied is not None else None


def _without_url(server: "FoundServer") -> Refusal:
    if server.orphaned:
        return Refusal("its front end is gone, nobody answers")
    return Refusal("where it answers cannot be seen", "name it: inferdbg attach http://HOST:PORT")


def _missing(what: str) -> Refusal:
    return Refusal(f"{what} is not part of this version of inferdbg")


def _stand_in(name: DepthName, refusal: Refusal) -> "Probe":
    from inferdbg.probes.withheld import Withheld

    title = "kv events" if name == "events" else name
    return Withheld(title, _SECTIONS[name], refusal.why, refusal.cure, "denied" if refusal.denied else "absent")


def _probe(name: DepthName, server: "FoundServer", wanted: Wanted) -> "Probe":
    if name == "reported":
        url = server.url or _expected(server)
        return _made("inferdbg.probes.reported.probe", "Reported", url, server.engine, server.data_rank)
    if name == "events":
        endpoint, _, topic = (wanted.events or "").partition("#")
        return _made("inferdbg.probes.kv_events.probe", "KVEvents", endpoint, wanted.replay, topic)
    if name == "stacks":
        return stacks_of({member.pid: member.role or "" for member in server.members if member.role != _HELPER})
    core_pid = server.core_pids[0] if server.core_pids else None
    port = urlsplit(server.url).port if server.url is not None else server.port
    where = (core_pid, server.front_pid, port, server.rank)
    return _made("inferdbg.probes.followed_memory", "FollowedMemory", server.engine, *where)


def stacks_of(roles: Mapping[int, str]) -> "Probe":
    """Of processes, by PID with what they are."""
    return _made("inferdbg.probes.stacks", "Stacks", tuple(roles), tuple(roles.values()))


def stacks_of_engine(pid: int, wanted: Wanted) -> "Probe":
    """Of a bundled engine: its stacks, or what says how to see them."""
    return stacks_of({pid: "engine"}) if wanted.depth == "stacks" else _stand_in("stacks", _unasked_stacks(pid))


def _unasked_stacks(target: int | str | None) -> Refusal:
    return Refusal("not asked for", f"inferdbg attach {target} --depth stacks", chosen=True)


def _expected(server: "FoundServer") -> str:
    """Where a server that starts is going to listen."""
    return f"http://127.0.0.1:{server.port}"


def _made(module: str, name: str, *arguments: object) -> "Probe":
    probe: Probe = getattr(importlib.import_module(module), name)(*arguments)
    return probe


def _known(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package on the way
        return False
