"""The server does not serve yet: in which phase its start is, how far, how fast, and whether it moves at all."""

from collections.abc import Callable, Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.sections.startup import Startup, StartupPhase
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

_PATIENCE_NS = 60 * SECOND  # collectives that wait for another rank compute, those that wait for ever do not
_OVER_NS = 5 * SECOND
_LISTEN_EARLY = ("llama.cpp", "sglang")
_YOUNG_NS = 1800 * SECOND  # after that, 503 means something else

_DOES: dict[StartupPhase, str] = {
    "starting": "loading programs and libraries",
    "downloading": "downloading the model",
    "loading weights": "loading weights",
    "compiling": "compiling",
    "warming up": "warming up (profiling, KV cache, graphs)",
}


def check(window: Window) -> Iterator[Finding]:
    startup = _startup(window.now)
    if startup is None:
        yield from _not_ready(window)
        return
    if _serves(window.now):
        return  # where it listens may not be seen from here
    still_ns = window.now.mono_ns - startup.moved_ns
    stalled = still_ns > _PATIENCE_NS
    since = text.duration(window.now.mono_ns - startup.started_ns)
    state = f"and nothing has moved for {text.duration(still_ns)}" if stalled else progress(window, startup)
    yield Finding(
        cause="startup_stalled" if stalled else "starting_up",
        severity="stuck" if stalled else "note",
        confidence="likely" if stalled else "sure",
        summary=f"starting up for {since}: {_DOES[startup.phase]}, {state}",
        evidence=tuple(_evidence(window, startup)),
        next_step=f"py-spy dump --nonblocking --pid {startup.pid}" if stalled and startup.pid is not None else "",
        since_ns=startup.moved_ns if stalled else startup.started_ns,
    )


def _serves(now: Snapshot) -> bool:
    """It says so itself."""
    health = now.server.health if now.server is not None else None
    return health is not None and health.answer == "200"


def _not_ready(window: Window) -> Iterator[Finding]:
    """Of engines that listen before their model is there, and say so."""
    server = window.now.server
    if server is None or server.engine not in _LISTEN_EARLY or server.health is None or server.health.answer != "503":
        return
    since_ns = server.started_mono_ns
    if server.state != "alive" or since_ns is None or window.now.mono_ns - since_ns > _YOUNG_NS:
        return
    yield Finding(
        cause="starting_up",
        severity="note",
        confidence="likely",
        summary=f"starting up for {text.duration(window.now.mono_ns - since_ns)}: it listens and is not ready",
        evidence=(Evidence("server.health", "/health answers 503"),),
        since_ns=since_ns,
    )


def progress(window: Window, startup: Startup) -> str:
    """How far it is, how fast, what is left; of phases without a measure, who works."""
    if startup.phase == "loading weights" and startup.file is not None:
        return ", ".join(_loading(window, startup))
    who = f"in {_named(startup)}"
    cpus = _rate(window, lambda startup: startup.cpu_ns)
    return who if cpus is None else f"{who} at {cpus / 1e7:.0f} % cpu" if cpus >= 5e7 else f"{who}, which waits"


def _loading(window: Window, startup: Startup) -> Iterator[str]:
    loaded, total = startup.loaded_bytes, startup.weight_bytes
    by_position = loaded is not None
    rate = _rate(window, lambda startup: startup.loaded_bytes if by_position else startup.read_bytes)
    if loaded is not None and total is not None:
        yield f"{text.size(loaded)} of {text.size(total)}"
    elif total is not None:
        yield text.size(total)
    if startup.files is not None and startup.files > 1:
        yield f"file {(startup.files_done or 0) + 1} of {startup.files}"
    if rate:
        yield f"{text.size(rate)}/s" + ("" if by_position else " from disk")
        if loaded is not None and total is not None and total - loaded > rate:  # a second of it
            yield f"about {text.duration((total - loaded) / rate * 1e9)} left"


def _rate(window: Window, counter: Callable[[Startup], int | None]) -> float | None:
    """Per second, over the last looks that saw this phase."""
    seen: list[Snapshot] = []
    for snapshot in reversed(window.snapshots):
        then, now = _startup(snapshot), _startup(window.now)
        if then is None or now is None or then.phase != now.phase:
            break
        seen.append(snapshot)
    return Window(seen[::-1]).rate(
        lambda snapshot: counter(found) if (found := _startup(snapshot)) is not None else None, _OVER_NS, "processes"
    )


def _evidence(window: Window, startup: Startup) -> Iterator[Evidence]:
    yield Evidence("processes.startup", f"{startup.phase} for {text.duration(window.now.mono_ns - startup.since_ns)}")
    if startup.file is not None:
        yield Evidence("processes.startup.file", f"{_named(startup)} has {startup.file} open")


def _named(startup: Startup) -> str:
    """``worker 61``; one that has not said yet what it will be is ``new process 61``."""
    role = startup.role if startup.role not in (None, "starting") else "new process"
    return f"{role} {startup.pid}"


def _startup(snapshot: Snapshot) -> Startup | None:
    return snapshot.processes.startup if snapshot.processes is not None else None
