"""`inferdbg probes`: which sources of facts there are, and what each can see here."""

import contextlib

import click

from inferdbg import text
from inferdbg.cli import target
from inferdbg.cli.options import example, json_option
from inferdbg.cli.output import Output
from inferdbg.errors import Exit


@click.command(
    short_help="List what can be seen here, and why not more:  inferdbg probes",
    epilog=example("inferdbg probes", "inferdbg probes 58 --json"),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@json_option
@click.pass_obj
def command(out: Output, target_name: str | None, as_json: bool) -> int:
    """Asks every probe once what it sees of TARGET; without it of the one engine that runs here. Exit code 4 when
    there is nothing to look at.
    """
    if target_name is None and not any(engine.alive for engine in target.discovered().engines):
        for name, sections, about in target.probes_in_words():
            out.show(f"{name:<12} {', '.join(sections)}\n  {about}")
    engine = target.engine_of(target_name)
    with contextlib.closing(target.brief_source(engine)) as source:
        source.advance()
        snapshot = source.window().now
    if as_json:
        out.show_json({"schema": "inferdbg.probes.v1", "target": snapshot.target, "probes": snapshot.probes})
        return Exit.FINE
    for report in snapshot.probes:
        out.show(
            f"{report.probe:<12} {report.status:<14} {text.duration(report.cost_ns):<8} {', '.join(report.sections)}"
        )
        for words in (report.message, report.hint):
            if words:
                out.show(f"  {text.safe(words)}")
    return Exit.FINE
