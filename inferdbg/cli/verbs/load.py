"""`inferdbg load`: synthetic traffic against a server of the OpenAI API."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from inferdbg import text
from inferdbg.cli.ending import Ending
from inferdbg.cli.options import Finite, duration, example, json_option
from inferdbg.cli.output import Output
from inferdbg.errors import Exit

if TYPE_CHECKING:
    from inferdbg.engine.load import Percentiles, Progress, Summary

_MIXES = ("demo", "chat", "batch", "long")


@click.command(
    short_help="Send synthetic traffic:  inferdbg load http://127.0.0.1:8000",
    epilog=example("inferdbg load http://127.0.0.1:8000 --mix chat --for 60s"),
)
@click.argument("url")
@click.option("--mix", type=click.Choice(_MIXES), default="demo", show_default=True, help="What the traffic is like.")
@click.option("--for", "duration_ns", type=duration, help="How long.  [default: until Ctrl-C]")
@click.option("--requests", type=click.IntRange(min=1), help="Send as many, then stop.")
@click.option("--rate", type=Finite(min=0, min_open=True, max=100_000), help="Arrivals a second.  [default: the mix's]")
@click.option("--concurrency", type=click.IntRange(min=1), help="Most clients at a time.  [default: the mix's]")
@click.option("--abort", type=Finite(0, 1), help="Share of clients that go away.  [default: the mix's]")
@click.option("--model", help="Model to ask for.  [default: the first that the server names]")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed sends the same requests.")
@json_option
@click.pass_obj
def command(
    out: Output,
    url: str,
    mix: str,
    duration_ns: int | None,
    requests: int | None,
    rate: float | None,
    concurrency: int | None,
    abort: float | None,
    model: str | None,
    seed: int,
    as_json: bool,
) -> int:
    """Sends seeded, streaming requests to URL and says what the clients saw.

    Mixes: demo (a bit of everything, in bursts), chat (steady, shared prompts), batch (closed loop), long (long
    prompts). Ctrl-C ends it with a summary. Exit code 1 when a request failed.
    """
    from inferdbg.engine.load import MIXES, run

    named = MIXES[mix]
    traffic = replace(
        named,
        rate=named.rate if rate is None else rate,
        concurrency=concurrency or named.concurrency,
        abort=named.abort if abort is None else abort,
    )
    summary = run(
        url,
        traffic,
        seed=seed,
        model=model,
        duration_s=None if duration_ns is None else duration_ns / 1e9,
        requests=requests,
        report=lambda progress: out.progress(_in_words(progress)),
        stop=Ending().event(),
    )
    if as_json:
        out.show_json(summary)
    else:
        for line in _lines(summary):
            out.show(line)
    return Exit.FINDINGS if summary.errors else Exit.FINE


def _in_words(progress: "Progress") -> str:
    return (
        f"{text.duration(progress.elapsed_s * 1e9)}: {text.count(progress.sent)} sent, {progress.open} open "
        f"({progress.silent} without a token), {text.count(progress.finished)} finished, {progress.aborted} gone away, "
        f"{progress.errors} errors, {text.short(progress.pieces_per_s)} tokens/s"
    )


def _lines(summary: "Summary") -> list[str]:
    """Seconds become durations; a row without observations shows ``-``."""
    errors = ", ".join(f"{count} × {text.safe(kind)}" for kind, count in summary.errors.items())
    return [
        f"{summary.model} at {summary.url}, mix {summary.mix}, seed {summary.seed}, {summary.seconds:.1f} s",
        f"requests   {text.count(summary.sent)} sent · {text.count(summary.finished)} finished · "
        f"{summary.aborted} went away · {summary.cut} cut · errors: {errors or 'none'}",
        f"tokens     prompt {text.count(summary.prompt_tokens)} (cached {text.count(summary.cached_tokens)}) · "
        f"output {text.count(summary.output_tokens)}, {text.short(summary.output_tokens_per_s)}/s",
        *(
            _row(name, figures)
            for name, figures in (("TTFT", summary.ttft), ("ITL", summary.itl), ("E2E", summary.e2e))
        ),
    ]


def _row(name: str, figures: "Percentiles") -> str:
    shares = (("p50", figures.p50), ("p95", figures.p95), ("p99", figures.p99), ("worst", figures.worst))
    shown = (f"{share} {text.duration(None if seconds is None else seconds * 1e9)}" for share, seconds in shares)
    return f"{name:<10} " + " · ".join(shown)
