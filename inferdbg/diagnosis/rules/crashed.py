"""A process of the server crashed in native code: the kernel says at which address, in which library."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.diagnosis.kernel import ENDS, told, whose
from inferdbg.facts.window import Window


def check(window: Window) -> Iterator[Finding]:
    for event in told(window, "segfault", "trap"):
        victim = whose(window, event)
        if victim is None:
            continue
        who, surety = victim
        illegal = event.what.startswith("crashed (SIGILL)")
        library = text.safe(event.library) if event.library is not None else None
        offset = f"+0x{event.offset:x}" if event.offset is not None else ""
        where = f" in {library}{offset}" if library is not None else ""
        did = (
            f": it {event.access} (0x{event.address:x})"
            if event.access is not None and event.address is not None
            else ""
        )
        line = f"addr2line -Cfie {library} 0x{event.offset:x}   (which function);  " if library and event.offset else ""
        yield Finding(
            cause="driver_stack_mismatch" if illegal else "native_memory_bug",
            severity="dead",
            confidence=surety,
            summary=f"{who} {event.what}{where}{did}",
            evidence=(Evidence("kernel_log", text.safe(event.text)),),
            next_step="lscpu | grep Flags   (it was built for another processor, or the VM hides what this one can)"
            if illegal
            else f"{line}coredumpctl -1 info   (the stack of the last core, where one was kept)",
            since_ns=event.mono_ns,
            explains=ENDS,
        )
