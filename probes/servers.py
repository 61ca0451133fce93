"""Finds other people's servers on this machine (vLLM, SGLang, llama.cpp, ollama, TGI and others), by /proc alone.

Read first is what no stuck process can keep for itself: stat (with comm) of everybody, then status, links and sockets
of those that matter. Arguments and mapped libraries are read in a child that is given up when it hangs. Nothing is
asked of a server unless it listens on several ports and only its own answer tells which is the right one: then GET
/version or /health.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from . import roles
from .arguments import model_of, port_of, split
from .containers import has_own_pids
from .families import Family, Known, by_titles, families
from .process_table import Stat, descendants, read_table, start_mono_ns
from .processes import kilobytes, parse_status
from .roles import CORE, FRONT_END, LAUNCHER, Part
from .slow_files import Slow, read_slow
from .sockets import Listener, listeners, own_address, socket_inodes, unique, url_of

_CONTAINER = re.compile(
    r"(?:docker|crio|libpod|cri-containerd|containerd|lxc)?[-/:.]?([0-9a-f]{64})|/lxc(?:\.payload)?[./]([\w-]+)"
)
_HIDEPID = re.compile(r"^\S+ /proc proc \S*hidepid=(?:[124]|inv|noaccess|ptrace)", re.MULTILINE)
_MOST_LISTENING = 32
_DATA_RANK = re.compile(r"DP\d+")


class Member(Struct, frozen=True, gc=False):
    """A process of a server. ``name``: its whole title where that could be read. ``rank``: as the engine writes it.
    ``start_ticks``: with the PID it names a process for ever."""

    pid: int
    name: str
    role: str | None = None
    rank: str | None = None
    start_ticks: int = 0


class FoundServer(Struct, frozen=True):
    """``members``: every process of it, the front end first; of orphans, whose front end is gone, the engine core or
    the worker that is left; none of a server on another machine. ``url``: where it answers HTTP (None: it does not
    listen, or where cannot be told). ``starting``: it is there to listen at ``port`` and does not yet. ``container``:
    the first letters of its id. ``age_ns``: since the first of its processes started. ``box_path``: of a plug-in of
    ours in it. ``memory_bytes``: what orphans hold, shared memory counted once.

    ``ranks``: of how many data-parallel ranks it consists, each an engine of its own with requests and a pool. One that
    has a ``rank`` (``DP1``) is that rank alone: its engine core and workers, served by the front end ``served_by``."""

    engine: str
    members: tuple[Member, ...]
    age_ns: int
    url: str | None = None
    port: int | None = None
    model: str | None = None
    orphaned: bool = False
    starting: bool = False
    container: str | None = None
    uid: int | None = None
    box_path: str | None = None
    memory_bytes: int | None = None
    ranks: int = 1
    rank: str | None = None
    served_by: int | None = None

    @property
    def alive(self) -> bool:
        return not self.orphaned

    @property
    def pid(self) -> int | None:
        return self.members[0].pid if self.members else None

    @property
    def front_pid(self) -> int | None:
        return self.served_by or (None if self.orphaned else self.pid)

    @property
    def data_rank(self) -> str | None:
        """The data-parallel rank that is looked at: of a server whose others run on other machines the one here."""
        named = [_DATA_RANK.search(member.rank or "") for member in self.members if member.role == CORE]
        ranks = {found[0] for found in named if found is not None}
        return ranks.pop() if len(ranks) == 1 else None

    @property
    def is_group(self) -> bool:
        """Several engines behind one address."""
        return self.ranks > 1 and self.rank is None

    @property
    def core_pids(self) -> tuple[int, ...]:
        return tuple(member.pid for member in self.members if member.role == CORE)

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(member.pid for member in self.members)


class FoundServers(Struct, frozen=True):
    """``servers``: the oldest first, orphans last; behind one of several data-parallel ranks each of these. ``unseen``:
    what could not be looked at and what to type to see it, lines for people."""

    servers: tuple[FoundServer, ...] = ()
    unseen: tuple[str, ...] = ()


class Place(Struct, frozen=True):
    """Where a server stands: whoever serves there after it has ended is its successor. ``network``: its network
    namespace; in another one the same port is another place, unless it is the same container, started again."""

    engine: str
    port: int | None
    network: str | None
    container: str | None

    @classmethod
    def of(cls, pid: int, engine: str, port: int | None, proc: str = "/proc") -> "Place":
        container = container_of(_read(f"{proc}/{pid}/cgroup"))
        return cls(engine, port, _link(f"{proc}/{pid}/ns/net"), container)

    def holds(self, server: FoundServer, proc: str = "/proc") -> bool:
        """Whether that server is to serve here, though it may not listen yet. What cannot be seen speaks for it."""
        if not server.alive or server.engine != self.engine or server.pid is None or self.port is None:
            return False
        if self.port not in (server.port, urlsplit(server.url or "").port):
            return False
        other = Place.of(server.pid, server.engine, server.port, proc)
        if self.container is not None and self.container == other.container:
            return True
        return None in (self.network, other.network) or self.network == other.network


Ask = Callable[[str], bool]
"""Whether a server answers at that URL."""


def discover_servers(
    *, now_mono_ns: int, proc: str = "/proc", skip: Collection[int] = (), ask: Ask = lambda url: False
) -> FoundServers:
    """Every server that its processes give away. ``skip``: PIDs of engines that are known otherwise. ``ask``: decides
    between several ports; by default nobody is asked."""
    table = read_table(proc)
    unseen: list[str] = []
    arguments = _arguments(table, proc, unseen)
    known = _known(table, arguments, proc, unseen)
    parents = {stat.pid: stat.parent for stat in table.values()}
    found = [
        each
        for one in families(table, known)
        if not any(pid in skip for pid in one.pids)
        for each in _with_ranks(_server(one, table, known, arguments, proc, now_mono_ns, ask, unseen), parents)
    ]
    unseen += _hidden(proc)
    found.sort(key=lambda server: (server.orphaned, -server.age_ns))
    return FoundServers(tuple(found), tuple(dict.fromkeys(unseen)))


def server_of(pid: int, *, now_mono_ns: int, proc: str = "/proc", ask: Ask = lambda url: False) -> FoundServer | None:
    """Any process that listens and answers, though nothing marks it as an engine; None when it does not."""
    table = read_table(proc)
    if pid not in table:
        return None
    reach = _reach(pid, proc, [])
    url = next((found for one in unique(_own_listeners(pid, proc)) if ask(found := reach(one))), None)
    if url is None:
        return None
    age_ns = now_mono_ns - start_mono_ns(table[pid].start_ticks, _read(f"{proc}/uptime"), now_mono_ns)
    member = Member(pid, table[pid].comm, FRONT_END, None, table[pid].start_ticks)
    return FoundServer("server", (member,), max(0, age_ns), url=url)


def _arguments(table: Mapping[int, Stat], proc: str, unseen: list[str]) -> dict[int, tuple[str, ...]]:
    """Of whoever may be part of a server, by its name."""
    wanted = [pid for pid, stat in table.items() if roles.may_be_server(stat.comm)]
    read = read_slow([f"{proc}/{pid}/cmdline" for pid in wanted])
    unseen += _stuck(read, table)
    return {pid: split(read.contents.get(f"{proc}/{pid}/cmdline", b"")) for pid in wanted}


def _known(
    table: Mapping[int, Stat], arguments: Mapping[int, tuple[str, ...]], proc: str, unseen: list[str]
) -> dict[int, Known]:
    known = by_titles(table)
    unmarked: list[int] = []
    for pid, argv in arguments.items():
        if pid in known:
            whole = roles.part_of_title(argv[0]) if argv else None
            known[pid] = Known(whole or known[pid].part, argv[0] if whole is not None else table[pid].comm, argv)
        elif (part := roles.part_of_arguments(argv)) is not None:
            known[pid] = Known(part, table[pid].comm, argv)
        elif roles.helper_of_arguments(argv) is None:
            unmarked.append(pid)
    return known | _by_libraries(unmarked, table, arguments, proc, unseen)


def _by_libraries(
    pids: Sequence[int],
    table: Mapping[int, Stat],
    arguments: Mapping[int, tuple[str, ...]],
    proc: str,
    unseen: list[str],
) -> dict[int, Known]:
    """Programs that listen and have an engine's library mapped: a name of their own hides what they are."""
    listening = [pid for pid in pids if _own_listeners(pid, proc)][:_MOST_LISTENING]
    if not listening:
        return {}
    read = read_slow([f"{proc}/{pid}/maps" for pid in listening], limit=4 << 20)
    unseen += _stuck(read, table)
    engines = {pid: roles.engine_of_maps(read.contents.get(f"{proc}/{pid}/maps", b"")) for pid in listening}
    return {
        pid: Known(Part(engine, FRONT_END), table[pid].comm, arguments[pid])
        for pid, engine in engines.items()
        if engine is not None
    }


