"""The processes behind the server, as the kernel of their machine describes them."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.startup import Startup


class Blocked(Struct, frozen=True, gc=False, omit_defaults=True):
    """A thread in uninterruptible sleep (D), which no signal reaches. ``waits_in``: the kernel's function that it
    sleeps in (wchan); ``kernel_stack``: innermost first, where root reads it."""

    native_id: int
    name: str
    waits_in: str | None = None
    kernel_stack: tuple[str, ...] = ()


class Process(Struct, frozen=True, gc=False, omit_defaults=True):
    """``role``: engine, front end, engine core, worker, resource tracker …; ``rank``: which of several, as the engine
    writes it (``DP0 TP1``). ``state`` is the letter of /proc/PID/stat (R, S, D, T, Z); ``cpu_ns`` is user + system
    since its start. ``pss_bytes``: what it alone holds of memory, and its share of what several map; of orphans only.

    ``shared_bytes``: of RSS, what lies in shared memory; ``swap_bytes``: what is not in memory any more. Since its
    start ``major_faults`` of all its threads waited for a disk; its first thread gave the processor up ``waits`` times
    and had it taken ``preempted`` times. ``running``: threads that run or could; ``blocked``: the first of those in
    uninterruptible sleep. ``oom_score``: who has the most is killed first when memory ends. ``thread_ids``: as the
    kernel's log names a thread that crashed.
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
    parent: int | None = None
    shared_bytes: int | None = None
    swap_bytes: int | None = None
    major_faults: int | None = None
    waits: int | None = None
    preempted: int | None = None
    running: int | None = None
    blocked: tuple[Blocked, ...] = ()
    oom_score: int | None = None
    thread_ids: tuple[int, ...] = ()


class Stalled(Struct, frozen=True, gc=False):
    """Time lost for want of one resource, in ns since the start (pressure stall information): ``some_ns`` while at
    least one task waited for it, ``full_ns`` while all did."""

    resource: str
    some_ns: int
    full_ns: int


class Processes(Struct, frozen=True, gc=False, omit_defaults=True):
    """``cpus``: processors the target may use; ``memory_bytes``: of the machine. ``orphans``: engine cores and workers
    on this machine whose front end is gone, of the target or of another server. ``startup``: while the server does
    not serve yet. ``stalled``: of the target's control group (``stalled_group``), else of the machine. ``shm_bytes``:
    of the target's /dev/shm. ``oom_kills``: how often the kernel killed somebody in the group for want of memory."""

    origin: Origin
    items: tuple[Process, ...] = ()
    cpus: int | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    orphans: tuple[Process, ...] = ()
    startup: Startup | None = None
    stalled: tuple[Stalled, ...] = ()
    stalled_group: bool = False
    shm_bytes: int | None = None
    shm_used_bytes: int | None = None
    oom_kills: int | None = None
