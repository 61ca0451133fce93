"""Stacks out of what pystack, gdb and Python's faulthandler print; nothing here trusts a line of it."""

import os
import re

from inferdbg import text
from inferdbg.facts.sections.stacks import Call, ThreadStack

from .stacks import MOST_CALLS
from .thread_files import MOST_THREADS

_PYSTACK_THREAD = re.compile(r"Traceback for thread (\d+)(?: \(([^)]*)\))?(.*?) \(most recent call last\)")
_PYSTACK_CALL = re.compile(r'\s+\((Python|C)\) File "([^"]*)", line (\d+), in (.*)')
_GDB_THREAD = re.compile(r"Thread \d+ \((?:Thread 0x[0-9a-f]+ )?\(?LWP (\d+)\)?(?: \"([^\"]*)\")?")
_GDB_CALL = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ in )?(.+)")
_GDB_PLACE = re.compile(
    r"^(?P<function>.*?)(?: \([^()]*=.*\)| \(\))?(?: (?:at|from) (?P<file>\S+?)(?::(?P<line>\d+))?)?$"
)
_FAULT_THREAD = re.compile(r"(Current thread|Thread) 0x([0-9a-f]+)(?: \[([^\]]*)\])? \(most recent call first\):")
_FAULT_CALL = re.compile(r'  File "([^"]*)", line (\d+) in (.*)')
_MOST_TEXT = 8 << 20


def parse_pystack(printed: bytes) -> tuple[ThreadStack, ...]:
    """``pystack remote`` and ``pystack core``, 1.4 to 1.7: outermost call first, source lines between the calls."""
    found: list[tuple[int, str, bool, list[Call]]] = []
    for line in _lines(printed):
        if head := _PYSTACK_THREAD.match(line):
            found.append((int(head[1]), head[2] or "", "Has the GIL" in head[3], []))
        elif found and (call := _PYSTACK_CALL.match(line)):
            kind, file, number, function = call.groups()
            library = re.fullmatch(r"(.*?)(?: \(inlined\))?(?: \((/[^)]*)\))?", function)
            native = kind == "C"
            name, its_library = (library[1], library[2]) if native and library is not None else (function, None)
            place = its_library if file == "???" and its_library else file
            found[-1][3].append(_call(name, place, int(number), native=native))
    return tuple(
        ThreadStack(text.safe(name), native_id, tuple(calls[::-1][:MOST_CALLS]), holds_gil=gil)
        for native_id, name, gil, calls in found[:MOST_THREADS]
    )


def parse_gdb(printed: bytes) -> tuple[ThreadStack, ...]:
    """``thread apply all bt``: innermost call first; every call is native, Python's own among them."""
    found: list[tuple[int, str, list[Call]]] = []
    for line in _lines(printed):
        if head := _GDB_THREAD.match(line):
            found.append((int(head[1]), head[2] or "", []))
        elif found and (call := _GDB_CALL.match(line)) and len(found[-1][2]) < MOST_CALLS:
            place = _GDB_PLACE.match(call[1].strip())
            if place is not None:
                number = int(place["line"] or 0)
                found[-1][2].append(_call(place["function"], place["file"] or "", number, native=True))
    return tuple(ThreadStack(text.safe(name), tid, tuple(calls)) for tid, name, calls in found[:MOST_THREADS])


def parse_faulthandler(printed: bytes) -> tuple[ThreadStack, ...]:
    """What ``faulthandler.dump_traceback`` of 3.10 to 3.14 writes, the last dump of several: innermost call first. Its
    threads have no id of the kernel. ``active``: the one that the signal met."""
    found: list[tuple[str, bool, list[Call]]] = []
    ended = False  # the thread that the signal met comes last
    for line in _lines(printed):
        if head := _FAULT_THREAD.match(line):
            if ended:
                found, ended = [], False
            ended = head[1] == "Current thread"
            found.append((head[3] or "", ended, []))
        elif found and (call := _FAULT_CALL.match(line)) and len(found[-1][2]) < MOST_CALLS:
            found[-1][2].append(_call(call[3], call[1], int(call[2]), native=False))
    return tuple(
        ThreadStack(text.safe(name), None, tuple(calls), active=current)
        for name, current, calls in found[:MOST_THREADS]
    )


def _lines(printed: bytes) -> list[str]:
    return printed[-_MOST_TEXT:].decode("utf-8", "replace").splitlines()


def _call(function: str, file: str, line: int, *, native: bool) -> Call:
    """``file`` as short as py-spy has it: what follows site-packages or the standard library's folder."""
    if native:
        short = os.path.basename(file)
    else:
        short = re.sub(r"^.*/(?:site-packages|dist-packages)/|^.*/python3\.\d+/", "", file)
        short = os.path.basename(file) if short == file and file.startswith("/") else short
    return Call(text.safe(function, 300), text.safe(short, 300), min(line, 2**31), native)
