"""Those who wait, first come first; each says in its columns whom it stands behind, the head what it lacks."""

from collections import deque
from collections.abc import Iterator

from .request import Request, RequestTable
from .state import Stage, WaitReason


class WaitingQueue:
    """The preempted stand before all others, because they arrived before them."""

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self._queue: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    @property
    def head(self) -> Request:
        return self._queue[0]

    @property
    def preempted(self) -> int:
        """How many ran before."""
        count = 0
        for request in self._queue:
            if self._table.stage[request.slot] != Stage.PREEMPTED:
                break
            count += 1
        return count

    def append(self, request: Request) -> None:
        """A newcomer, behind all others."""
        if self._queue:
            self._table.wait(request, WaitReason.BEHIND, self._queue[-1].number)
        self._queue.append(request)

    def put_back(self, request: Request) -> None:
        """One that has to wait again, before all others."""
        if self._queue:
            self._table.wait(self._queue[0], WaitReason.BEHIND, request.number)
        self._queue.appendleft(request)

    def admit(self) -> Request:
        """Takes the head; the next one has yet to be looked at."""
        return self._queue.popleft()

    def remove(self, request: Request) -> None:
        place = self._queue.index(request)
        del self._queue[place]
        if place < len(self._queue):
            if place:
                self._table.wait(self._queue[place], WaitReason.BEHIND, self._queue[place - 1].number)
            else:
                self._table.wait(self._queue[0], WaitReason.NONE)
