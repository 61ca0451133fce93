"""GPUs: what they do, what holds them back, what their links carry, how healthy they are and who uses them."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.sections.gpus import HURTING, Activity, Gpu, MemoryHealth, MigInstance
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Counter, Window

from ..ink import Line, Piece, Span, crop, dim, flow, labelled, line, paragraph, stacked_bar, value
from .marks import mark, missing, reports_of

LABEL = 10
_LATELY = 10 * SECOND
_WORKS = 0.05
"""A GPU that is busy for a smaller share of time rests: its clocks and links are low to save power."""
_MOST_PROCESSES = 8


def gpus_lines(window: Window, width: int) -> list[Line]:
    """A head, then a block a GPU."""
    gpus = window.now.gpus
    if gpus is None:
        return labelled(" gpus", missing(window.now, "gpus", width - LABEL - 1, "GPUs"), LABEL)
    head: list[Piece] = [value(text.counted(len(gpus.items), "GPU"))]
    head += [line(dim("driver "), gpus.driver)] if gpus.driver else []
    head += [line(dim("runs CUDA up to "), gpus.cuda)] if gpus.cuda else []
    lines = labelled(" gpus", flow(head, width - LABEL - 1, " · "), LABEL)
    lines[0] = line(lines[0], mark(gpus.origin, window.now.mono_ns))
    for gpu in gpus.items:
        lines += [(), *_block(window, gpu, width)]
    return [crop(one, width) for one in lines]


def gpu_part(window: Window) -> list[Piece]:
    """The GPUs that the server uses in a piece of a line; ``gpu - (no NVML)`` where none can be seen."""
    gpus = window.now.gpus
    if gpus is None:
        statuses = [report.status for report in reports_of(window.now, "gpus")]
        why = {"absent": "no NVML", "ok": "no GPU"}
        return [dim(f"gpu - ({why.get(statuses[0], statuses[0])})")] if statuses else []
    used = gpus.used_by(_roles(window.now))
    well = [gpu for gpu in used if gpu.state == "ok"]
    busy = [gpu.busy for gpu in well if gpu.busy is not None]
    heat = [gpu.temperature_c for gpu in well if gpu.temperature_c is not None]
    parts: list[Piece] = [dim(f"{len(used)} gpus" if len(used) > 1 else "gpu")]
    if busy:
        low, high = text.percent(min(busy)), text.percent(max(busy))
        parts.append(line(" ", value(high if low == high else f"{low.removesuffix(' %')}-{high}"), dim(" busy")))
    if any(gpu.memory_total_bytes for gpu in well):
        held, total = (sum(getattr(gpu, f"memory_{of}_bytes") or 0 for gpu in well) for of in ("used", "total"))
        parts.append(line(" ", value(text.size(held)), dim(f" of {text.size(total)}")))
    if heat:
        parts.append(line(f" {max(heat)}", dim(" °C")))
    hurting = sorted({word for gpu in well for word in gpu.throttle or () if word in HURTING})
    parts += [Span(f" {', '.join(hurting)}", "slow")] if hurting else []
    parts += [Span(f" GPU {gpu.index} {gpu.state}", "stuck") for gpu in used if gpu.state != "ok"]
    return [line(*parts, mark(gpus.origin, window.now.mono_ns))]


def _block(window: Window, gpu: Gpu, width: int) -> list[Line]:
    name = line(value(gpu.name or "unknown GPU"), dim(f"  {gpu.bus}" if gpu.bus else ""))
    lines = labelled(f" GPU {gpu.index}", [name], LABEL, "accent")
    room = width - LABEL - 1
    if gpu.state != "ok":
        lines += labelled(f" {gpu.state}", paragraph(gpu.why, room, "stuck"), max(LABEL, len(gpu.state) + 2), "stuck")
        return lines + labelled(" health", flow(_xids(window, gpu), room, " · "), LABEL)
    bar = max(10, min(40, width // 4 - 8))
    rows: Sequence[tuple[str, list[Piece]]] = (
        ("busy", _work(gpu, bar)),
        ("DRAM", _dram(gpu, bar)),
        ("memory", _memory(gpu, bar)),
        *((f"MIG {one.gpu_instance}", _mig(one)) for one in gpu.mig or ()),
        ("clocks", _clocks(gpu)),
        ("power", _power(gpu)),
        ("PCIe", _pcie(gpu)),
        ("NVLink", _nvlinks(window, gpu)),
        ("health", [*_health(gpu), *_xids(window, gpu)]),
        ("used by", _users(window.now, gpu)),
    )
    for label, parts in rows:
        lines += labelled(f" {label}", flow(parts, room, " · "), LABEL) if parts else []
    return lines


def _works(gpu: Gpu) -> bool:
    """Also where that is not known."""
    return gpu.busy is None or gpu.busy >= _WORKS


def _bar(share: float, width: int, ink: str) -> Line:
    return line(*stacked_bar([(share, "█", ink), (max(0.0, 1 - share), "░", "free")], 1.0, width), " ")


def _work(gpu: Gpu, bar: int) -> list[Piece]:
    parts: list[Piece] = []
    if gpu.busy is not None:
        parts.append(line(_bar(gpu.busy, bar, "used"), value(text.percent(gpu.busy)), dim(" of time a kernel ran")))
    return parts + _engines(gpu.activity)


def _engines(activity: Activity | None) -> list[Piece]:
    """What GPM saw of SMs and tensor cores."""
    if activity is None:
        return []
    shares = (("SMs ", activity.sm), ("tensor ", activity.tensor))
    return [line(dim(name), text.percent(share)) for name, share in shares if share is not None]


def _dram(gpu: Gpu, bar: int) -> list[Piece]:
    """Measured bytes a second; without GPM how often memory was in use, which says nothing of bytes."""
    share, moved = gpu.activity.dram if gpu.activity is not None else None, gpu.dram_bytes_per_s
    if share is not None:
        of = f" of {_rate(gpu.dram_peak_bytes_per_s)}"
        said = line(value(_rate(moved)), dim(of)) if moved is not None else value(text.percent(share))
        return [line(_bar(share, bar, "used"), said, dim(", measured"))]
    if gpu.memory_busy is None:
        return []
    return [
        line(value(text.percent(gpu.memory_busy)), dim(" of time the memory controller was busy")),
        dim("bytes are not measured"),
    ]


def _memory(gpu: Gpu, bar: int) -> list[Piece]:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return []
    share = gpu.memory_used_bytes / gpu.memory_total_bytes
    used = line(value(text.size(gpu.memory_used_bytes)), dim(f" of {text.size(gpu.memory_total_bytes)}"))
    parts: list[Piece] = [line(_bar(share, bar, "used"), used)]
    parts += [line(text.size(gpu.memory_free_bytes), dim(" free"))] if gpu.memory_free_bytes is not None else []
    if gpu.memory_reserved_bytes is not None:
        parts.append(line(text.size(gpu.memory_reserved_bytes), dim(" reserved")))
    return parts


def _mig(part: MigInstance) -> list[Piece]:
    name = (part.name or "").rpartition("MIG ")[2] or part.uuid
    parts: list[Piece] = [value(name)]
    if part.memory_used_bytes is not None:
        parts.append(line(text.size(part.memory_used_bytes), dim(f" of {text.size(part.memory_total_bytes)}")))
    if part.activity is not None and part.activity.dram is not None:
        parts.append(line(dim("DRAM "), text.percent(part.activity.dram), dim(" of its peak")))
    return parts + _engines(part.activity)


def _clocks(gpu: Gpu) -> list[Piece]:
    parts: list[Piece] = []
    for name, now, most in (
        ("SM ", gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        ("memory ", gpu.memory_clock_mhz, gpu.memory_clock_max_mhz),
    ):
        if now is not None:
            parts.append(line(dim(name), text.count(now), dim(f"/{text.count(most)} MHz" if most else " MHz")))
    words = [Span(word, "stuck" if word in HURTING else "value") for word in gpu.throttle or ()]
    if words:
        parts.append(line(dim("held back by "), *flow(words, 1000, ", ")))
    elif gpu.throttle is not None:
        parts.append(dim("held back by nothing" if _works(gpu) else "it rests"))
    return parts


def _power(gpu: Gpu) -> list[Piece]:
    parts: list[Piece] = []
    if gpu.power_mw is not None:
        of = f" of {gpu.power_limit_mw / 1000:.0f}" if gpu.power_limit_mw is not None else ""
        parts.append(line(f"{gpu.power_mw / 1000:.0f}", dim(f"{of} W")))
    if gpu.temperature_c is not None:
        close = gpu.slowdown_c is not None and gpu.temperature_c >= gpu.slowdown_c - 5
        slows = f" °C, slows down at {gpu.slowdown_c}" if gpu.slowdown_c is not None else " °C"
        parts.append(line(Span(f"{gpu.temperature_c}", "slow" if close else ""), dim(slows)))
    if gpu.persistence is not None:
        parts.append(dim("persistence mode on") if gpu.persistence else line(dim("persistence mode "), "off"))
    return parts


def _pcie(gpu: Gpu) -> list[Piece]:
    pcie, activity = gpu.pcie, gpu.activity if gpu.activity is not None else Activity(0)
    if pcie is None or pcie.generation is None:
        return []
    generation = _below(pcie.generation, pcie.generation_max, "gen ", counts=_works(gpu))
    got = pcie.rx_bytes_per_s if activity.pcie_rx_bytes_per_s is None else activity.pcie_rx_bytes_per_s
    sent = pcie.tx_bytes_per_s if activity.pcie_tx_bytes_per_s is None else activity.pcie_tx_bytes_per_s
    return [
        line(generation, " ", _below(pcie.width, pcie.width_max, "x", counts=True)),
        *_traffic(got, sent),
        *([dim(text.counted(pcie.replays_total, "replay"))] if pcie.replays_total else []),
    ]


def _nvlinks(window: Window, gpu: Gpu) -> list[Piece]:
    links = gpu.nvlinks
    if links is None:
        return []
    got, sent = (
        window.rate(_nvlink(gpu.index, f"{way}_bytes_total"), _LATELY, "gpus", wraps_at=links.wraps_at_bytes)
        for way in ("rx", "tx")
    )
    down = 0 < links.up < links.links  # where none is up there is no bridge
    return [line(Span(f"{links.up} of {links.links}", "slow" if down else ""), dim(" up")), *_traffic(got, sent)]


def _below(now: int | None, most: int | None, name: str, *, counts: bool) -> Line:
    """``gen 5``; where more is possible ``gen 3 of 5``, coloured when that ``counts``."""
    if now is None or most is None or now >= most:
        return (Span(f"{name}{text.UNKNOWN if now is None else now}"),)
    return (Span(f"{name}{now}", "slow" if counts else ""), dim(f" of {most}{'' if counts else ' (idle)'}"))


def _traffic(got: float | None, sent: float | None) -> list[Piece]:
    if got is None or sent is None:
        return []
    return [line(dim("in "), _rate(got), dim(" out "), _rate(sent))]


def _health(gpu: Gpu) -> list[Piece]:
    health = gpu.health if gpu.health is not None else MemoryHealth()
    parts: list[Piece] = []
    if health.uncorrected_total is None:
        parts.append(dim("no ECC"))
    else:
        bad = Span(text.count(health.uncorrected_total), "stuck" if health.uncorrected_total else "")
        parts.append(
            line(dim("ECC errors "), text.count(health.corrected_total), dim(" corrected, "), bad, dim(" not"))
        )
    for count, noun, done in ((health.remapped_rows, "row", "remapped"), (health.retired_pages, "page", "retired")):
        if count is not None:
            parts.append(Span(f"{text.counted(count, noun)} {done}", "slow" if count else "dim"))
    parts += [Span("waits for a reset", "stuck")] if health.pending else []
    parts += [Span("no spare row was left", "stuck")] if health.failed else []
    return parts


def _xids(window: Window, gpu: Gpu) -> list[Piece]:
    """The last ones; that there was none only since we look."""
    if not gpu.xids:
        return [dim("no Xid seen")] if gpu.state == "ok" else []
    return [
        line(Span(f"Xid {xid.code}", "stuck"), dim(f" {text.duration(window.now.mono_ns - xid.mono_ns)} ago"))
        for xid in gpu.xids[-4:]
    ]


def _users(snapshot: Snapshot, gpu: Gpu) -> list[Piece]:
    if gpu.processes is None:
        return [dim("hidden from us")]
    roles = _roles(snapshot)
    parts: list[Piece] = []
    for process in sorted(gpu.processes, key=lambda one: (one.pid not in roles, -(one.used_bytes or 0))):
        ours = process.pid in roles
        who = value(f"{roles[process.pid]} ") if ours else dim("pid ")
        kind = " graphics" if process.kind == "graphics" else ""
        kind += f" MIG {process.gpu_instance}" if process.gpu_instance is not None else ""
        held = f" {text.size(process.used_bytes)}" if process.used_bytes is not None else ""
        parts.append(line(who, dim(str(process.pid)), held, dim(f"{kind}{'' if ours else ', not of this server'}")))
    more = len(parts) - _MOST_PROCESSES
    return [*parts[:_MOST_PROCESSES], *([dim(f"{more} more")] if more > 0 else [])] or [dim("nobody")]


def _roles(snapshot: Snapshot) -> dict[int, str]:
    items = snapshot.processes.items if snapshot.processes is not None else ()
    return {process.pid: text.safe(process.role or process.name, 24) for process in items}


def _nvlink(index: int, field: str) -> Counter:
    def read(snapshot: Snapshot) -> int | None:
        gpus = snapshot.gpus.items if snapshot.gpus is not None else ()
        links = next((gpu.nvlinks for gpu in gpus if gpu.index == index), None)
        found: int | None = getattr(links, field) if links is not None else None
        return found

    return read


def _rate(per_second: float | None) -> str:
    """``2.4 TB/s``: in powers of 1000, as data sheets have it."""
    digits = text.short(per_second)
    prefix = digits[-1] if digits[-1].isalpha() else ""
    return f"{digits.removesuffix(prefix)} {prefix}B/s"
