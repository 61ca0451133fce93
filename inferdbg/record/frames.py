"""zstd frames as a container: found by walking their headers, without decompressing them.

Format: RFC 8878. A frame is magic, header, blocks (three bytes of header each), and four bytes of checksum; a
skippable frame is magic, length, anything.
"""

import struct
from typing import NamedTuple

import zstandard

MAGIC = b"\x28\xb5\x2f\xfd"
INDEX_MAGIC = b"\x5d\x2a\x4d\x18"
MAX_FRAME_BYTES = 256 << 20  # decompressed; a page is far from it
_LEVEL = 1


class Frame(NamedTuple):
    """Where a whole frame lies; ``skippable`` ones hold no lines."""

    start: int
    end: int
    skippable: bool


def compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)


class Decompressor:
    """Makes the content of frames; not for two threads at a time. Its own object costs as much as a small frame."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def content(self, frame: bytes) -> bytes:
        """zstandard.ZstdError when the frame is damaged."""
        size = zstandard.frame_content_size(frame)
        if size > MAX_FRAME_BYTES:
            raise zstandard.ZstdError(f"a frame of {size} bytes")
        return self._zstd.decompress(frame, max_output_size=MAX_FRAME_BYTES if size < 0 else 0)

    def beginning(self, frame: bytes, length: int) -> bytes:
        """The first bytes of the content; empty when the frame is damaged there."""
        try:
            return self._zstd.stream_reader(frame).read(length)
        except zstandard.ZstdError:
            return b""


def skippable(payload: bytes) -> bytes:
    """A frame that every zstd tool passes over. Its last eight bytes say how long it is, so that it can be found from
    the end of a file."""
    whole = payload + struct.pack("<I", len(payload) + 16) + INDEX_MAGIC
    return INDEX_MAGIC + struct.pack("<I", len(whole)) + whole


def trailing_skippable(tail: bytes) -> int | None:
    """Length of the skippable frame that ``tail``, the last bytes of a file, ends with; None when there is none."""
    if len(tail) < 16 or tail[-4:] != INDEX_MAGIC:
        return None
    length: int = struct.unpack_from("<I", tail, len(tail) - 8)[0]
    return length


def skippable_payload(frame: bytes) -> bytes:
    return frame[8:-8]


def frame_at(data: bytes | memoryview, start: int) -> Frame | None:
    """The frame that begins at ``start``; None when there is none, or not the whole of it."""
    head = bytes(data[start : start + 18])
    if len(head) < 8:
        return None
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        end = start + 8 + struct.unpack_from("<I", head, 4)[0]
        return Frame(start, end, True) if end <= len(data) else None
    if head[:4] != MAGIC:
        return None
    descriptor = head[4]
    single_segment = bool(descriptor & 0x20)
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    at = start + 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
    while True:
        header = bytes(data[at : at + 3])
        if len(header) < 3:
            return None
        word = int.from_bytes(header, "little")
        last, kind, size = word & 1, word >> 1 & 3, word >> 3
        if kind == 3:
            return None
        at += 3 + (1 if kind == 1 else size)  # kind 1: one byte, repeated
        if last:
            break
    end = at + (4 if descriptor & 4 else 0)
    return Frame(start, end, False) if end <= len(data) else None


def next_frame(data: bytes | memoryview, start: int) -> Frame | None:
    """The first whole frame at or after ``start``, past whatever is not one."""
    whole = bytes(data) if isinstance(data, memoryview) else data
    while True:
        found = frame_at(whole, start)
        if found is not None:
            return found
        candidates = [at for at in (whole.find(MAGIC, start + 1), whole.find(INDEX_MAGIC, start + 1)) if at >= 0]
        if not candidates:
            return None
        start = min(candidates)
