"""What an engine or a server is called, and the line that tells it from others."""

import os
from typing import TYPE_CHECKING

from inferdbg import text

if TYPE_CHECKING:
    from inferdbg.probes.discovery import FoundEngine
    from inferdbg.probes.servers import FoundServer

    Engine = FoundEngine | FoundServer


def name_of(engine: "Engine") -> str:
    if engine.pid is not None and not is_remains(engine):
        ranks = ranks_of(engine)
        return f"pid {engine.pid}, {ranks}" if ranks else f"pid {engine.pid}"
    return os.path.basename(engine.box_path) if engine.box_path is not None else str(engine.url)


def handle_of(engine: "Engine") -> str:
    """What to type to mean it."""
    return str(engine.pid if engine.pid is not None else engine.box_path or engine.url)


def ranks_of(engine: "Engine") -> str:
    """``DP1 of 2``; of all of them ``2 ranks``; ``DP1`` where the others are elsewhere; empty of the only one."""
    from inferdbg.probes.servers import FoundServer

    if not isinstance(engine, FoundServer):
        return ""
    if engine.ranks == 1:
        return engine.data_rank or ""
    return f"{engine.ranks} ranks" if engine.rank is None else f"{engine.rank} of {engine.ranks}"


def engine_name(engine: "Engine") -> str:
    from inferdbg.probes.servers import FoundServer

    return engine.engine if isinstance(engine, FoundServer) else "inferdbg"


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
    parts = (pid, engine.engine, ranks_of(engine), model, engine.url, since, where, owner)
    return " · ".join(part for part in parts if part)


def orphans_line(server: "FoundServer") -> str:
    """``orphans of vllm: pid 60 (engine core) and 61 (worker) hold 1.2 GiB; to free it: kill 60 61``."""
    whom = " and ".join(f"{member.pid} ({member.role or text.safe(member.name)})" for member in server.members)
    one = len(server.members) == 1
    held = " lives on" if one else " live on"
    if server.memory_bytes is not None:
        held = f" {'holds' if one else 'hold'} {text.size(server.memory_bytes)}"
    pids = " ".join(str(member.pid) for member in server.members)
    return f"orphans of {server.engine}: pid {whom}{held}; to free it: kill {pids}"


def is_remains(engine: "Engine") -> bool:
    """A dead engine's box; orphans live on."""
    from inferdbg.probes.discovery import FoundEngine

    return isinstance(engine, FoundEngine) and not engine.alive
