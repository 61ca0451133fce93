"""A server's side of KV events for the tests: messages as vLLM and SGLang write them, and sockets to send them by."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

END = (1 << 64) - 1
TOKENS = range(3_987_654_001, 3_987_655_000)
"""Token ids that nothing else is by chance: no count, no PID and hardly a duration in nanoseconds."""
GPU = {"medium": "GPU", "group_idx": 0}


def stored(
    hashes: Sequence[int | bytes], parent: int | bytes | None = None, size: int = 4, **more: object
) -> dict[str, Any]:
    """As vLLM 0.32 writes it, with ``TOKENS``, which are easily found again."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(TOKENS[: len(hashes) * size]),
        "block_size": size,
        "lora_id": None,
        "lora_name": None,
        "extra_keys": [["a salt", ["an image", 7]]] * len(hashes),
        "kv_cache_spec_kind": "full_attention",
        **GPU,
        **more,
    }


def removed(hashes: Sequence[int | bytes], **more: object) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **GPU, **more}


CLEARED: dict[str, Any] = {"type": "AllBlocksCleared"}


def payload(*events: object, ts: float = 1000.0, rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([ts, list(events), rank])


def number(seq: int) -> bytes:
    return (seq & END).to_bytes(8, "big")


class Publisher:
    """Publishes on one socket; another thread answers from the buffer on the replay socket, as vLLM does, or as older
    ones do (``with_topic`` off). ``lose``: numbers that are not sent, only kept."""

    def __init__(self, context: "zmq.Context[Any]", *, keep: int = 10_000, with_topic: bool = True) -> None:
        self.context = context
        self.keep = keep
        self.with_topic = with_topic
        self.seq = 0
        self.ts = 1000.0
        self.lose: set[int] = set()
        self.buffer: list[tuple[int, bytes]] = []
        self.questions: list[int] = []
        self.socket: zmq.Socket[Any] = context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.replay: zmq.Socket[Any] | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def bind(self) -> str:
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        return f"tcp://127.0.0.1:{port}"

    def connect(self, address: str) -> None:
        self.socket.connect(address)

    def bind_replay(self, port: int | None = None) -> str:
        self.replay = self.context.socket(zmq.ROUTER)
        self.replay.setsockopt(zmq.LINGER, 0)
        if port is None:
            port = self.replay.bind_to_random_port("tcp://127.0.0.1")
        else:
            self.replay.bind(f"tcp://127.0.0.1:{port}")
        self._thread = threading.Thread(target=self._answer, name="replay")
        self._thread.start()
        return f"tcp://127.0.0.1:{port}"

    def await_subscriber(self) -> None:
        """Until somebody's subscription has arrived."""
        assert self.socket.poll(10_000), "nobody subscribed"
        self.socket.recv()

    def publish(self, *events: object, body: bytes | None = None) -> None:
        self.ts += 0.001
        found = payload(*events, ts=self.ts) if body is None else body
        with self._lock:
            self.buffer = [*self.buffer, (self.seq, found)][-self.keep :] if self.keep else []
        if self.seq not in self.lose:
            self.send(number(self.seq), found)
        self.seq += 1

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart([b"kv", *frames])

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if self.replay is not None:
            self.replay.close()
        self.socket.close()

    def _answer(self) -> None:
        assert self.replay is not None
        topic = [b"kv"] if self.with_topic else []
        while not self._ending.is_set():
            if not self.replay.poll(20):
                continue
            who, _, asked = self.replay.recv_multipart()
            start = int.from_bytes(asked, "big")
            self.questions.append(start)
            with self._lock:
                kept = [found for found in self.buffer if found[0] >= start]
            for seq, found in kept:
                self.replay.send_multipart([who, b"", *topic, number(seq), found])
            self.replay.send_multipart([who, b"", *(topic and [b""]), number(END), b""])


@contextmanager
def publishing(**settings: int) -> Iterator[Publisher]:
    with zmq.Context() as context:
        publisher = Publisher(context, **settings)
        try:
            yield publisher
        finally:
            publisher.close()
