"""Says what each thread waits for, or does, from its calls and from what the kernel says of it."""

from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from inferdbg.diagnosis.wait_table import (
    KERNEL,
    NATIVE,
    NATIVE_THREADS,
    PLAIN,
    PYTHON,
    TRANSPARENT,
    WORK,
    Kind,
    Row,
)
from inferdbg.facts.sections.stacks import Call, ProcessStacks, ThreadStack

_DOES: frozenset[Kind] = frozenset(
    {"sleep", "compile", "import", "load", "stopped", "kernel", "python", "native", "unknown"}
)
"""Kinds whose words are a sentence already."""


class Wait(Struct, frozen=True, omit_defaults=True):
    """``words``: what it waits for, or does. ``idle``: its waiting tells nothing of the server. ``collective``: the one
    that it stands in, as far as its calls name it; ranks that stand in the same one wait for each other."""

    kind: Kind
    words: str
    idle: bool = False
    collective: str | None = None

    @property
    def said(self) -> str:
        """``waits for requests``, ``sleeps``."""
        return self.words if self.kind in _DOES else f"waits for {self.words}"


def waits_of(process: ProcessStacks) -> tuple[Wait, ...]:
    """One a thread, in their order."""
    holder = next((thread.name for thread in process.threads if thread.holds_gil), None)
    backend = _backend(process)
    return tuple(_wait(thread, holder, backend) for thread in process.threads)


def _backend(process: ProcessStacks) -> str | None:
    """What carries collectives, where its threads leave no choice."""
    names = [thread.name for thread in process.threads]
    found = {"gloo" for name in names if "gloo" in name} | {
        "NCCL" for name in names if name.startswith(("NCCL ", "pt_nccl_"))
    }
    return found.pop() if len(found) == 1 else None


@lru_cache(maxsize=4096)
def _wait(thread: ThreadStack, holder: str | None, backend: str | None) -> Wait:
    if thread.state in ("T", "t"):
        return Wait("stopped", "is stopped by a signal" if thread.state == "T" else "is held by a debugger")
    if thread.state in ("Z", "X"):
        return Wait("stopped", "has ended")
    if thread.state == "D":
        row = _in_kernel(thread.kernel_wait)
        place = thread.kernel_wait or "the kernel"
        said = f": {row.words}" if row is not None and row.kind not in _DOES else ""
        return Wait("kernel", f"hangs in {place}{said} (state D: no signal reaches it)")
    found = _by_calls(thread)
    work = next((row for call in thread.calls if (row := _row_of(call, _WORK)) is not None), None)
    if work is not None and (found is None or found.kind != "collective"):
        inside = f", waits for {found.words}" if found is not None and found.kind not in _DOES else ""
        return Wait(work.kind, work.words + inside)
    if found is not None:
        if found.kind == "collective" and backend is not None and "(" not in found.words:
            return Wait(found.kind, f"{found.words} ({backend})", collective=found.collective)
        if found.kind == "gil" and holder is not None:
            return Wait("gil", f"the GIL, which {holder} holds")
        return found
    return _by_kernel(thread, holder)


def _by_kernel(thread: ThreadStack, holder: str | None) -> Wait:
    """Where no call tells."""
    place = thread.calls[0].function if thread.calls else None
    if thread.holds_gil:
        return Wait("python", f"runs Python: {place}" if place is not None else "holds the GIL")
    if thread.active or thread.state == "R":
        native = thread.calls[0].native if thread.calls else place is None
        if native:
            return Wait("native", f"runs native code: {place}" if place is not None else "runs native code")
        return Wait("native", f"runs {place}, without the GIL: native code that it calls, or its turn is to come")
    if not thread.calls:
        named = next((words for start, words in NATIVE_THREADS if thread.name.startswith(start)), None)
        if named is not None:
            return Wait("pool", named, idle=True)
    row = _in_kernel(thread.kernel_wait)
    if row is None:
        within = f"waits in {place}" if place is not None else "waits"
        where = f" (in the kernel: {thread.kernel_wait})" if thread.kernel_wait is not None else ""
        return Wait("unknown", f"{within}, for what cannot be told{where}", idle=not thread.calls)
    if row.kind == "lock" and thread.calls and holder is not None:
        doubt = "" if thread.timed else ", or a lock in native code"
        return Wait("gil", f"the GIL, which {holder} holds{doubt}")
    return Wait(row.kind, row.words, idle=not thread.calls)


def _by_calls(thread: ThreadStack) -> Wait | None:
    """Climbs from the innermost call outwards as long as calls are known; the last one that explains more wins."""
    found: Row | None = None
    words = ""
    for at, call in enumerate(thread.calls):
        row = _row_of(call, _NATIVE if call.native else _PYTHON)
        if row is None:
            if _is_transparent(call) or (call.native and not (thread.active and found is None)):
                continue
            break
        if found is None and (row.caller or (row.asleep and thread.active and at == 0)):
            break
        if found is not None and not _explains(row, found):
            continue
        found, words = row, row.words.format(function=_bare(call))
    if found is None:
        return None
    collective = words if found.kind == "collective" else None
    return Wait(found.kind, words, found.idle, collective)


def _explains(row: Row, found: Row) -> bool:
    """Whether a call further out says more than the one inside it: what GPU work is waited for, say."""
    return found.kind in PLAIN or row.kind == found.kind or (found.kind == "gpu" and row.kind == "collective")


def _is_transparent(call: Call) -> bool:
    return any(_bare(call) == function and _ends(call.file, file) for function, file in TRANSPARENT)


def _bare(call: Call) -> str:
    """Without its class, its templates and its arguments: ``MessageQueue.dequeue`` is ``dequeue``."""
    if call.native:
        return call.function.partition("(")[0].partition("<")[0].partition("@@")[0]
    return call.function.rpartition(".")[2]


def _ends(file: str, part: str) -> bool:
    return not part or file == part or file.endswith(f"/{part}")


class _Table(NamedTuple):
    """``named``: rows by a whole name; ``begins``: by how a name begins."""

    named: dict[str, list[Row]]
    begins: tuple[tuple[str, Row], ...]


def _table(rows: tuple[Row, ...]) -> _Table:
    named: dict[str, list[Row]] = {}
    begins: list[tuple[str, Row]] = []
    for row in rows:
        for name in row.functions.split():
            if name.endswith("*"):
                begins.append((name[:-1], row))
            else:
                named.setdefault(name, []).append(row)
    return _Table(named, tuple(begins))


_PYTHON, _NATIVE, _WORK = _table(PYTHON), _table(NATIVE), _table(WORK)


def _row_of(call: Call, table: _Table) -> Row | None:
    for row in table.named.get(_bare(call), ()):
        if _ends(call.file, row.file):
            return row
    return next((row for start, row in table.begins if call.function.startswith(start)), None)


def _in_kernel(place: str | None) -> Row | None:
    if place is None:
        return None
    return next((Row("", "", kind, words) for start, kind, words in KERNEL if place.startswith(start)), None)
