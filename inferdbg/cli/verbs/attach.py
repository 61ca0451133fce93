"""`inferdbg attach`: one engine, living or dead, on the screen or as one look."""

import contextlib
from typing import TYPE_CHECKING

import click

from inferdbg.cli import looking, target
from inferdbg.cli.depth import Wanted
from inferdbg.cli.ending import interrupted_by_signals
from inferdbg.cli.options import (
    depth_options,
    example,
    force_option,
    interval_option,
    json_option,
    look_options,
    record_option,
    writer,
)
from inferdbg.cli.output import Output
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.facts.source import Source


@click.command(
    short_help="Look at one server:  inferdbg attach 58",
    epilog=example(
        "inferdbg attach 58",
        "inferdbg attach http://127.0.0.1:8000 --once",
        "inferdbg attach 58 --depth reported",
        "inferdbg attach 58 --json | jq .findings",
        "inferdbg attach 58 --object 'scheduler.running[0]'",
        "inferdbg attach core.58 --once",
    ),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@depth_options
@look_options
@json_option
@interval_option
@click.option(
    "--object",
    "object_path",
    metavar="PATH",
    help="Print an object of the process instead: a variable of any call in it, or an attribute of its self.",
)
@record_option
@force_option
@click.pass_obj
def command(
    out: Output,
    target_name: str | None,
    wanted: Wanted,
    once: bool,
    blocks: bool,
    as_json: bool,
    interval_ns: int,
    object_path: str | None,
    record: str | None,
    force: bool,
) -> int:
    """Looks at TARGET: any PID of a server, its URL (also on another machine), a black box, a recording, a core file of
    vLLM's engine core; without it the one server that runs here: the bundled engine, vLLM, SGLang, llama.cpp, ollama,
    TGI. A hung or dead one is seen as well. Nothing is generated, and nothing is asked that changes a server.

    --once and --json exit with 0 when all is well, 1 when something is wrong.
    """
    interrupted_by_signals()
    if object_path is not None:
        return _object(out, target_name, object_path, as_json=as_json)
    brief = as_json or once or not out.has_screen
    if record is not None and brief:
        raise InferdbgError("one look is not recorded", "inferdbg record keeps what is seen over a time", Exit.USAGE)
    with contextlib.closing(_source(out, target_name, wanted, record, force=force, brief=brief)) as source:
        if as_json:
            return looking.as_object(out, source, blocks=blocks)
        if brief:
            return looking.as_text(out, source)
        recorded = record is not None and not target.is_recording(target_name)
        looking.on_screen(source, interval_ns, recorded=recorded)
    return Exit.FINE


def _object(out: Output, target_name: str | None, path: str, *, as_json: bool) -> int:
    """Of the process that was named or, where nothing there is called so, of the server's engine cores."""
    from inferdbg.probes.pymem.path import NotCalled, object_lines

    refusals: list[InferdbgError] = []
    for place in _places(target_name):
        try:
            found = object_lines(place, path)
        except InferdbgError as error:
            refusals.append(error)
            continue
        if as_json:
            out.show_json({"pid" if isinstance(place, int) else "core": place, "path": path, "lines": found})
        else:
            out.show("\n".join(found))
        return Exit.FINE
    if not refusals:
        raise InferdbgError("an object is read from a process: name its PID", code=Exit.USAGE)
    raise next((one for one in refusals if not isinstance(one, NotCalled)), refusals[0])


def _places(target_name: str | None) -> list[int | str]:
    """The core file or the process that was named, then those where a server's engine runs."""
    if target_name is not None and target.is_core_file(target_name):
        return [target_name]
    named: list[int | str] = [int(target_name)] if target_name is not None and target_name.isdecimal() else []
    try:
        engine = target.engine_of(target_name)
    except InferdbgError:
        if not named:
            raise
        return named
    cores = getattr(engine, "core_pids", ())
    others = [*cores, *([engine.pid] if engine.pid is not None else [])]
    return list(dict.fromkeys([*named, *others]))


def _source(
    out: Output, target_name: str | None, wanted: Wanted, record: str | None, *, force: bool, brief: bool
) -> "Source":
    """What looking costs a server is said before it is done."""
    if target.is_recording(target_name):
        return target.source_of(target_name, brief=brief)
    engine = target.engine_of(target_name)
    depth = target.depth_in_use(engine, wanted)
    for words in depth.words if depth is not None else ():
        out.say(words)
    recording = writer(record, force=force)
    return target.brief_source(engine, wanted) if brief else target.engine_source(engine, recording, wanted)
