"""Stacks as text that a person reads: the finding first, then what tells most, idle threads in one line."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from inferdbg import text
from inferdbg.diagnosis.finding import Finding
from inferdbg.diagnosis.folding import Fold
from inferdbg.facts.sections.stacks import Call, ProcessStacks

_CALLS = 10
_NAMED = 8


def stack_lines(
    processes: Sequence[ProcessStacks], groups: Sequence[Fold], findings: Sequence[Finding], width: int
) -> list[str]:
    """At most ``width`` columns each, as far as words can be broken."""
    lines = list(_taken(processes, width))
    for finding in findings:
        lines += ["", *_wrapped(f"! {finding.summary} ({finding.confidence})", width, "  ")]
        if finding.next_step:
            lines += _wrapped(f"  next: {finding.next_step}", width, "    ")
    for group in groups:
        if not group.is_idle:
            lines += ["", *_group(group, width)]
    idle = [group for group in groups if group.is_idle]
    if idle:
        lines += ["", *_idle(idle, width)]
    lines += _unseen(processes, width)
    return lines


def _taken(processes: Sequence[ProcessStacks], width: int) -> Iterator[str]:
    """How they were read, and what that cost the target."""
    tools = Counter(one.tool for one in processes if one.tool)
    by = ", ".join(tool if count == len(processes) else f"{tool} ({count})" for tool, count in tools.most_common())
    pauses = [one for one in processes if one.paused_ns is not None]
    if pauses:
        worst = max(pauses, key=lambda one: one.paused_ns or 0)
        cost = f"stopped for it: {_processes(len(pauses))}"
        cost += f", the longest {text.duration(worst.paused_ns)} ({_title(worst)})"
    else:
        cost = "no stop was seen"
    yield from _wrapped(f"{_processes(len(processes))} by {by or 'nothing'}; {cost}", width, "  ")


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _group(group: Fold, width: int) -> Iterator[str]:
    yield from _wrapped(_head(group), width, "  ")
    moved = group.seats[0].moved
    said = group.wait.said + (f"; {moved.said}" if moved is not None else "")
    yield from _wrapped(f"  {said}", width, "    ")
    calls = group.calls
    if not calls:
        kernel = group.seats[0].thread.kernel_calls
        yield from (f"    in the kernel: {one}" for one in kernel)
        return
    shown = calls if len(calls) <= _CALLS + 1 else calls[:_CALLS]
    column = min(max(len(call.function) for call in shown), max(12, width // 2 - 8))
    room = width - column - 6
    for call in shown:
        place = _place(call)
        ending = place if len(place) <= room else f"…{place[1 - room :]}"
        yield f"    {_cut(call.function, column):<{column}}  {ending}"
    if len(shown) < len(calls):
        yield f"    … {text.counted(len(calls) - len(shown), 'call')} more, the outermost {calls[-1].function}"


def _head(group: Fold) -> str:
    """``worker 61 (TP1) · MainThread``; of several ``3 ranks, 3 threads: 0 (4001), 1 (4002) … · MainThread``."""
    names = Counter(seat.thread.name or f"thread {seat.thread.native_id}" for seat in group.seats)
    threads = ", ".join(
        name if count == 1 or len(names) == 1 else f"{name} ×{count}" for name, count in names.most_common(3)
    )
    threads += " …" if len(names) > 3 else ""
    processes = group.processes
    if len(processes) == 1:
        count = f", {len(group.seats)} threads" if len(group.seats) > 1 else ""
        return f"{_title(processes[0])}{count} · {threads}"
    ranked = all(one.rank is not None for one in processes)
    listed = ", ".join(f"{one.rank} ({one.pid})" if ranked else _title(one) for one in processes[:_NAMED])
    listed += " …" if len(processes) > _NAMED else ""
    what = f"{len(processes)} {'ranks' if ranked else 'processes'}, {len(group.seats)} threads"
    return f"{what}: {listed} · {threads}"


def _title(one: ProcessStacks) -> str:
    """``worker 61 (TP1)``, ``rank 2 (4003)``."""
    if one.role is None and one.rank is not None:
        return f"rank {one.rank} ({one.pid})"
    return f"{one.role or 'process'} {one.pid}" + (f" ({one.rank})" if one.rank is not None else "")


def _idle(groups: Sequence[Fold], width: int) -> list[str]:
    """``idle, 14 threads, wait for: 8 × work (thread pool), …``"""
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.wait.said.removeprefix("waits for ")] += len(group.seats)
    parts = ", ".join(f"{count} × {what}" for what, count in counts.most_common())
    return _wrapped(f"idle, {text.counted(sum(counts.values()), 'thread')}, wait for: {parts}", width, "  ")


def _unseen(processes: Sequence[ProcessStacks], width: int) -> list[str]:
    """Why not more, and what to type: once where it is the same for many."""
    said: dict[tuple[str, str, str], list[ProcessStacks]] = {}
    for one in processes:
        for refusal in one.refusals:
            cure = refusal.cure.replace(str(one.pid), "PID")
            said.setdefault((refusal.tool, refusal.why.replace(str(one.pid), "PID"), cure), []).append(one)
        if one.why and not one.refusals:
            said.setdefault(("", one.why, ""), []).append(one)
    lines: list[str] = []
    for (tool, why, cure), ones in said.items():
        whom = ", ".join(_title(one) for one in ones[:3]) + (" …" if len(ones) > 3 else "")
        pid = str(ones[0].pid)
        lines += ["", *_wrapped(f"{whom}: {tool + ': ' if tool else ''}{why.replace('PID', pid)}", width, "  ")]
        if cure:
            lines += _wrapped(f"  {cure.replace('PID', pid)}", width, "    ")
    return lines


def _place(call: Call) -> str:
    return f"{call.file}:{call.line}" if call.line else call.file


def _wrapped(words: str, width: int, indent: str) -> list[str]:
    lead = words[: len(words) - len(words.lstrip())]
    return textwrap.wrap(words.strip(), width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)


def _cut(words: str, width: int) -> str:
    return words if len(words) <= width else words[: width - 1] + "…"
