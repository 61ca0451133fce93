"""Reads what ``py-spy dump`` prints without --json: so captures of real servers were kept."""

import re

from inferdbg.facts.sections.stacks import Call, ProcessStacks, ThreadStack

_THREAD = re.compile(r'Thread (\d+) \(([^)]*)\): "([^"]*)"')
_CALL = re.compile(r"    (\S.*) \((.*?)(?::(\d+))?\)$")
_NATIVE_FILE = re.compile(r"\.so[.\d]*$|\.(?:h|hpp|cpp|c)$|\.so$")


def parse_text(printed: str, role: str | None = None) -> ProcessStacks:
    """Threads of one process; a call is native where its file is a library or a source of C++."""
    pid = int(printed.partition("Process ")[2].split(":", 1)[0])
    threads: list[tuple[int, str, str, list[Call]]] = []
    for line in printed.splitlines():
        if head := _THREAD.match(line):
            threads.append((int(head[1]), head[2], head[3], []))
        elif threads and (call := _CALL.match(line)):
            native = bool(_NATIVE_FILE.search(call[2]))
            threads[-1][3].append(Call(call[1], call[2], int(call[3] or 0), native))
    return ProcessStacks(
        pid,
        role,
        tuple(
            ThreadStack(name, tid, tuple(calls), "active" in state, "gil" in state)
            for tid, state, name, calls in threads
        ),
        tool="py-spy",
    )
