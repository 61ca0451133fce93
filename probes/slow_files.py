"""Reads files that a stuck process can keep for itself (cmdline, maps) in a child that is given up past a deadline."""

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence

from msgspec import Struct

MOST_STUCK = 3
"""Files that never answered, after which no more are tried: each leaves a child behind until the kernel lets it go."""
_STARTING_S = 10.0  # of a child, on a busy machine
_DYING_S = 2.0
_LENGTH = struct.Struct("<i")
_CHILD = """
import json, os, struct, sys
paths, limit = json.load(sys.stdin)
os.write(1, b"!")
for path in paths:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        content = bytearray()
        while len(content) < limit and (chunk := os.read(file, min(1 << 16, limit - len(content)))):
            content += chunk
        os.close(file)
    except OSError:
        content = None
    answer = struct.pack("<i", -1) if content is None else struct.pack("<i", len(content)) + content
    while answer:
        answer = answer[os.write(1, answer):]
"""


class Slow(Struct, frozen=True):
    """``contents``: by path, of those that could be read. ``stuck``: paths whose read did not come back in time; none
    is tried after three of them."""

    contents: dict[str, bytes]
    stuck: tuple[str, ...] = ()


def read_slow(paths: Sequence[str], *, patience_s: float = 0.5, limit: int = 1 << 16) -> Slow:
    """At most ``limit`` bytes of each; waits at most ``patience_s`` for any one of them. Costs about 15 ms."""
    contents: dict[str, bytes] = {}
    stuck: list[str] = []
    left = list(dict.fromkeys(paths))
    while left and len(stuck) < MOST_STUCK:
        answers = _answers(left, patience_s, limit)
        contents |= {path: answer for path, answer in zip(left, answers, strict=False) if answer is not None}
        left = left[len(answers) :]
        if left:
            stuck.append(left.pop(0))
    return Slow(contents, tuple(stuck))


def _answers(paths: Sequence[str], patience_s: float, limit: int) -> list[bytes | None]:
    """Contents in the order of ``paths``, as many as came in time."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    answers: list[bytes | None] = []
    with child.stdin, child.stdout:
        child.stdin.write(json.dumps([list(paths), limit]).encode())
        child.stdin.close()
        received = bytearray()
        if select.select([child.stdout], [], [], _STARTING_S)[0]:
            os.read(child.stdout.fileno(), 1)  # it has begun
        deadline = time.monotonic() + patience_s
        while len(answers) < len(paths):
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(child.stdout.fileno(), 1 << 20) if ready else b""
            if not chunk:
                break
            received += chunk
            deadline = time.monotonic() + patience_s
            while (taken := _taken(received)) is not None:
                answers.append(taken[0])
                del received[: taken[1]]
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel dies when that lets it
        child.wait(_DYING_S)
    return answers


def _taken(received: bytearray) -> tuple[bytes | None, int] | None:
    """The first answer in it and how many bytes that took; None while it is not whole."""
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    end = _LENGTH.size + max(0, length)
    if len(received) < end:
        return None
    return (None if length < 0 else bytes(received[_LENGTH.size : end])), end
