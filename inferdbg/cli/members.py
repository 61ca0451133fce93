"""Which processes TARGET means, and what each is: its role, its rank and the job whose collectives it takes part in."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from inferdbg import text
from inferdbg.cli import here, target
from inferdbg.cli.naming import engine_name
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.facts.sections.stacks import ProcessStacks
    from inferdbg.probes.process_table import Stat
    from inferdbg.probes.servers import FoundServer

MOST = 64
_SHARDED = re.compile(r"\b(?:TP|PP|EP|PCP|DCP)\d+")
_DATA_RANK = re.compile(r"\bDP\d+")
_RANK_OPTION = re.compile(r"--(?:local[-_])?rank(?:=(.*))?")
_NUMBER = re.compile(r"[0-9]{1,6}")


class Members(NamedTuple):
    """``seats``: processes without their threads, what was named first. ``words``: what is left out, for people."""

    name: str
    seats: "tuple[ProcessStacks, ...]"
    words: tuple[str, ...] = ()


def members_of(target_name: str | None, *, all_ranks: bool) -> Members:
    """Of a server all its processes; of any other PID its own and those below it. ``all_ranks``: also the other ranks
    of its job on this machine. Raises InferdbgError where there is no such process here."""
    pid = int(target_name) if target_name is not None and target_name.isascii() and target_name.isdecimal() else None
    if pid is not None:
        server = _server_with(pid, all_ranks=all_ranks)
        return of_server(server) if server is not None else _of_tree(pid, all_ranks=all_ranks)
    if target.is_recording(target_name):
        raise InferdbgError("stacks are read from processes that are there", f"inferdbg open {target_name}", Exit.USAGE)
    from inferdbg.probes.servers import FoundServer

    engine = target.engine_of(target_name)
    if isinstance(engine, FoundServer) and engine.members:
        return of_server(engine)
    if engine.pid is None or not engine.alive:
        why = "its process has ended" if engine.box_path is not None else "its process is not on this machine"
        raise InferdbgError(f"stacks cannot be read: {why}", "run inferdbg where the server runs, and name its PID")
    return _of_tree(engine.pid, all_ranks=all_ranks)


def _server_with(pid: int, *, all_ranks: bool) -> "FoundServer | None":
    """Nothing is asked of it: a server that hangs does not answer."""
    from inferdbg.probes.servers import discover_servers

    found = discover_servers(now_mono_ns=time.monotonic_ns()).servers
    having = [server for server in found if pid in server.pids]
    ranked = having if all_ranks else having[::-1]  # a rank comes after the server that it is part of
    return ranked[0] if ranked else None


def of_server(server: "FoundServer") -> Members:
    from inferdbg.facts.sections.stacks import ProcessStacks
    from inferdbg.probes.roles import CORE, WORKER

    # whoever shards the model meets in collectives: workers, or of SGLang the engine cores
    sharded = [one for one in server.members if one.rank is not None and _SHARDED.search(one.rank)]
    role = WORKER if any(one.role == WORKER for one in sharded) else CORE
    jobs = {
        one.pid: " ".join([server.engine, *_DATA_RANK.findall(one.rank or "")]) for one in sharded if one.role == role
    }
    seats = tuple(
        ProcessStacks(one.pid, one.role or text.safe(one.name), rank=one.rank, job=jobs.get(one.pid))
        for one in server.members[:MOST]
    )
    handle = f"pid {server.pid}" if server.pid is not None else str(server.url)
    return Members(f"{engine_name(server)}, {handle}", seats, _left_out(len(server.members)))


def _of_tree(pid: int, *, all_ranks: bool) -> Members:
    from inferdbg.facts.sections.stacks import ProcessStacks
    from inferdbg.probes.process_table import descendants, read_table
    from inferdbg.probes.processes import title_of
    from inferdbg.probes.roles import may_be_server

    table = read_table()
    if pid not in table:
        raise InferdbgError(f"there is no process {pid} here", "inferdbg top   shows what runs here")
    pids = [pid, *descendants(pid, {stat.pid: stat.parent for stat in table.values()})]
    others = [one for one in table if one not in pids and all_ranks and may_be_server(table[one].comm)]
    argv, ranks = _told([*pids, *others], table)
    jobs = {ranks[one].job for one in pids if one in ranks}
    pids += [one for one in others if one in ranks and ranks[one].job in jobs]
    boxed = any(engine.pid == pid and engine.alive for engine in here.with_boxes().engines)
    seats = []
    for one in pids[:MOST]:
        comm, title, rank = text.safe(table[one].comm), title_of(table[one].comm, argv[one]), ranks.get(one)
        if rank is not None:
            seats.append(ProcessStacks(one, rank=rank.rank, job=rank.job, job_ranks=rank.of))
        else:
            seats.append(ProcessStacks(one, "engine" if boxed and one == pid else title.role or comm, rank=title.rank))
    words = list(_left_out(len(pids)))
    if not all_ranks and any((ranks[one].of or 0) > len(ranks) for one in pids if one in ranks):
        words.append(f"its job has other ranks: inferdbg stacks {pid} --all-ranks looks at those on this machine, too")
    return Members(f"pid {pid} ({text.safe(table[pid].comm)})", tuple(seats), tuple(words))


def _left_out(count: int) -> tuple[str, ...]:
    return (f"{count - MOST} processes more are left out: name one of them",) if count > MOST else ()


class Rank(NamedTuple):
    """``of``: how many ranks the job has."""

    rank: str
    job: str
    of: int | None = None


def _told(pids: Sequence[int], table: "Mapping[int, Stat]") -> tuple[dict[int, tuple[str, ...]], dict[int, Rank]]:
    """Their arguments, and the ranks among them. What a rank starts has its environment from it, and is none."""
    from inferdbg.probes.arguments import split
    from inferdbg.probes.slow_files import read_slow

    read = read_slow([f"/proc/{pid}/{name}" for pid in pids for name in ("cmdline", "environ")]).contents
    argv = {pid: split(read.get(f"/proc/{pid}/cmdline", b"")) for pid in pids}
    found = {
        pid: rank
        for pid in pids
        if (rank := rank_of(read.get(f"/proc/{pid}/environ", b""), argv[pid], table[pid].parent)) is not None
    }
    return argv, {pid: rank for pid, rank in found.items() if found.get(table[pid].parent) != rank}


def rank_of(environ: bytes, argv: Sequence[str], parent: int) -> Rank | None:
    """By RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torch.distributed wants them (env://) and torchrun sets
    them; else by --rank or --local-rank among the arguments. Nothing else of an environment is looked at."""
    told = {name: value for name, _, value in (word.partition(b"=") for word in environ.split(b"\0"))}
    rank, size = (told.get(name, b"").decode("utf-8", "replace") for name in (b"RANK", b"WORLD_SIZE"))
    if _NUMBER.fullmatch(rank):
        where = b":".join(told.get(name, b"") for name in (b"MASTER_ADDR", b"MASTER_PORT")).decode("utf-8", "replace")
        return Rank(rank, text.safe(where, 100), int(size) if _NUMBER.fullmatch(size) else None)
    for word, following in zip(argv, (*argv[1:], ""), strict=False):
        option = _RANK_OPTION.fullmatch(word)
        if option is not None and _NUMBER.fullmatch(value := option[1] or following):
            return Rank(value, f"children of {parent}")
    return None
