"""`inferdbg attach`: one engine, living or dead, on the screen or as one look."""

import contextlib

import click

from inferdbg.cli import looking, target
from inferdbg.cli.ending import interrupted_by_signals
from inferdbg.cli.options import (
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


@click.command(
    short_help="Look at one server:  inferdbg attach 58",
    epilog=example(
        "inferdbg attach 58",
        "inferdbg attach http://127.0.0.1:8000 --once",
        "inferdbg attach 58 --json | jq .findings",
    ),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@look_options
@json_option
@interval_option
@record_option
@force_option
@click.pass_obj
def command(
    out: Output,
    target_name: str | None,
    once: bool,
    blocks: bool,
    as_json: bool,
    interval_ns: int,
    record: str | None,
    force: bool,
) -> int:
    """Looks at TARGET: a PID, the URL of a bundled engine on this machine, a black box, a recording; without it the one
    engine that runs here. Nothing is asked of the engine itself: a hung or dead one is seen as well.

    --once and --json exit with 0 when all is well, 1 when something is wrong.
    """
    interrupted_by_signals()
    brief = as_json or once or not out.data.isatty()
    if record is not None and brief:
        raise InferdbgError("one look is not recorded", "inferdbg record keeps what is seen over a time", Exit.USAGE)
    with contextlib.closing(target.source_of(target_name, lambda: writer(record, force=force), brief=brief)) as source:
        if as_json:
            return looking.as_object(out, source, blocks=blocks)
        if brief:
            return looking.as_text(out, source)
        looking.on_screen(source, interval_ns)
    return Exit.FINE
