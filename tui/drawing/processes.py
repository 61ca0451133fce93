"""The processes behind a server in a table, and what the machine lets them wait for."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from inferdbg import text
from inferdbg.diagnosis.lately import stalled_share
from inferdbg.facts.sections.processes import Blocked, Process, Processes
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

from ..ink import Line, Piece, Span, dim, fit_text, flow, labelled, line, value
from .marks import mark

LATELY = 10 * SECOND
LABEL = 10
_WHO = 34
_INKS = {"D": "stuck", "T": "slow", "t": "slow", "Z": "stuck", "R": "ok"}


class Column(NamedTuple):
    head: str
    width: int
    cell: Callable[[Window, Process], Span | str]


def counter(pid: int, field: str) -> Callable[[Snapshot], int | None]:
    """A count of one process, as a Window wants to be asked for it."""

    def read(snapshot: Snapshot) -> int | None:
        items = snapshot.processes.items if snapshot.processes is not None else ()
        found = next((process for process in items if process.pid == pid), None)
        return getattr(found, field) if found is not None else None

    return read


def _rate(window: Window, process: Process, field: str) -> str:
    rate = window.rate(counter(process.pid, field), LATELY, "processes")
    return text.UNKNOWN if rate is None else text.short(round(rate))


def _cpu(window: Window, process: Process) -> str:
    rate = window.rate(counter(process.pid, "cpu_ns"), LATELY, "processes")
    return text.UNKNOWN if rate is None else f"{rate / 1e7:.0f} %"


def _files(window: Window, process: Process) -> Span:
    opened, limit = process.open_files, process.open_files_limit
    if opened is None:
        return Span(text.UNKNOWN, "dim")
    tight = limit is not None and opened > 0.8 * limit
    return Span(f"{opened}{f'/{text.short(limit)}' if limit is not None else ''}", "slow" if tight else "")


def _threads(window: Window, process: Process) -> str:
    running = f"{process.running}/" if process.running is not None else ""
    return f"{running}{process.threads}" if process.threads is not None else text.UNKNOWN


_COLUMNS = (
    Column("cpu", 7, _cpu),
    Column("rss", 9, lambda _, process: text.size(process.rss_bytes)),
    Column("run/thr", 8, _threads),
    Column("files", 9, _files),
    Column("shared", 9, lambda _, process: text.size(process.shared_bytes)),
    Column("swap", 9, lambda _, process: text.size(process.swap_bytes)),
    Column("faults/s", 9, lambda window, process: _rate(window, process, "major_faults")),
    Column("waits/s", 8, lambda window, process: _rate(window, process, "waits")),
    Column("taken/s", 8, lambda window, process: _rate(window, process, "preempted")),
    Column("oom", 5, lambda _, process: text.count(process.oom_score)),
)
"""The most telling first: as many as fit are shown."""


def table_lines(window: Window, processes: Processes, width: int) -> list[Line]:
    """A line for each process, children below and behind their parents; below it where its threads sleep for good."""
    columns = _fitting(width)
    head = [Span(fit_text(column.head, column.width, right=True), "label") for column in columns]
    who = fit_text(f" process{mark(processes.origin, window.now.mono_ns).text}", _WHO)
    lines = [line(Span(f"{who}   ", "label"), *head)]
    for depth, process in in_order(processes.items):
        name = f"{' ' * (2 * depth)} {text.safe(process.role or process.name, 24)} {process.pid}"
        rank = f" {text.safe(process.rank, 12)}" if process.rank is not None else ""
        state = process.state or text.UNKNOWN
        cells = [_right(column.cell(window, process), column.width) for column in columns]
        lines.append(line(fit_text(f"{name}{rank}", _WHO), Span(f" {state} ", _INKS.get(state, "")), *cells))
        lines += [(Span(" " * (2 * depth + 3)), Span(_asleep(thread, process), "slow")) for thread in process.blocked]
    return lines


def _fitting(width: int) -> list[Column]:
    found: list[Column] = []
    for column in _COLUMNS:
        if _WHO + 3 + sum(one.width for one in found) + column.width > width:
            break
        found.append(column)
    return found


def _right(cell: Span | str, width: int) -> Span:
    said = cell if isinstance(cell, Span) else Span(cell, "")
    return Span(fit_text(said.text, width, right=True), said.ink)


def _asleep(thread: Blocked, process: Process) -> str:
    who = "its first thread" if thread.native_id == process.pid else f"thread {text.safe(thread.name)}"
    where = " ← ".join(dict.fromkeys(filter(None, (thread.waits_in, *thread.kernel_stack[:3]))))
    return f"{who} sleeps uninterruptibly{f' in {text.safe(where)}' if where else ''}"


def in_order(items: Sequence[Process]) -> list[tuple[int, Process]]:
    """Each with how deep it lies below the first ones; a parent that is not shown is none."""
    known = {process.pid for process in items}
    below: dict[int | None, list[Process]] = {}
    for process in items:
        below.setdefault(
            process.parent if process.parent in known and process.parent != process.pid else None, []
        ).append(process)
    found: list[tuple[int, Process]] = []

    def place(parent: int | None, depth: int) -> None:
        for process in below.pop(parent, []):
            found.append((depth, process))
            place(process.pid, depth + 1)

    place(None, 0)
    while below:  # a damaged recording may have processes that are each other's parents
        place(next(iter(below)), 0)
    return found


def machine_lines(window: Window, processes: Processes, width: int) -> list[Line]:
    """What is left of the machine, what tasks waited for lately, and kills."""
    memory: list[Piece] = []
    if processes.memory_available_bytes is not None:
        memory.append(
            line(
                value(text.size(processes.memory_available_bytes)),
                dim(f" of {text.size(processes.memory_bytes)} available"),
            )
        )
    if processes.shm_bytes is not None and processes.shm_used_bytes is not None:
        full = processes.shm_used_bytes > 0.8 * processes.shm_bytes
        used = Span(text.size(processes.shm_used_bytes), "slow" if full else "value")
        memory.append(line(dim("/dev/shm "), used, dim(f" of {text.size(processes.shm_bytes)}")))
    if processes.oom_kills is not None:
        kills = Span(text.counted(processes.oom_kills, "OOM kill"), "stuck" if processes.oom_kills else "dim")
        memory.append(line(kills, dim(" in its group")))
    whose = "group" if processes.stalled_group else "machine"
    lines = labelled(" memory", flow(memory or [dim(text.UNKNOWN)], width - LABEL - 1, " · "), LABEL)
    lost = stalls(window, processes)
    return (
        lines
        + labelled(
            " waited",
            flow(
                [*lost, dim(f"of the last {text.duration(LATELY)}, by the {whose}'s tasks")], width - LABEL - 1, " · "
            ),
            LABEL,
        )
        if lost
        else lines
    )


def stalls(window: Window, processes: Processes) -> list[Piece]:
    """Of the last ten seconds, how much was lost for want of each resource."""
    found: list[Piece] = []
    for one in processes.stalled:
        some, full = (stalled_share(window, one.resource, full=full) for full in (False, True))
        if some is not None:
            all_of_them = f" (all {text.percent(full)})" if full is not None and full >= 0.005 else ""
            found.append(
                line(
                    dim(f"for {one.resource} "),
                    Span(text.percent(some), "slow" if some > 0.5 else "value"),
                    dim(all_of_them),
                )
            )
    return found
