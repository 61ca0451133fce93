"""What connects a server's processes, and where its threads stand."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.diagnosis.waits import Wait
from inferdbg.facts.sections.stacks import ProcessStacks, ThreadStack
from inferdbg.facts.sections.wiring import Wiring
from inferdbg.facts.snapshot import Snapshot

from ..ink import Line, Piece, Span, dim, fit_text, flow, labelled, line, value
from .marks import missing

LABEL = 10
_NAME = 24
_WAIT, _WIDE = 36, 110
_MOST_STRAYS = 3


def wiring_lines(snapshot: Snapshot, width: int) -> list[Line]:
    """Queues, threads that are gone, and requests that one side alone knows of."""
    wiring = snapshot.wiring
    if wiring is None:
        return labelled(" between", missing(snapshot, "wiring", width - LABEL - 1, "queues between threads"), LABEL)
    queues: list[Piece] = [
        line(dim(f"{queue.name} "), Span(text.count(queue.length), "slow" if queue.length else "value"))
        for queue in wiring.queues
    ]
    lines = labelled(" queues", flow(queues or [dim("none is seen")], width - LABEL - 1, " · "), LABEL)
    lines += labelled(" requests", flow(_sides(wiring), width - LABEL - 1, " · "), LABEL)
    for thread in wiring.dead_threads:
        since = text.duration(snapshot.mono_ns - thread.since_ns)
        gone = line(Span(f"{thread.name} is gone", "stuck"), dim(f" for {since}: it {thread.does}"))
        lines += labelled(" thread", [gone], LABEL)
    for stray in wiring.strays[:_MOST_STRAYS]:
        since = text.duration(snapshot.mono_ns - stray.since_ns)
        lone = line(fit_text(stray.id, _NAME), dim(f" only the {stray.known_by} knows, for {since}"))
        lines += labelled(" stray", [lone], LABEL)
    if len(wiring.strays) > _MOST_STRAYS:
        lines += labelled("", [(dim(f"and {len(wiring.strays) - _MOST_STRAYS} more"),)], LABEL)
    return lines


def _sides(wiring: Wiring) -> list[Piece]:
    front, engine = wiring.front_requests, wiring.engine_requests
    parts: list[Piece] = []
    if front is not None:
        parts.append(line(dim("front end waits for "), value(text.count(front))))
    if engine is not None:
        parts.append(line(dim("engine has "), value(text.count(engine))))
    return parts or [dim("neither side can be counted")]


def process_line(process: ProcessStacks) -> Line:
    """Heads the threads of a process."""
    count = text.counted(len(process.threads), "thread")
    said = f" {count}" if process.threads else f" not seen: {process.why}" if process.why else " no Python thread"
    why = f" · {process.why}" if process.threads and process.why else ""
    return line(" ", Span(f"{process.role or 'process'} {process.pid}", "label"), dim(f"{said}{why}"))


def thread_line(thread: ThreadStack, wait: Wait, width: int, *, selected: bool) -> Line:
    """One line: its name, whether it runs, what it waits for, and its calls, innermost first."""
    ink = "cursor" if selected else ""
    name = thread.name or f"thread {thread.native_id or text.UNKNOWN}"
    state = Span(fit_text(state_of(thread), 8), "ok" if thread.active else "dim")
    calls = " ← ".join(_place(call.function, call.file, call.line) for call in thread.calls[:8])
    said = _WAIT if width >= _WIDE else _WAIT // 2 + 4
    room = max(8, width - _NAME - said - 15)
    return line(
        Span(" ▶ " if selected else "   ", ink),
        Span(fit_text(name, _NAME), ink),
        " ",
        state,
        " ",
        fit_text(wait.said.removeprefix("waits for "), said),
        " ",
        dim(fit_text(calls, room)),
    )


def state_of(thread: ThreadStack) -> str:
    """In a word or two."""
    return "runs GIL" if thread.holds_gil else "runs" if thread.active else "waits"


def calls_lines(thread: ThreadStack, most: int) -> list[Line]:
    """A call a line, innermost first; the outermost is kept where there is no room for all."""
    calls = [line(value(call.function), dim(f"  {call.file}:{call.line or text.UNKNOWN}")) for call in thread.calls]
    if not calls:
        return [(dim("no Python call: it has not begun, or runs C alone"),)]
    if len(calls) <= most:
        return calls
    return [*calls[: most - 2], (dim(f"… {len(calls) - most + 1} calls more"),), calls[-1]]


def _place(function: str, file: str, number: int) -> str:
    short = file.rsplit("/", 1)[-1]
    return f"{function} {short}:{number}" if number else f"{function} {short}"


def all_threads(processes: Sequence[ProcessStacks]) -> list[tuple[ProcessStacks, ThreadStack]]:
    """In the order of their processes: the main thread first, then those that run, then those that wait."""
    found: list[tuple[ProcessStacks, ThreadStack]] = []
    for process in processes:
        ordered = sorted(process.threads, key=lambda thread: (thread.native_id != process.pid, not thread.active))
        found += [(process, thread) for thread in ordered]
    return found
