"""What the collector and the children that read for it say to each other: msgpack, each message after its length."""

import struct

import msgspec
from msgspec import Raw, Struct

from inferdbg.facts.provenance import ProbeStatus

MAX_MESSAGE_BYTES = 64 << 20


class Ask(Struct, array_like=True):
    """Read now."""

    now_ns: int


class Answer(Struct, omit_defaults=True):
    """A Reading on its way; ``cost_ns`` is what it took the child."""

    sections: dict[str, Raw] = {}
    status: ProbeStatus = "ok"
    message: str = ""
    hint: str = ""
    mono_ns: int | None = None
    life: int | None = None
    cost_ns: int = 0


_encode = msgspec.msgpack.Encoder().encode


def packed(message: Struct) -> bytes:
    encoded = _encode(message)
    return struct.pack("<I", len(encoded)) + encoded


def unpacked(received: bytes | bytearray) -> bytes | None:
    """The first whole message in ``received``; None while it is not all there. ValueError when it is too long to be
    one of ours."""
    if len(received) < 4:
        return None
    length: int = struct.unpack_from("<I", received)[0]
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return bytes(received[4 : 4 + length]) if len(received) >= 4 + length else None
