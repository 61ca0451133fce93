"""The stacks of one process by whatever can read them here: py-spy, pystack, gdb, its own faulthandler, the kernel."""

import contextlib
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from inferdbg import text
from inferdbg.facts.sections.stacks import ProcessStacks, Refusal, ThreadStack

from .pauses import Pause
from .process_table import parse_stat
from .processes import parse_status, read_file
from .rights import denied_memory
from .stack_texts import parse_faulthandler, parse_gdb, parse_pystack
from .stacks import NO_PYTHON, exists, py_spy
from .thread_files import read_threads, with_kernel
from .tools import Unread, run

_LIVE_S, _STOP_S, _GDB_S = 6.0, 30.0, 90.0
"""gdb reads the symbols of all libraries first: 9 s for those of torch."""
_WRITING_S = 2.0
_MOST_WRITTEN = 1 << 20
_CURES = {
    "py-spy": "pip install py-spy",
    "pystack": "pip install pystack",
    "gdb": "install gdb: apt-get install gdb, or dnf install gdb",
}


class How(NamedTuple):
    """``stop``: by what stops it while it reads. ``native``: with native calls, which cannot be had without a stop.
    ``ask``: a signal at which the process writes its own stacks to its stderr; it must have a handler."""

    stop: bool = False
    native: bool = False
    ask: signal.Signals | None = None

    @property
    def stops(self) -> bool:
        return self.stop or self.native


def look_at(seat: ProcessStacks, how: How) -> ProcessStacks:
    """A process, of which PID, role and rank are known, with its threads. The first tool that can read it; what those
    before it said is kept. Where none can, what the kernel says of its threads. Raises nothing."""
    pid = seat.pid
    if not exists(pid):
        return replace(seat, why="it has ended")
    refusals: list[Refusal] = []
    paused_ns: int | None = None
    before = _state(pid)
    for tool, read in _tools(pid, how):
        try:
            with Pause(pid) as pause:
                threads = read()
        except Unread as refusal:
            paused_ns = _added(paused_ns, pause.stopped_ns)
            refusals.append(Refusal(tool, refusal.why, refusal.cure or _cure(tool, refusal.why)))
            if refusal.why == NO_PYTHON and not how.stops:
                break
            continue
        finally:
            if how.stops:
                _let_go(pid, before)
        paused_ns = _added(paused_ns, pause.stopped_ns)
        joined = with_kernel(threads, read_threads(pid), native=tool != "faulthandler")
        return replace(seat, threads=joined, tool=tool, refusals=tuple(refusals), paused_ns=paused_ns)
    threads = read_threads(pid)
    why = refusals[0].why if refusals else ""
    return replace(
        seat,
        threads=threads,
        tool="/proc" if threads else "",
        why=why if exists(pid) else "it has ended",
        refusals=tuple(refusals),
        paused_ns=paused_ns,
    )


def _tools(pid: int, how: How) -> Iterator[tuple[str, Callable[[], tuple[ThreadStack, ...]]]]:
    denied = denied_memory(pid)
    if denied is not None:
        cure = denied.cure.replace("inferdbg attach", "inferdbg stacks")
        yield "py-spy, pystack, gdb", lambda: _refuse(denied.why, cure)
    else:
        seconds = _STOP_S if how.stops else _LIVE_S
        yield "py-spy", lambda: py_spy(pid, seconds, stop=how.stops, native=how.native)
        yield "pystack", lambda: _pystack(pid, seconds, how)
        if how.stops:
            yield "gdb", lambda: _gdb(pid)
        else:
            not_asked = "it stops the process while it reads, and is not asked"
            yield "gdb", lambda: _refuse(not_asked, f"inferdbg stacks {pid} --stop")
    if how.ask is not None:
        asked = how.ask
        yield "faulthandler", lambda: _faulthandler(pid, asked)


def _refuse(why: str, cure: str) -> tuple[ThreadStack, ...]:
    raise Unread(why, cure)


