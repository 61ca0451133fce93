"""Options that several verbs share, declared once."""

from collections.abc import Callable
from typing import TypeVar

import click

from inferdbg.config import duration_ns, size_bytes

Verb = TypeVar("Verb", bound=Callable[..., object])


def duration(value: str) -> int:
    """A click type, by its name DURATION in the help: ``250ms``, ``6h`` as ns, more than none."""
    try:
        parsed = duration_ns(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if parsed <= 0:
        raise click.BadParameter(f"{value!r} is no time at all")
    return parsed


def size(value: str) -> int:
    """A click type, by its name SIZE in the help: ``64k``, ``2G`` as bytes."""
    try:
        return size_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def example(*lines: str) -> str:
    """The end of a verb's help: what to type, a line each."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(verb: Verb) -> Verb:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(verb)


def interval_option(verb: Verb) -> Verb:
    return click.option(
        "--interval", "interval_ns", type=duration, default="250ms", show_default=True, help="Time between two looks."
    )(verb)
