"""`inferdbg open`: a recording or a black box in the same screens."""

import contextlib

import click

from inferdbg.cli import looking, target
from inferdbg.cli.ending import interrupted_by_signals
from inferdbg.cli.options import example, interval_option, json_option, look_options, moment
from inferdbg.cli.output import Output
from inferdbg.config import Moment
from inferdbg.errors import Exit


@click.command(
    short_help="Look at a recording or a black box:  inferdbg open run.idbg",
    epilog=example(
        "inferdbg open run.idbg", "inferdbg open run.idbg --at 14:02:07 --once", "inferdbg open 58.box --json"
    ),
)
@click.argument("file")
@look_options
@json_option
@click.option("--at", type=moment, help="Which moment: 14:02:07, +90s from the start, -10s from the end.")
@interval_option
@click.pass_obj
def command(
    out: Output, file: str, once: bool, blocks: bool, as_json: bool, at: Moment | None, interval_ns: int
) -> int:
    """Shows FILE, a recording or a black box, as it was live: pause, scrub with the arrow keys, same views.

    --once and --json show one moment (the last, or --at) and exit with 0 when all was well, 1 when something was wrong.
    """
    interrupted_by_signals()
    brief = as_json or once or not out.has_screen
    with contextlib.closing(target.source_of_file(file, brief=brief)) as source:
        at_ns = looking.moment_of(source, at)
        if as_json:
            return looking.as_object(out, source, at_ns, blocks=blocks)
        if brief:
            return looking.as_text(out, source, at_ns)
        looking.on_screen(source, interval_ns, at_ns)
    return Exit.FINE
