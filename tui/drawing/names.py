"""What a request is called on the screen: the client's name for it when it is known, else its number."""

from inferdbg import text
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.snapshot import Snapshot

NAME_WIDTH = 14


class Names:
    """Names of the requests of one Snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        items = snapshot.requests.items if snapshot.requests is not None else ()
        self._requests = {request.number: request for request in items}

    def __call__(self, number: int | None) -> str:
        if number is None:
            return text.UNKNOWN
        request = self._requests.get(number)
        return name(request) if request is not None else f"#{number}"

    def request(self, number: int) -> Request | None:
        return self._requests.get(number)


def name(request: Request, width: int = NAME_WIDTH) -> str:
    """The client's name; of a long one its beginning and its end, which tell such names apart."""
    full = text.safe(request.id, 200) or f"#{request.number}"
    if len(full) <= width:
        return full
    tail = (width - 1) // 2
    return f"{full[: width - 1 - tail]}…{full[-tail:]}"


def owner_ink(number: int, family: str = "owner") -> str:
    """One of twelve inks for a request, neighbours in number far apart."""
    return f"{family}-{number * 5 % 12}"