def _stuck(read: Slow, table: Mapping[int, Stat]) -> list[str]:
    """Who does not let itself be read, which is worth knowing in itself."""
    pids = [int(path.split("/")[-2]) for path in read.stuck]
    return [
        f"process {pid} ({table[pid].comm if pid in table else '?'}) does not let its arguments be read: it hangs in "
        f"the kernel. See: cat /proc/{pid}/stack (root)"
        for pid in pids
    ]


def _server(
    one: Family,
    table: Mapping[int, Stat],
    known: Mapping[int, Known],
    arguments: Mapping[int, tuple[str, ...]],
    proc: str,
    now_mono_ns: int,
    ask: Ask,
    unseen: list[str],
) -> FoundServer:
    members = tuple(_members(one, table, known, arguments))
    first = members[0].pid
    status = parse_status(_read(f"{proc}/{first}/status"))
    uid = int(status["Uid"].split()[0]) if status.get("Uid") else None
    argv = known[first].argv if first in known else ()
    started = min(table[pid].start_ticks for pid in one.pids)
    age_ns = max(0, now_mono_ns - start_mono_ns(started, _read(f"{proc}/uptime"), now_mono_ns))
    container = container_of(_read(f"{proc}/{first}/cgroup"))
    if one.root is None:
        memory = _memory(one.pids, proc)
        return FoundServer(
            one.engine, members, age_ns, orphaned=True, container=container, uid=uid, memory_bytes=memory
        )
    serves = first in known
    url, starting = _address(one.engine, first, members, argv, proc, uid, ask, unseen) if serves else (None, False)
    return FoundServer(
        one.engine,
        members,
        age_ns,
        url=url,
        port=port_of(one.engine, argv) if serves else None,
        model=model_of(one.engine, argv),
        starting=starting,
        container=container,
        uid=uid,
    )


