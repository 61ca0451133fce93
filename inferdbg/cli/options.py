"""Options that several verbs share, declared once."""

import functools
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from inferdbg.config import Moment, duration_ns, size_bytes
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.cli.depth import DepthName
    from inferdbg.record.writer import RecordingWriter

SHORTEST_INTERVAL_NS = 10_000_000
LONGEST_INTERVAL_NS = 3600 * 10**9

Verb = TypeVar("Verb", bound=Callable[..., object])


def duration(value: str) -> int:
    """A click type, by its name DURATION in the help: ``250ms``, ``6h`` as ns."""
    try:
        return duration_ns(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def size(value: str) -> int:
    """A click type, by its name SIZE in the help: ``64k``, ``2G`` as bytes."""
    try:
        return size_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def moment(value: str) -> Moment:
    """A click type, by its name MOMENT in the help: ``14:02:07``, ``+90s``, ``-10s``."""
    try:
        return Moment.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def example(*lines: str) -> str:
    """The end of a verb's help: what to type, a line each."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


class Finite(click.FloatRange):
    """Also refuses nan and inf, which click finds in every range."""

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)  # type: ignore[arg-type]  # text, too
        if not math.isfinite(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


def at_least(least: int, in_words: str) -> Callable[[click.Context, click.Parameter, int | None], int | None]:
    """A click callback that refuses less; an option that was not given stays None."""

    def check(context: click.Context, option: click.Parameter, value: int | None) -> int | None:
        if value is not None and value < least:
            raise click.BadParameter(f"at least {in_words}")
        return value

    return check


def depth_options(verb: Verb) -> Verb:
    """``wanted``: how deep to look into somebody else's server, of type depth.Wanted."""
    from inferdbg.cli.depth import COSTS, NAMES, Wanted

    listed = "; ".join(f"{name}: {COSTS[name]}" for name in NAMES)
    options = (
        click.option(
            "--depth",
            type=click.Choice(NAMES),
            help=f"How deep to look into somebody else's server. {listed}.  [default: memory where it can be had]",
        ),
        click.option(
            "--events",
            metavar="ENDPOINT[#TOPIC]",
            help="Where it publishes its KV cache: tcp://127.0.0.1:5557; with @ before it where it connects to us.",
        ),
        click.option("--events-replay", "replay", metavar="ENDPOINT", help="Where it can be asked for missed ones."),
    )

    @functools.wraps(verb)
    def with_wanted(
        *args: object, depth: "DepthName | None", events: str | None, replay: str | None, **others: object
    ) -> object:
        return verb(*args, wanted=Wanted(depth, events, replay), **others)

    for option in reversed(options):
        with_wanted = option(with_wanted)
    return with_wanted  # type: ignore[return-value]  # the same verb, with one option made of three


def json_option(verb: Verb) -> Verb:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(verb)


def interval_option(verb: Verb) -> Verb:
    return click.option(
        "--interval",
        "interval_ns",
        type=duration,
        callback=_long_enough,
        default="250ms",
        show_default=True,
        help="Time between two looks.",
    )(verb)


def _long_enough(context: click.Context, option: click.Parameter, value: int) -> int:
    if value < SHORTEST_INTERVAL_NS:
        raise click.BadParameter("at least 10ms, or looking would take more than it shows")
    if value > LONGEST_INTERVAL_NS:
        raise click.BadParameter("at most 1h")
    return value


def once_option(verb: Verb) -> Verb:
    return click.option("--once", is_flag=True, help="One look as text, as where there is no terminal.")(verb)


def look_options(verb: Verb) -> Verb:
    blocks = click.option("--blocks", is_flag=True, help="With --json: every block and block table, too.")
    return once_option(blocks(verb))


def record_option(verb: Verb) -> Verb:
    return click.option("--record", metavar="FILE", help="Keep what is seen in FILE as well.")(verb)


def force_option(verb: Verb) -> Verb:
    return click.option("--force", is_flag=True, help="Overwrite the file to record to.")(verb)


def writer(
    path: str | None, *, keep_ns: int | None = None, max_bytes: int | None = None, force: bool
) -> "RecordingWriter | None":
    """What --record and -o ask for; None when nothing was asked. Raises InferdbgError where a file is in the way or
    none can be written. Numbered files are gone on with, not overwritten."""
    if path is None:
        return None
    from inferdbg.record.writer import RecordingWriter

    if not path:
        raise InferdbgError("the file to record to has no name", "name a file, like run.idbg", Exit.USAGE)
    if os.path.lexists(path):
        if not force or not os.path.isfile(path):
            hint = "choose another name" + (", or overwrite it with --force" if os.path.isfile(path) else "")
            raise InferdbgError(f"{path} exists already", hint, Exit.USAGE)
        os.unlink(path)
    return RecordingWriter(path, keep_ns=keep_ns, max_bytes=max_bytes)
