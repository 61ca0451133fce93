"""Keeps the memory of a benchmark and of the processes below it from being taken back by the host of a virtual machine.

Some hosts take back what was not touched for a tenth of a second; a program that wakes four times a second then pays 4
to 25 us for each page it touches, whatever it does. A thread that reads a byte of every page a hundred times a second
keeps them there, and what is measured is what it would be on a machine of its own. Nothing is written and no process is
stopped (process_vm_readv, allowed to a process for its children).
"""

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PAGE, _PRESENT, _BATCH = os.sysconf("SC_PAGE_SIZE"), 1 << 63, 1024
_GAP_S, _LIST_EVERY_S = 0.01, 1.0
_libc = ctypes.CDLL(None, use_errno=True)


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def family(pid: int) -> list[int]:
    """A process and all that live below it."""
    found = [pid]
    for one in found:
        for thread in os.listdir(f"/proc/{one}/task"):  # a child is listed with the thread that started it
            with open(f"/proc/{one}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found


def _pages(pid: int) -> Iterator[int]:
    """Addresses of the pages that are present (pagemap of the Linux kernel, bit 63)."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/pagemap", "rb", 0) as pagemap:
        for line in maps:
            ends, rights, *_ = line.split()
            if not rights.startswith("r") or "[v" in line:
                continue
            start, end = (int(one, 16) for one in ends.split("-"))
            pagemap.seek(start // _PAGE * 8)
            words = memoryview(pagemap.read((end - start) // _PAGE * 8)).cast("Q")
            yield from (start + at * _PAGE for at, word in enumerate(words) if word & _PRESENT)


@contextmanager
def kept_warm() -> Iterator[None]:
    """This process and all below it, while the block runs."""
    over = threading.Event()
    thread = threading.Thread(target=_keep, args=(over,), name="warm", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _keep(over: threading.Event) -> None:
    landing = ctypes.create_string_buffer(_BATCH)
    here = _Piece(ctypes.addressof(landing), _BATCH)
    listed_s, batches = 0.0, list[tuple[int, ctypes.Array[_Piece]]]()
    while not over.wait(_GAP_S):
        if time.monotonic() - listed_s > _LIST_EVERY_S:
            with suppress(OSError):  # one ended meanwhile
                batches = [(one, part) for one in family(os.getpid()) for part in _pieces(one)]
            listed_s = time.monotonic()
        for one, part in batches:
            _libc.process_vm_readv(one, ctypes.byref(here), 1, part, len(part), 0)


def _pieces(pid: int) -> Iterator[ctypes.Array[_Piece]]:
    pages = [_Piece(address, 1) for address in _pages(pid)]
    for at in range(0, len(pages), _BATCH):
        part = pages[at : at + _BATCH]
        yield (_Piece * len(part))(*part)