def _with_ranks(server: FoundServer, parents: Mapping[int, int]) -> Iterator[FoundServer]:
    """The server, and behind it its data-parallel ranks, where it has several. (SGLang has an engine core for each
    tensor rank, too: those of one data-parallel rank belong together.)"""
    cores: dict[str, list[int]] = {}
    for member in server.members:
        if member.role == CORE and (named := _DATA_RANK.search(member.rank or "")):
            cores.setdefault(named[0], []).append(member.pid)
    if server.orphaned or len(cores) < 2:
        yield server
        return
    yield replace(server, ranks=len(cores))
    for rank in sorted(cores, key=lambda name: int(name[2:])):
        pids = {pid for core in cores[rank] for pid in (core, *descendants(core, parents))}
        members = tuple(member for member in server.members if member.pid in pids)
        yield replace(server, members=members, ranks=len(cores), rank=rank, served_by=server.pid)


def _members(
    one: Family,
    table: Mapping[int, Stat],
    known: Mapping[int, Known],
    arguments: Mapping[int, tuple[str, ...]],
) -> Iterable[Member]:
    for pid in one.pids:
        stat = table[pid]
        if pid in known:
            part = known[pid].part
            yield Member(pid, known[pid].name, part.role, part.rank, stat.start_ticks)
        else:
            role = FRONT_END if pid == one.root else roles.helper_of_arguments(arguments.get(pid, ()))
            yield Member(pid, stat.comm, role, None, stat.start_ticks)


