"""The processes behind the server, as the kernel of their machine describes them."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Process(Struct, frozen=True, gc=False, omit_defaults=True):
    """``state`` is the letter of /proc/PID/stat (R, S, D, T, Z); ``cpu_ns`` is user + system since its start."""

    pid: int
    name: str
    role: str | None = None
    state: str | None = None
    cpu_ns: int | None = None
    rss_bytes: int | None = None
    threads: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None


class Processes(Struct, frozen=True, gc=False, omit_defaults=True):
    """``cpus``: processors the target may use; ``memory_bytes``: of the machine."""

    origin: Origin
    items: tuple[Process, ...] = ()
    cpus: int | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
