"""What the threads of a server's processes are doing: the calls that each stands in, and what the kernel says of it."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Call(Struct, frozen=True, gc=False, omit_defaults=True):
    """``file``: as short as py-spy writes it; of a ``native`` call its source or its library. ``line``: 0 where there
    is none."""

    function: str
    file: str
    line: int
    native: bool = False


class ThreadStack(Struct, frozen=True, omit_defaults=True):
    """``calls``: innermost first; those beyond the 64 innermost are left out. ``active``: it was on a processor, as far
    as a reader can tell that stops nobody.

    Of the kernel: ``state``, the letter of /proc/PID/stat; ``kernel_wait``: the function that it sleeps in; ``timed``:
    it sleeps on a futex that ends by itself; ``cpu_ns`` and ``wakes`` (it slept and went on) since its start;
    ``kernel_calls``: its stack there, innermost first, where that may be read."""

    name: str
    native_id: int | None
    calls: tuple[Call, ...] = ()
    active: bool = False
    holds_gil: bool = False
    state: str | None = None
    kernel_wait: str | None = None
    timed: bool | None = None
    cpu_ns: int | None = None
    wakes: int | None = None
    kernel_calls: tuple[str, ...] = ()


class Refusal(Struct, frozen=True, omit_defaults=True):
    """Why a ``tool`` showed nothing, and what to type so that it does."""

    tool: str
    why: str
    cure: str = ""


class ProcessStacks(Struct, frozen=True, omit_defaults=True):
    """``role``: engine core, worker, front end, where it is known. ``rank``: ``2``, or as the engine writes it (``DP0
    TP1``); ``job``: the ranks that meet in collectives share it; ``job_ranks``: how many there are of it, here and
    elsewhere. ``why``: what kept us from its stacks.

    ``tool``: what read its calls ("": none could). ``refusals``: those that were tried before. ``paused_ns``: how long
    it stood still for that, as seen from outside; None: not at all, or for less than can be told."""

    pid: int
    role: str | None = None
    threads: tuple[ThreadStack, ...] = ()
    why: str = ""
    rank: str | None = None
    job: str | None = None
    job_ranks: int | None = None
    tool: str = ""
    refusals: tuple[Refusal, ...] = ()
    paused_ns: int | None = None


class Stacks(Struct, frozen=True, omit_defaults=True):
    """Taken without a stop, unless ``paused_ns`` of a process says otherwise: a thread that ran meanwhile may show
    calls of two moments."""

    origin: Origin
    processes: tuple[ProcessStacks, ...] = ()