def _address(
    engine: str,
    pid: int,
    members: Sequence[Member],
    argv: Sequence[str],
    proc: str,
    uid: int | None,
    ask: Ask,
    unseen: list[str],
) -> tuple[str | None, bool]:
    """The URL and whether it is still to come."""
    wanted = port_of(engine, argv)
    fronts = [member.pid for member in members if member.role in (FRONT_END, LAUNCHER)]
    everyone = listeners(f"{proc}/{pid}")
    inodes = [socket_inodes(f"{proc}/{front}") for front in fronts]
    denied = all(found is None for found in inodes)
    own = {inode for found in inodes if found is not None for inode in found}
    heard = unique([one for one in everyone if (one.uid == uid and one.port == wanted if denied else one.inode in own)])
    if not heard:
        return None, not denied
    host_of = _reach(pid, proc, unseen)
    right = [one for one in heard if one.port == wanted] or heard
    if len(right) > 1:
        right = [one for one in right if ask(host_of(one))] or right
    return host_of(right[0]), False


def _reach(pid: int, proc: str, unseen: list[str]) -> Callable[[Listener], str]:
    """How a listener of that process is named from here."""
    ours, theirs = _link(f"{proc}/self/ns/net"), _link(f"{proc}/{pid}/ns/net")
    if theirs is None or ours == theirs:
        return lambda one: url_of(one.host, one.port)
    address = own_address(f"{proc}/{pid}")
    if address is None:
        unseen.append(f"process {pid} has a network of its own: name the address that leads to it, inferdbg attach URL")
    return lambda one: url_of(address or one.host, one.port)


def _own_listeners(pid: int, proc: str) -> list[Listener]:
    inodes = socket_inodes(f"{proc}/{pid}")
    if not inodes:
        return []
    return [one for one in listeners(f"{proc}/{pid}") if one.inode in inodes]


def _memory(pids: Sequence[int], proc: str) -> int | None:
    """What would be free without them: their PSS, or RSS where that may not be read."""
    read = read_slow([f"{proc}/{pid}/smaps_rollup" for pid in pids])
    total = 0
    for pid in pids:
        rollup = parse_status(read.contents.get(f"{proc}/{pid}/smaps_rollup", b""))
        status = parse_status(_read(f"{proc}/{pid}/status"))
        total += kilobytes(rollup.get("Pss") or status.get("VmRSS")) or 0
    return total or None


def container_of(cgroup: bytes) -> str | None:
    """The first twelve letters of a container's id, as its own tools print it, from /proc/PID/cgroup."""
    found = _CONTAINER.search(cgroup.decode("utf-8", "replace"))
    if found is None:
        return None
    return found[1][:12] if found[1] else found[2]


def _hidden(proc: str) -> list[str]:
    """What nobody in our place can see."""
    lines: list[str] = []
    if has_own_pids(proc):
        lines.append(
            "this is a container: engines outside of it cannot be seen. Run inferdbg on the host, or share the PID "
            "namespace (docker run --pid=host or --pid=container:NAME, kubectl debug --target=CONTAINER)"
        )
    mounts = _read(f"{proc}/self/mounts").decode("utf-8", "replace")
    if _HIDEPID.search(mounts) and os.geteuid():
        lines.append("/proc hides other users' processes (hidepid): run inferdbg with sudo to see theirs")
    return lines


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 16)
    except OSError:
        return b""