def _pystack(pid: int, seconds: float, how: How) -> tuple[ThreadStack, ...]:
    """It does not stop the process with --no-block."""
    options = ["--native"] if how.native else [] if how.stop else ["--no-block"]
    done = run("pystack", ["remote", *options, str(pid)], seconds)
    threads = parse_pystack(done.out)
    if not threads:
        raise Unread(_said(done.err or done.out, "pystack"))
    return threads


def _gdb(pid: int) -> tuple[ThreadStack, ...]:
    """Loads no script that lies beside the program, and no symbols from elsewhere."""
    before = ("set auto-load off", "set debuginfod enabled off", "set pagination off", "set print frame-arguments none")
    argv = ["-nx", "-batch", *(word for line in before for word in ("-iex", line))]
    done = run("gdb", [*argv, "-p", str(pid), "-ex", "thread apply all bt 64"], _GDB_S)
    threads = parse_gdb(done.out)
    if not any(thread.calls for thread in threads):
        raise Unread(_said(done.err, "gdb"))
    return threads


def _faulthandler(pid: int, asked: signal.Signals) -> tuple[ThreadStack, ...]:
    """Sends the signal, and reads what the process then writes, where its stderr is a file."""
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        raise Unread(f"it cannot be sent a signal: {error.strerror}") from None
    try:
        if not handles(read_file(f"/proc/{pid}/status") or b"", asked):
            raise Unread(
                f"it has no handler for {asked.name}, which would end it",
                f"in the program: faulthandler.register(signal.{asked.name})",
            )
        place = f"/proc/{pid}/fd/2"
        is_file, begun = _is_file(place), _size(place)
        try:
            signal.pidfd_send_signal(process, asked)
        except OSError as error:
            raise Unread(f"it cannot be sent a signal: {error.strerror}") from None
    finally:
        os.close(process)
    if not is_file:
        where = _target_of(place)
        raise Unread(f"{asked.name} was sent; what it writes goes to its stderr, {where}, where we cannot read it")
    threads = parse_faulthandler(_written(place, begun))
    if not threads:
        raise Unread(f"{asked.name} was sent, and no stacks came in its stderr: its handler does something else")
    return threads


def handles(status: bytes, asked: signal.Signals) -> bool:
    """Whether /proc/PID/status says that the process has a handler for a signal (SigCgt of proc_pid_status(5))."""
    mask = parse_status(status).get("SigCgt", "")
    return bool(re.fullmatch(r"[0-9a-f]{1,16}", mask)) and bool(int(mask, 16) >> (asked - 1) & 1)


def _written(place: str, begun: int) -> bytes:
    """What is written into a file after that many bytes, once nothing more comes."""
    end, last = time.monotonic() + _WRITING_S, begun
    while time.monotonic() < end:
        time.sleep(0.1)
        size = _size(place)
        if size == last > begun:
            break
        last = size
    try:
        with open(place, "rb") as file:
            file.seek(begun)
            return file.read(_MOST_WRITTEN)
    except OSError:
        return b""


def _is_file(place: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(place).st_mode)
    except OSError:
        return False


def _size(place: str) -> int:
    try:
        return os.stat(place).st_size
    except OSError:
        return 0


def _target_of(place: str) -> str:
    try:
        return text.safe(os.readlink(place))
    except OSError:
        return "which we may not see"


def _state(pid: int) -> str | None:
    try:
        return parse_stat(read_file(f"/proc/{pid}/stat") or b"").state
    except (ValueError, IndexError):
        return None


def _let_go(pid: int, before: str | None) -> None:
    """A tracer that was killed in the middle may leave its target stopped, which it was not ``before``: it goes on."""
    if before not in ("T", "t") and _state(pid) == "T":
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _cure(tool: str, why: str) -> str:
    return _CURES.get(tool, "") if why == f"{tool} is not installed" else ""


def _said(printed: bytes, tool: str) -> str:
    """The line that tells most."""
    lines = [text.safe(line).strip(" 💀") for line in printed.decode("utf-8", "replace").splitlines() if line.strip()]
    wanted = next((line for line in lines if re.search(r"rror|ptrace|denied|permitted", line)), None)
    return (wanted or (lines[-1] if lines else f"{tool} says nothing"))[:200]


def _added(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)
