"""`inferdbg probes`: which sources of facts there are, and what each can see here."""

import contextlib

import click

from inferdbg import text
from inferdbg.cli import here, target
from inferdbg.cli.depth import COSTS, NAMES, Wanted
from inferdbg.cli.options import depth_options, example, json_option
from inferdbg.cli.output import Output
from inferdbg.errors import Exit


@click.command(
    short_help="List what can be seen here, and why not more:  inferdbg probes",
    epilog=example("inferdbg probes", "inferdbg probes 58 --json"),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@depth_options
@json_option
@click.pass_obj
def command(out: Output, target_name: str | None, wanted: Wanted, as_json: bool) -> int:
    """Asks every probe once what it sees of TARGET; without it of the one server that runs here. Of somebody else's
    server also which depths there are, what they cost and which are in use. Exit code 4 when there is nothing to look
    at.
    """
    if target_name is None and not here.living(here.discovered()):
        for name, sections, about in target.probes_in_words():
            out.show(f"{name:<12} {', '.join(sections)}\n  {about}")
    engine = target.engine_of(target_name)
    depth = target.depth_in_use(engine, wanted)
    with contextlib.closing(target.brief_source(engine, wanted)) as source:
        source.advance()
        snapshot = source.window().now
    if as_json:
        out.show_json(
            {
                "schema": "inferdbg.probes.v1",
                "target": snapshot.target,
                "depths": [] if depth is None else depth.used,
                "probes": snapshot.probes,
            }
        )
        return Exit.FINE
    for report in snapshot.probes:
        out.show(
            f"{report.probe:<12} {report.status:<14} {text.duration(report.cost_ns):<8} {', '.join(report.sections)}"
        )
        for words in (report.message, report.hint):
            if words:
                for line in words.splitlines():
                    out.show(f"  {text.safe(line)}")
    if depth is not None:
        for name in NAMES:
            out.show(f"depth {name:<9} {'in use' if name in depth.used else 'not in use':<11} {COSTS[name]}")
    return Exit.FINE
