"""What is drawn again and again from what was read once."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Subject = TypeVar("Subject")
Rest = ParamSpec("Rest")
Made = TypeVar("Made")


def once(make: Callable[Concatenate[Subject, Rest], Made]) -> Callable[Concatenate[Subject, Rest], Made]:
    """Keeps the last result, while it is asked for the very same subject and with equal other arguments: pictures
    follow each other four times a second, and of a large pool the requests are read once."""
    last: list[tuple[Subject, object, Made]] = []

    @wraps(make)
    def made(subject: Subject, /, *rest: Rest.args, **named: Rest.kwargs) -> Made:
        if not last or last[0][0] is not subject or last[0][1] != (rest, named):
            last[:] = [(subject, (rest, named), make(subject, *rest, **named))]
        return last[0][2]

    return made
