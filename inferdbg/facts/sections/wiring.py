"""What connects the processes of a server: queues between threads, the threads that serve them, and whether front end
and engine know of the same requests."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin


class Queue(Struct, frozen=True, gc=False):
    """``name``: input (requests to come), output (tokens to be sent), aborts. ``length``: what stands in it."""

    name: str
    length: int


class DeadThread(Struct, frozen=True, gc=False):
    """A thread that the engine cannot do without and that is not there: its name, and what it did. ``since_ns``: of
    the first look that missed it."""

    name: str
    does: str
    since_ns: int


class Stray(Struct, frozen=True, gc=False, omit_defaults=True):
    """A request that only one side knows, ``known_by``, and since which look. ``number``: as in the section requests,
    where the engine has it."""

    id: str
    known_by: Literal["front end", "engine"]
    since_ns: int
    number: int | None = None


class Wiring(Struct, frozen=True, gc=False, omit_defaults=True):
    """``threads``: names of those that are there. ``front_requests``: how many requests the front end waits for; None:
    it could not be looked at. ``strays``: on their way a request or an answer is known to one side only, for a moment;
    only those that last mean something."""

    origin: Origin
    queues: tuple[Queue, ...] = ()
    threads: tuple[str, ...] = ()
    dead_threads: tuple[DeadThread, ...] = ()
    front_requests: int | None = None
    engine_requests: int | None = None
    strays: tuple[Stray, ...] = ()

    def queue(self, name: str) -> int | None:
        return next((queue.length for queue in self.queues if queue.name == name), None)
