"""`inferdbg top`: what runs here, live; with --demo a small engine under traffic to look at."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from inferdbg.cli import here, looking, naming, target
from inferdbg.cli.depth import Wanted
from inferdbg.cli.ending import interrupted_by_signals
from inferdbg.cli.options import example, force_option, interval_option, once_option, record_option, writer
from inferdbg.cli.output import Output
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.cli.naming import Engine
    from inferdbg.facts.source import Source
    from inferdbg.facts.window import Window

DIED_LATELY_NS = 3600 * 1_000_000_000
"""An engine that died since then is named beside those that live."""
DEMO_SERVE = ("--num-blocks", "160", "--max-running", "16", "--token-budget", "128")
"""Small enough that queues, evictions and preemptions can be seen."""
DEMO_LOAD = ("--mix", "demo")
DEMO_TOKENS = 40
"""Generated, before a snapshot of the demo says something."""
DEMO_PATIENCE_S = 120.0
DEMO_SECONDS = 4.0


@click.command(
    short_help="Look at what runs here, live:  inferdbg top --demo",
    epilog=example("inferdbg top", "inferdbg top --demo", "inferdbg top --record run.idbg"),
)
@click.option("--demo", is_flag=True, help="Start a small engine under traffic, show it, take it down at the end.")
@click.option("--model", help="With --demo: what to serve.  [default: SmolLM2-135M-Instruct]")
@click.option("--blackbox-dir", "folders", multiple=True, help="Look for engines in this folder, too.")
@once_option
@interval_option
@record_option
@force_option
@click.pass_obj
def command(
    out: Output,
    demo: bool,
    model: str | None,
    folders: tuple[str, ...],
    once: bool,
    interval_ns: int,
    record: str | None,
    force: bool,
) -> int:
    """Finds the servers of this machine (bundled engines, vLLM, SGLang, llama.cpp, ollama, TGI) and shows the busiest,
    live; the key e goes to the next one. With --once, and without a terminal, it prints one look and exits with
    0, whatever it sees. Exit code 4 when no engine runs here.
    """
    if model is not None and not demo:
        raise click.UsageError("--model says what --demo serves: give both")
    interrupted_by_signals()
    keep = partial(writer, record, force=force)
    if demo:
        return _demo(out, model, interval_ns, keep, once=once)
    found = here.discovered(folders)
    living = here.living(found)
    if not living:
        raise here.nothing_found(found)
    chosen = max(living, key=_load) if len(living) > 1 else living[0]
    for other in living:
        if other is not chosen:
            out.say(f"also here: {naming.line_of(other)}   inferdbg attach {naming.handle_of(other)}")
    for server in found.servers:
        if server.orphaned:
            out.say(f"also here: {naming.line_of(server)}")
    for engine in found.engines:
        if engine.state == "dead" and engine.age_ns < DIED_LATELY_NS:
            out.say(f"died lately: {naming.line_of(engine)}   inferdbg attach {engine.box_path}")
    for box in found.broken:
        out.say(f"also here: {box.why}")
    while True:
        several = len(living) > 1 and record is None  # a recording is of one
        place = f"{living.index(chosen) + 1}/{len(living)}" if several else ""
        if not _show(out, chosen, interval_ns, keep, place=place, once=once):
            return Exit.FINE
        found = here.discovered(folders)
        living = here.living(found)
        if not living:
            raise here.nothing_found(found)
        chosen = _after(chosen, living)


def _demo(out: Output, model: str | None, interval_ns: int, keep: "target.Record", *, once: bool) -> int:
    from inferdbg.cli.demo import Demo

    out.progress("starting a small engine …")
    with Demo((*([model] if model else []), *DEMO_SERVE), DEMO_LOAD) as serving:
        out.say(f"demo: {serving.model} at {serving.url}, pid {serving.pid}")
        if serving.box is None:
            raise InferdbgError("the demo's engine keeps no black box")
        _show(out, target.engine_of(serving.box), interval_ns, keep, ready=_flows, once=once)
    return Exit.FINE


def _show(
    out: Output,
    engine: "Engine",
    interval_ns: int,
    keep: "target.Record",
    ready: "Callable[[Window], bool]" = looking.has_answered,
    place: str = "",
    *,
    once: bool,
) -> bool:
    """On the screen, where there is one: then True when the person wants to see the next one."""
    depth = target.depth_in_use(engine)
    for words in depth.words if depth is not None else ():
        out.say(words)
    with contextlib.closing(target.engine_source(engine, keep())) as source:
        if out.has_screen and not once:
            return looking.on_screen(source, interval_ns, place=place, recorded=source.recording is not None)
        _until(ready, source, interval_ns)
        looking.as_text(out, source)
    return False


def _until(ready: "Callable[[Window], bool]", source: "Source", interval_ns: int) -> None:
    """Looks until there is something to see, or patience ends."""
    deadline = time.monotonic() + DEMO_PATIENCE_S
    while True:
        source.advance()
        if ready(source.window()) or time.monotonic() > deadline:
            return
        time.sleep(interval_ns / 1e9)


def _flows(window: "Window") -> bool:
    """Tokens come and rates can be told; or the engine is gone, and waiting is no use."""
    now = window.now
    if now.server is not None and now.server.state != "alive":
        return True
    generated = now.scheduler.generated_tokens_total if now.scheduler is not None else None
    return (generated or 0) >= DEMO_TOKENS and window.span_ns >= DEMO_SECONDS * 1e9


def _after(engine: "Engine", living: "list[Engine]") -> "Engine":
    """The next one in the list, the first after the last, or when this one is gone."""
    handles = [naming.handle_of(one) for one in living]
    here_at = handles.index(naming.handle_of(engine)) if naming.handle_of(engine) in handles else -1
    return living[(here_at + 1) % len(living)]


def _load(engine: "Engine") -> tuple[int, int]:
    """Requests in it, and how long ago it started: the youngest of equals."""
    cheapest = Wanted("reported") if engine.box_path is None else target.DEEPEST
    with contextlib.closing(target.brief_source(engine, cheapest)) as source:
        source.advance()
        scheduler = source.window().now.scheduler
    busy = (scheduler.running or 0) + (scheduler.waiting or 0) if scheduler is not None else 0
    return busy, -engine.age_ns
