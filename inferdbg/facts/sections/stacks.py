"""What the Python threads of a server's processes are doing: the calls that each stands in."""

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Call(Struct, frozen=True, gc=False):
    """``file``: as short as py-spy writes it. ``line``: 0 where the interpreter has none."""

    function: str
    file: str
    line: int


class ThreadStack(Struct, frozen=True, omit_defaults=True):
    """``calls``: innermost first; those beyond the 64 innermost are left out. ``active``: it was on a processor, as far
    as a reader can tell that stops nobody."""

    name: str
    native_id: int | None
    calls: tuple[Call, ...] = ()
    active: bool = False
    holds_gil: bool = False


class ProcessStacks(Struct, frozen=True, omit_defaults=True):
    """``role``: engine core, worker, front end, where it is known. ``why``: what kept us from its stacks."""

    pid: int
    role: str | None = None
    threads: tuple[ThreadStack, ...] = ()
    why: str = ""


class Stacks(Struct, frozen=True, omit_defaults=True):
    """Taken without a stop: a thread that ran meanwhile may show calls of two moments."""

    origin: Origin
    processes: tuple[ProcessStacks, ...] = ()
