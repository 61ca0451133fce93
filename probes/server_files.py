"""Somebody else's server as /proc tells of it: alive or gone, processes by role, its start, orphans, its successor."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.processes import Process, Processes
from inferdbg.facts.sections.server import ModelFacts, Server
from inferdbg.facts.sections.startup import Startup

from .arguments import model_of, port_of, split
from .cgroups import Limits, read_limits
from .families import by_titles, families
from .process_table import Stat, descendants, parse_stat, read_table, start_mono_ns
from .processes import (
    MOST_PROCESSES,
    ProcFiles,
    Title,
    around,
    hidden_in,
    kilobytes,
    parse,
    parse_status,
    proc_files,
    read_file,
    title_of,
)
from .roles import FRONT_END, STARTING
from .servers import Place, discover_servers
from .slow_files import read_slow
from .sockets import listeners, socket_inodes
from .startup import StartupWatch

_LOOK_NS = 10 * SECOND
_UNSETTLED_NS = 2 * SECOND


@dataclass
class ServerFiles:
    """``pid``: the front end; of orphans, which have none (``orphaned``), the first of them. ``url``: where it answers.

    Arguments and memory shares, which a stuck process can keep for itself, are read in a child that is given up when it
    hangs. When the front end is gone and another of its kind starts on its port, or anything listens there, that one is
    looked at from then on."""

    pid: int
    engine: str
    url: str | None = None
    orphaned: bool = False
    proc: str = "/proc"

    name = "processes"
    sections = ("server", "processes")
    cadence_ns = SECOND
    deadline_ns = 3 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._begin(self.pid)

    def _begin(self, pid: int) -> None:
        self._pid = pid
        self._family: tuple[int, ...] = ()
        self._orphans: tuple[int, ...] = ()
        self._looked_ns: int | None = None
        self._first: Stat | None = None
        self._started: dict[int, int] = {}  # of every process that was once in the family
        self._titles: dict[tuple[int, int, str], Title] = {}
        self._shares: dict[int, int] = {}
        self._watch: StartupWatch | None = None if self.orphaned else StartupWatch(self.proc)
        self._argv: tuple[str, ...] = ()
        self._started_ns: int | None = None
        self._place = Place.of(pid, self.engine, urlsplit(self.url or "").port, self.proc)

    def read(self, now_ns: int) -> Reading:
        if self._looked_ns is None or now_ns - self._looked_ns >= (_UNSETTLED_NS if self._unsettled() else _LOOK_NS):
            self._look_around()
            self._looked_ns = now_ns
        files = [found for pid in (self._pid, *self._family) if (found := self._files(pid)) is not None]
        alive = any(parse_stat(one.stat).pid == self._pid for one in files)
        if not alive and not self.orphaned and (successor := self._successor(now_ns)) is not None:
            ended = self._pid
            self._begin(successor)
            reading = self.read(now_ns)
            return replace(reading, message=f"process {ended} has ended; {successor} has its port now")
        life = self._first.start_ticks if self._first is not None and not self.orphaned else None
        return replace(self._of_this(files, now_ns, alive=alive), life=life)

    def _of_this(self, files: Sequence[ProcFiles], now_ns: int, *, alive: bool) -> Reading:
        origin = Origin(self.name, now_ns)
        server = self._server(origin, now_ns, alive=alive)
        if not files:
            message = f"process {self._pid} has ended" + ("" if self._first is not None else ", or never was")
            return Reading({} if server is None else {"server": server}, "absent" if server is None else "ok", message)
        section = self._section(files, origin, now_ns)
        sections: dict[str, Struct] = {"processes": section}
        if server is not None:
            sections["server"] = server
        if not alive:
            self._looked_ns = None  # what is left changes by the moment
            return Reading(sections, message=f"process {self._pid} has ended; what it started lives on")
        hidden = hidden_in(section)
        return Reading(sections, message=hidden, hint=f"sudo inferdbg attach {self._pid}" if hidden else "")

    def close(self) -> None:
        """Nothing is held open."""

    def _server(self, origin: Origin, now_ns: int, *, alive: bool) -> Server | None:
        if self._first is None:
            return None
        model = model_of(self.engine, self._argv)
        return Server(
            origin,
            self.engine,
            pid=self._pid,
            state="dead" if not alive else "orphaned" if self.orphaned else "alive",
            started_mono_ns=self._began(now_ns),
            url=self.url,
            model=ModelFacts(model) if model is not None else None,
        )

    def _section(self, files: Sequence[ProcFiles], origin: Origin, now_ns: int) -> Processes:
        first = parse_stat(files[0].stat).pid
        meminfo = read_file(f"{self.proc}/meminfo") or b""
        limits = read_limits(read_file(f"{self.proc}/{first}/cgroup") or b"")
        section = around(parse(files, meminfo, limits, self._named(), origin), self.proc, first)
        return replace(section, orphans=self._orphaned(origin), startup=self._starting(files, now_ns))

    def _unsettled(self) -> bool:
        """A server that starts has other processes every moment."""
        return self._watch is not None or any(title.role == STARTING for title in self._titles.values())

    def _named(self) -> dict[int, Title]:
        titles = {pid: title for (pid, _, _), title in self._titles.items()}
        if self.orphaned:
            return titles
        return titles | {self._pid: titles.get(self._pid, Title())._replace(role=FRONT_END)}

    def _orphaned(self, origin: Origin) -> tuple[Process, ...]:
        files = [found for pid in self._orphans if (found := self._files(pid)) is not None]
        items = parse(files, b"", Limits(), self._named(), origin).items
        return tuple(replace(item, pss_bytes=self._shares.get(item.pid)) for item in items)

    def _starting(self, files: Sequence[ProcFiles], now_ns: int) -> Startup | None:
        """None once it listens where it should, for good; and of a program that is no server."""
        titles = self._named()
        stats = [parse_stat(one.stat) for one in files]
        if self._watch is None or not self._serves() or stats[0].pid != self._pid or self._listens():
            self._watch = None
            return None
        return self._watch.look(stats, {pid: title.role for pid, title in titles.items()}, self._began(now_ns), now_ns)

    def _began(self, now_ns: int) -> int:
        """The same at every read: the clock that it is reckoned by has only hundredths of seconds."""
        if self._started_ns is None and self._first is not None:
            uptime = read_file(f"{self.proc}/uptime") or b""
            self._started_ns = start_mono_ns(self._first.start_ticks, uptime, now_ns)
        return now_ns if self._started_ns is None else self._started_ns

    def _serves(self) -> bool:
        """By its own arguments; the program that merely started an engine core listens nowhere."""
        return any(pid == self._pid and title.role == FRONT_END for (pid, _, _), title in self._titles.items())

    def _listens(self) -> bool:
        """True also where that cannot be seen: open files that are hidden tell nothing."""
        fronts = [self._pid, *(pid for pid, title in self._named().items() if title.role == FRONT_END)]
        inodes = [socket_inodes(f"{self.proc}/{pid}") for pid in fronts]
        own = {inode for found in inodes if found is not None for inode in found}
        ports = {one.port for one in listeners(f"{self.proc}/{self._pid}") if one.inode in own}
        return all(found is None for found in inodes) or port_of(self.engine, self._argv) in ports

    def _successor(self, now_ns: int) -> int | None:
        """The front end of a server that stands now where ours did, or starts there; or whoever listens there."""
        port = urlsplit(self.url or "").port or (port_of(self.engine, self._argv) if self._argv else None)
        if port is None:
            return None
        place = replace(self._place, port=port)
        for server in discover_servers(now_mono_ns=now_ns, proc=self.proc).servers:
            if server.pid is not None and server.pid not in self._started and place.holds(server, self.proc):
                return server.pid
        for stat in read_table(self.proc).values():
            inodes = socket_inodes(f"{self.proc}/{stat.pid}") if stat.pid not in self._started else None
            heard = listeners(f"{self.proc}/{stat.pid}") if inodes else []
            if inodes and any(one.port == port and one.inode in inodes for one in heard):
                return stat.pid
        return None

    def _files(self, pid: int) -> ProcFiles | None:
        """None when it is gone, or when another process has got its number."""
        files = proc_files(self.proc, pid)
        if files is None:
            return None
        found = parse_stat(files.stat)
        if self._started.setdefault(pid, found.start_ticks) != found.start_ticks or found.state in ("Z", "X"):
            return None
        if pid == self._pid:
            self._first = found
        return files

    def _look_around(self) -> None:
        table = read_table(self.proc)
        below = descendants(self._pid, {stat.pid: stat.parent for stat in table.values()})[:MOST_PROCESSES]
        orphans = [one.pids for one in families(table, by_titles(table)) if one.root is None]
        left = [pid for pid in self._family if pid in table and pid not in below]  # taken over by somebody else
        if self.orphaned:
            left += [pid for pids in orphans if self._pid in pids for pid in pids if pid not in (self._pid, *below)]
        self._family = (*below, *dict.fromkeys(left))
        self._orphans = tuple(pid for pids in orphans for pid in pids)[:MOST_PROCESSES]
        self._read_titles([table[pid] for pid in (self._pid, *self._family, *self._orphans) if pid in table])
        self._read_shares()

    def _read_titles(self, stats: Sequence[Stat]) -> None:
        """Of those that have another comm than when we last asked."""
        keys = dict.fromkeys((stat.pid, stat.start_ticks, stat.comm) for stat in stats)
        new = [key for key in keys if key not in self._titles]
        found = {}
        if new:
            read = read_slow([f"{self.proc}/{pid}/cmdline" for pid, _, _ in new])
            for pid, ticks, comm in new:
                argv = split(read.contents.get(f"{self.proc}/{pid}/cmdline", b""))
                found[pid, ticks, comm] = title_of(comm, argv)
                if pid == self._pid:
                    self._argv = argv
        self._titles = {key: self._titles[key] if key in self._titles else found[key] for key in keys}

    def _read_shares(self) -> None:
        read = read_slow([f"{self.proc}/{pid}/smaps_rollup" for pid in self._orphans]) if self._orphans else None
        contents = read.contents if read is not None else {}
        shares = {int(path.split("/")[-2]): kilobytes(parse_status(raw).get("Pss")) for path, raw in contents.items()}
        self._shares = {pid: share for pid, share in shares.items() if share is not None}
