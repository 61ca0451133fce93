"""What the kernels achieve, and what the processes take of the machine."""

from inferdbg import text
from inferdbg.facts.sections.kernel_log import KernelLog
from inferdbg.facts.sections.kernels import Kernel
from inferdbg.facts.sections.processes import Process
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

from ..ink import Line, Piece, Span, dim, flow, line, value
from .gpus import gpu_part
from .marks import age, mark, missing
from .processes import LATELY, counter


def kernel_lines(window: Window, width: int, most: int = 4) -> list[Line]:
    """Work per second of the kernels that took most of the last 10 s: modelled work over measured time."""
    kernels = window.now.kernels
    if kernels is None:
        return missing(window.now, "kernels", width, "kernel times")
    past = window.past(LATELY)
    before = {kernel.name: kernel for kernel in past.kernels.items} if past.kernels is not None else {}
    grown = [(kernel, _since(kernel, before.get(kernel.name))) for kernel in kernels.items]
    busy = sorted((pair for pair in grown if pair[1].busy_ns > 0), key=lambda pair: -pair[1].busy_ns)
    elapsed_ns = max(window.now.mono_ns - past.mono_ns, sum(rise.busy_ns for _, rise in busy))  # of steps begun before
    if not busy or window.now is past:
        return [(dim("no kernel ran lately"),)]
    stale = window.now.mono_ns - kernels.origin.mono_ns
    old = Span(f" {age(stale)}" if stale > 2 * SECOND else "", "dim")
    return flow([_kernel(kernel.name, rise, elapsed_ns, old) for kernel, rise in busy[:most]], width, " · ")


def _kernel(name: str, rise: Kernel, elapsed_ns: int, old: Span) -> Line:
    parts: list[Piece] = [
        f"{text.safe(name)} ",
        value(text.percent(min(1.0, rise.busy_ns / elapsed_ns))),
        dim(" of time"),
    ]
    if rise.flops:
        parts.append(_rate(rise.flops / rise.busy_ns, "FLOP/s"))
    if rise.moved_bytes:
        parts.append(_rate(rise.moved_bytes / rise.busy_ns, "B/s"))
    return line(*parts, old)


def _rate(per_ns: float, unit: str) -> Line:
    """`` 467 GFLOP/s m``: per second, with the prefix at the unit."""
    digits = text.short(per_ns * 1e9)
    prefix = digits[-1] if digits[-1].isalpha() else ""
    return line(f" {digits.removesuffix(prefix)}", dim(f" {prefix}{unit} m"))


def _since(kernel: Kernel, earlier: Kernel | None) -> Kernel:
    if earlier is None or earlier.calls > kernel.calls:
        return kernel
    return Kernel(
        kernel.name,
        kernel.calls - earlier.calls,
        kernel.busy_ns - earlier.busy_ns,
        _less(kernel.flops, earlier.flops),
        _less(kernel.moved_bytes, earlier.moved_bytes),
    )


def _less(new: int | None, old: int | None) -> int | None:
    return None if new is None or old is None else new - old


def machine_lines(window: Window, width: int) -> list[Line]:
    """Processor, memory, GPUs, and threads, files and state of the processes behind the server."""
    processes = window.now.processes
    if processes is None:
        seen = window.now.gpus is not None
        return [
            *missing(window.now, "processes", width, "the processes"),
            *(flow(gpu_part(window), width) if seen else ()),
        ]
    items = processes.items
    found = mark(processes.origin, window.now.mono_ns)
    rates = [window.rate(counter(process.pid, "cpu_ns"), LATELY, "processes") for process in items]
    known = [rate for rate in rates if rate is not None]
    rss = [process.rss_bytes for process in items if process.rss_bytes is not None]
    parts: list[Piece] = []
    if known:
        limit = f" of {processes.cpus * 100}" if processes.cpus is not None else ""
        parts.append(line(dim("cpu "), value(f"{sum(known) / 1e7:.0f}"), dim(f"{limit} %"), found))
    if rss:
        parts.append(line(dim("rss "), value(text.size(sum(rss))), found))
    if processes.memory_available_bytes is not None:
        parts.append(
            line(
                dim("memory "),
                text.size(processes.memory_available_bytes),
                dim(f" of {text.size(processes.memory_bytes)} available"),
            )
        )
    if window.now.kernel_log is not None:
        parts.append(kernel_log_piece(window.now.kernel_log, window.now))
    parts += gpu_part(window)
    parts.extend(_process(process) for process in items)
    return flow(parts, width, " · ") if parts else [(dim("no process"),)]


def kernel_log_piece(log: KernelLog, now: Snapshot) -> Line:
    """Whether the kernel said anything since the server began, and what it said last."""
    began_ns = now.server.started_mono_ns if now.server is not None else None
    lately = [event for event in log.items if began_ns is None or event.mono_ns is None or event.mono_ns >= began_ns]
    if not lately:
        return line(dim("kernel log "), Span("quiet", "dim"))
    last = lately[-1]
    ago = f" {text.duration(max(0, now.mono_ns - last.mono_ns))} ago" if last.mono_ns is not None else ""
    who = f" of {last.process} {last.pid}" if last.pid is not None else f" {last.device}" if last.device else ""
    said = f"{last.kind}{f' {last.code}' if last.code is not None else ''}{text.safe(who, 40)}{ago}"
    more = f" and {len(lately) - 1} before" if len(lately) > 1 else ""
    return line(dim("kernel log "), Span(said, "slow"), dim(more))


def _process(process: Process) -> Line:
    state = process.state or text.UNKNOWN
    ink = {"D": "slow", "T": "slow", "Z": "stuck"}.get(state, "")
    parts: list[Piece] = [
        f"{text.safe(process.role or process.name, 24)} ",
        dim(f"{process.pid} "),
        Span(state, ink),
    ]
    if process.threads is not None:
        parts.append(line(f" {process.threads}", dim(" threads")))
    if process.open_files is not None:
        tight = process.open_files_limit is not None and process.open_files > 0.8 * process.open_files_limit
        limit = f"/{text.count(process.open_files_limit)}" if process.open_files_limit is not None else ""
        parts.append(line(Span(f" {process.open_files}{limit}", "slow" if tight else ""), dim(" files")))
    return line(*parts)
