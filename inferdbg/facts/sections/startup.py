"""A server that does not serve yet: in which phase its start is, how far, and whether it moves."""

from typing import Literal

from msgspec import Struct

StartupPhase = Literal["starting", "downloading", "loading weights", "compiling", "warming up"]
"""``starting``: programs and libraries are loaded. ``warming up``: profiling, making the KV cache, graph capture."""


class Startup(Struct, frozen=True, gc=False, omit_defaults=True):
    """``pid`` and ``role``: the process that works. ``since_ns``: when the phase was first seen or, of the first one,
    when the server was started. ``moved_ns``: when its processes were last seen to compute, read or write. Times are
    CLOCK_MONOTONIC ns.

    ``loaded_bytes`` of ``weight_bytes``: files that are done, by their order, and the position in the open one; None
    for a file that is mapped, of which no position can be seen. ``file``: the one that is open.
    ``read_bytes``: from disk, and ``cpu_ns``: by all processes since their start, for rates."""

    phase: StartupPhase
    started_ns: int
    since_ns: int
    moved_ns: int
    pid: int | None = None
    role: str | None = None
    loaded_bytes: int | None = None
    weight_bytes: int | None = None
    file: str | None = None
    files_done: int | None = None
    files: int | None = None
    read_bytes: int | None = None
    cpu_ns: int | None = None
