"""The disposable child that reads one probe: ``python -m inferdbg.collect.isolated MODULE CLASS FIELDS``.

It may block for ever and be killed at any moment. It ends when its standard input does, so it never outlives the one
that asked, even while its own read hangs: hence the second thread. (PR_SET_PDEATHSIG would follow the *thread* that
started it, and those of a screen come and go.)
"""

import os
import sys
import threading
import time
from importlib import import_module
from queue import SimpleQueue
from typing import Any

import msgspec

from inferdbg.collect.probe import Probe, Reading
from inferdbg.collect.wire import Answer, Ask, packed, unpacked
from inferdbg.errors import InferdbgError


def main(module: str, name: str, fields: str) -> None:
    out = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # what a library prints must not end up between messages
    asked: SimpleQueue[int] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), name="listen", daemon=True).start()
    probe: Probe = msgspec.convert(msgspec.json.decode(fields), getattr(import_module(module), name))
    while True:
        _send(out, packed(answer(probe, asked.get())))


def answer(probe: Probe, now_ns: int) -> Answer:
    """What one read says, or why it failed."""
    started = time.monotonic_ns()
    reading, problem, hint = Reading(), "", ""
    try:
        reading = probe.read(now_ns)
    except InferdbgError as error:
        problem, hint = error.message, error.hint
    except Exception as error:  # noqa: BLE001  # whatever a probe raises is reported as its failure
        problem = f"{type(error).__name__}: {error}"
    sections = {name: msgspec.Raw(msgspec.msgpack.encode(section)) for name, section in reading.sections.items()}
    status = "failed" if problem else reading.status
    return Answer(
        sections,
        status,
        problem or reading.message,
        hint or reading.hint,
        reading.mono_ns,
        reading.life,
        time.monotonic_ns() - started,
    )


def _listen(asked: "SimpleQueue[int]") -> None:
    received = bytearray()
    while chunk := os.read(0, 65536):
        received += chunk
        while (message := unpacked(received)) is not None:
            del received[: 4 + len(message)]
            asked.put(msgspec.msgpack.decode(message, type=Ask).now_ns)
    os._exit(0)


def _send(out: int, message: bytes) -> None:
    view: Any = memoryview(message)
    while view:
        view = view[os.write(out, view) :]


if __name__ == "__main__":
    main(*sys.argv[1:4])
