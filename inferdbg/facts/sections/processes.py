"""The processes behind the server, as the kernel of their machine describes them."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.startup import Startup


class Process(Struct, frozen=True, gc=False, omit_defaults=True):
    """``role``: engine, front end, engine core, worker, resource tracker …; ``rank``: which of several, as the engine
    writes it (``DP0 TP1``). ``state`` is the letter of /proc/PID/stat (R, S, D, T, Z); ``cpu_ns`` is user + system
    since its start. ``pss_bytes``: what it alone holds of memory, and its share of what several map; of orphans only.
    """

    pid: int
    name: str
    role: str | None = None
    state: str | None = None
    cpu_ns: int | None = None
    rss_bytes: int | None = None
    threads: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    rank: str | None = None
    pss_bytes: int | None = None


class Processes(Struct, frozen=True, gc=False, omit_defaults=True):
    """``cpus``: processors the target may use; ``memory_bytes``: of the machine. ``orphans``: engine cores and workers
    on this machine whose front end is gone, of the target or of another server. ``startup``: while the server does
    not serve yet."""

    origin: Origin
    items: tuple[Process, ...] = ()
    cpus: int | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    orphans: tuple[Process, ...] = ()
    startup: Startup | None = None
