"""KV events of a server, subscribed to over ZMQ: rebuilt into the blocks it can reuse and the tree of their prefixes.

A thread takes messages as they come, so that no prompt lies in a queue; a read only says how things stand. What it
costs the server: another subscriber of its publishing thread, and one look through its replay buffer (as a rule 10,000
messages) when we join or find a gap.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from inferdbg import text
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import Origin

from .batches import PoolName
from .ranks import Ranks

if TYPE_CHECKING:
    import zmq

MAX_MESSAGE_BYTES = 64 << 20
_MOST_QUEUED = 100_000
_FIRST_PATIENCE_S = 1.0
_POLL_MS = 50
_AT_ONCE = 500
"""Messages taken before the other socket is looked at."""
_HEARTBEAT_MS = 5_000


@dataclass
class KVEvents:
    """``endpoint`` and ``replay`` as the server's ``--kv-events-config`` has them, ``*`` being this machine: we connect
    to both. ``@tcp://127.0.0.1:5557``: the server connects (vLLM does, to any address without a ``*``), so we bind.
    ``topic``: what the server's topic begins with, where several servers publish to one address.

    Raises InferdbgError where pyzmq is missing or the address is none.
    """

    endpoint: str
    replay: str | None = None
    topic: str = ""

    name = "kv events"
    sections = ("prefixes", "events")
    cadence_ns = SECOND
    deadline_ns = 10 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self.subscription: Subscription | None = None

    def read(self, now_ns: int) -> Reading:
        if self.subscription is None:
            self.subscription = Subscription(self.endpoint, self.replay, self.topic)
            self.subscription.begun.wait(_FIRST_PATIENCE_S)
        return self.subscription.reading(self.name, now_ns)

    def close(self) -> None:
        if self.subscription is not None:
            self.subscription.close()
            self.subscription = None


class Subscription:
    """The sockets, and the thread that alone touches them."""

    def __init__(self, endpoint: str, replay: str | None, topic: str) -> None:
        zmq = _zmq()
        self._lock = threading.Lock()
        self.ranks = Ranks(replays=replay is not None)
        self._problem = ""
        self._parted_ns: int | None = None
        self._publishers = 0
        self._ending = False
        self.begun = threading.Event()
        """A publisher is there, and what it published before is here."""
        self._endpoint = endpoint
        self._replay_endpoint = replay
        self._context = zmq.Context(io_threads=1)
        self._live = self._context.socket(zmq.SUB)
        self._replay = self._context.socket(zmq.DEALER)
        try:
            for socket in (self._live, self._replay):
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
                socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
                socket.setsockopt(zmq.RCVHWM, _MOST_QUEUED)
            self._replay.setsockopt(zmq.IMMEDIATE, 1)  # a question waits for no server
            self._live.setsockopt(zmq.SUBSCRIBE, topic.encode())
            self._monitor = self._live.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            if endpoint.startswith("@"):
                _opened(self._live.bind, endpoint[1:])
            else:
                _opened(self._live.connect, _here(endpoint))
            if replay is not None:
                _opened(self._replay.connect, _here(replay))
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=self._run, name="kv events", daemon=True)
        self._thread.start()

    def reading(self, probe: str, now_ns: int) -> Reading:
        """How things stand."""
        with self._lock:
            ranks = self.ranks
            if self._problem:
                raise InferdbgError(self._problem)
            if all(rank.following.untouched for rank in ranks.ranks.values()):
                return self._nothing_yet(now_ns)
            rebuilt = ranks.rebuilt
            if rebuilt.shape_due(now_ns):
                began = time.monotonic_ns()
                rebuilt.work_out(now_ns)
                rebuilt.shape_took(time.monotonic_ns() - began)
            gone = self._publishers <= 0 and self._parted_ns is not None
            doubts = ranks.doubts()
            if gone:
                doubts.insert(0, f"no publisher for {text.duration(now_ns - (self._parted_ns or now_ns))}")
            reported = Origin(probe, now_ns, "reported")
            known = rebuilt.prefixes(reported, ranks.missed, ranks.replayed, doubts)
            happened = rebuilt.happened(reported)
            foreign = ranks.foreign
        if not known.complete:
            known = msgspec.structs.replace(known, origin=Origin(probe, now_ns, "inferred"))
        message, hint = known.why, ""
        if foreign:
            left_out = f"{text.counted(foreign, 'message')} of another topic left out"
            message = "; ".join(filter(None, (left_out, known.why)))
            hint = "two servers publish to this address: name the topic of one: --events ENDPOINT#TOPIC"
        elif known.missed_batches and self._replay_endpoint is None:
            hint = "with a replay_endpoint in --kv-events-config earlier batches could be asked for"
        return Reading({"prefixes": known, "events": happened}, "stale" if gone else "ok", message, hint)

    def blocks(self) -> dict[PoolName, set[int]]:
        """Hashes of the blocks that are held, to compare with what another source knows."""
        with self._lock:
            return {name: set(tree.blocks) for name, tree in self.ranks.rebuilt.trees.items()}

    def close(self) -> None:
        self._ending = True
        self._thread.join()

    def _nothing_yet(self, now_ns: int) -> Reading:
        if self._publishers > 0:
            return Reading(status="stale", message=f"{self._endpoint}: a publisher is there and has published nothing")
        if self._endpoint.startswith("@"):
            return Reading(
                status="absent",
                message=f"no server has connected to {self._endpoint[1:]}",
                hint="the server's --kv-events-config needs this address as its endpoint",
            )
        hint = f"a server whose endpoint has no * connects instead: then --events @{self._endpoint}"
        return Reading(status="absent", message=f"nobody publishes at {self._endpoint}", hint=hint)

    def _run(self) -> None:
        zmq = _zmq()
        poller = zmq.Poller()
        for socket in (self._live, self._replay, self._monitor):
            poller.register(socket, zmq.POLLIN)
        try:
            while not self._ending:
                ready = dict(poller.poll(_POLL_MS))
                now_ns = time.monotonic_ns()
                with self._lock:
                    if self._monitor in ready:
                        self._notice(now_ns)
                    took = self._take(self._replay, self.ranks.replay, now_ns) if self._replay in ready else 0
                    took += self._take(self._live, self.ranks.live, now_ns) if self._live in ready else 0
                    self._ask(now_ns)
                    if took < _AT_ONCE:
                        self.ranks.settle(now_ns)
                    if self._publishers > 0 and self.ranks.caught_up:
                        self.begun.set()
        except Exception as error:  # noqa: BLE001  # the next read says it
            self._problem = f"{type(error).__name__}: {error}"
        finally:
            self._live.disable_monitor()
            self._context.destroy(linger=0)

    def _take(self, socket: "zmq.Socket[bytes]", feed: Callable[[list[bytes], int], None], now_ns: int) -> int:
        zmq = _zmq()
        for taken in range(_AT_ONCE):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return taken
            feed(frames, now_ns)
        return _AT_ONCE

    def _ask(self, now_ns: int) -> None:
        zmq = _zmq()
        seq = self.ranks.wanted(now_ns)
        if seq is not None:
            with suppress(zmq.Again):  # nobody is there yet
                self._replay.send_multipart([b"", seq.to_bytes(8, "big")], zmq.NOBLOCK)
                self.ranks.asked(now_ns)

    def _notice(self, now_ns: int) -> None:
        """Who comes and goes."""
        from zmq.utils.monitor import recv_monitor_message

        zmq = _zmq()
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._publishers += 1
                self._parted_ns = None
            elif event == zmq.EVENT_DISCONNECTED:
                self._publishers -= 1
                self._parted_ns = now_ns


def _zmq() -> ModuleType:
    try:
        import zmq
    except ImportError:
        raise InferdbgError("KV events need pyzmq, which is not installed", "pip install 'inferdbg[events]'") from None
    return zmq


def _here(endpoint: str) -> str:
    """What to connect to for an address as the server has it: ``*`` and its like are this machine."""
    for everywhere, here in (("//*:", "//127.0.0.1:"), ("//0.0.0.0:", "//127.0.0.1:"), ("//[::]:", "//[::1]:")):
        endpoint = endpoint.replace(everywhere, here)
    return endpoint


def _opened(open_it: Callable[[str], object], address: str) -> None:
    try:
        open_it(address)
    except _zmq().ZMQError as error:
        raise InferdbgError(f"{address}: {error}", "an address looks like tcp://127.0.0.1:5557") from None
