"""`inferdbg record`: keeps what is seen of an engine in a file, to look at it later as if it were live."""

import contextlib
import shlex
import time

import click

from inferdbg import text
from inferdbg.cli import looking, naming, target
from inferdbg.cli.depth import Wanted
from inferdbg.cli.ending import Ending
from inferdbg.cli.options import at_least, depth_options, duration, example, force_option, interval_option, size, writer
from inferdbg.cli.output import Output
from inferdbg.errors import Exit

LEAST_KEPT_NS = 10 * 10**9
LEAST_BYTES = 1 << 20
"""Below either, a part would be over before it held a second of an engine of ordinary size."""


@click.command(
    short_help="Keep what is seen in a file:  inferdbg record 58 -o run.idbg",
    epilog=example(
        "inferdbg record 58 -o run.idbg --for 60s", "inferdbg record -o night.idbg --keep 6h --max-bytes 2G"
    ),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@click.option("-o", "--output", "path", required=True, help="File to write.")
@click.option("--for", "duration_ns", type=duration, help="How long.  [default: until Ctrl-C]")
@click.option(
    "--keep",
    "keep_ns",
    type=duration,
    callback=at_least(LEAST_KEPT_NS, text.duration(LEAST_KEPT_NS)),
    help="Go on for ever in numbered files and keep the last so long.",
)
@click.option(
    "--max-bytes",
    type=size,
    callback=at_least(LEAST_BYTES, text.size(LEAST_BYTES)),
    help="Go on for ever in numbered files and keep no more than so much.",
)
@depth_options
@interval_option
@force_option
@click.pass_obj
def command(
    out: Output,
    target_name: str | None,
    wanted: Wanted,
    path: str,
    duration_ns: int | None,
    keep_ns: int | None,
    max_bytes: int | None,
    interval_ns: int,
    force: bool,
) -> int:
    """Records TARGET (a PID, a URL, a black box; without it the one server that runs here). Ctrl-C, SIGTERM,
    SIGHUP or the target's end leave a complete file; whatever else happens, at most the last second is missing.

    Prompts and answers are never recorded. Exit code 1 when the target died.
    """
    engine = target.engine_of(target_name)
    depth = target.depth_in_use(engine, wanted)
    for words in depth.words if depth is not None else ():
        out.say(words)
    ending = Ending()  # before there is a file to finish; until then a signal ends us at once
    recording = writer(path, keep_ns=keep_ns, max_bytes=max_bytes, force=force)
    assert recording is not None
    with contextlib.closing(target.engine_source(engine, recording, wanted)) as source:
        began = time.monotonic_ns()
        looks = 0
        while True:
            source.advance()
            if source.problem is not None:
                raise source.problem
            if not looks:
                looking.refuse_blindness(source.window())
            looks += 1
            now = time.monotonic_ns()
            server = source.window().now.server
            ended = server is not None and server.state not in ("alive", "orphaned")
            out.progress(f"{text.duration(now - began)}: {looks} looks, {text.size(recording.bytes_written)}")
            if ended or (duration_ns is not None and now - began >= duration_ns):
                break
            if ending.wait(max(0.0, (began + looks * interval_ns - now) / 1e9)):
                break
    span = text.duration(now - began)
    written = text.size(recording.bytes_written)
    where = "" if recording.path == recording.part_path else f", the last of it in {recording.part_path}"
    out.say(f"recorded {text.counted(looks, 'look')} in {span}, {written}{where}: inferdbg open {shlex.quote(path)}")
    if ended and server is not None:
        out.say(f"{naming.name_of(engine)} {'died' if server.state == 'dead' else 'stopped'} meanwhile")
        return Exit.FINDINGS if server.state == "dead" else Exit.FINE
    return Exit.FINE
