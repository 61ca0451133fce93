"""What a request is called on the screen: the client's name for it when it is known, else its number."""

from collections import Counter
from functools import lru_cache

from inferdbg import text
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.snapshot import Snapshot

from .once import once

NAME_WIDTH = 14


def names_of(snapshot: Snapshot) -> "Names":
    return names_among(snapshot.requests)


class Names:
    """Names of the requests of one moment. Two that would read the same (continuations of one request share its id,
    and long ids can look alike when cut) carry their number as well."""

    def __init__(self, requests: Requests | None) -> None:
        items = requests.items if requests is not None else ()
        self._requests = {request.number: request for request in items}
        self._bearers: dict[int, Counter[str]] = {}  # by width

    def __call__(self, number: int | None, width: int = NAME_WIDTH) -> str:
        """In at most ``width`` characters: ``r-91``, ``r-91#118``, or ``#118`` when the client's name is not known."""
        if number is None:
            return text.UNKNOWN
        request = self._requests.get(number)
        alone = _shortened(request.id, width) if request is not None else ""
        if request is None or not alone:
            return f"#{number}"
        if width not in self._bearers:
            self._bearers[width] = Counter(_shortened(other.id, width) for other in self._requests.values())
        if self._bearers[width][alone] == 1:
            return alone
        return f"{_shortened(request.id, width - len(f'#{number}'))}#{number}"

    def request(self, number: int) -> Request | None:
        return self._requests.get(number)


names_among = once(Names)
"""Of the requests of one moment."""


def owner_ink(number: int, family: str = "owner") -> str:
    """One of twelve inks for a request, neighbours in number far apart."""
    return f"{family}-{number * 5 % 12}"


@lru_cache(maxsize=4096)
def _shortened(id: str, width: int) -> str:
    """Of a long name its beginning and its end, which tell such names apart."""
    full = text.safe(id, 200)
    if len(full) <= width:
        return full
    tail = (width - 1) // 2
    return f"{full[: width - 1 - tail]}…{full[-tail:]}"
