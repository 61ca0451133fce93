"""The memory of another process, read while it runs: nothing is stopped, signalled or written."""

import ctypes
import errno
import os
import select
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from inferdbg.errors import InferdbgError

Range = tuple[int, int]
"""(address, bytes)."""

Read = Callable[[int, int], bytes]
"""read(address, size): exactly so many bytes, or Unreadable."""

_MOST_VECTORS = 1024  # IOV_MAX: remote pieces of one process_vm_readv
MOST_BYTES = 1 << 30
_MAPS_BYTES = 64 << 20
_LARGEST_KEPT = 4 << 20
_ADDRESSES = 1 << 48  # nothing in user space lies above


class Unreadable(InferdbgError):
    """No memory at that address, or what is there cannot be what it should be."""


class Gone(Unreadable):
    """The process has ended."""


class MappedFile(NamedTuple):
    """A file in the address space. ``base``: where its first byte lies. ``path``: as the target names it."""

    base: int
    path: str


class Memory(Protocol):
    """What the object reader needs of a target, alive or dead."""

    @property
    def name(self) -> str:
        """What a message calls it: ``process 58``."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly ``size`` bytes; Unreadable where not all of them are there."""

    def read_many(self, ranges: Sequence[Range], into: bytearray | None = None) -> tuple[bytearray, list[int]]:
        """All ranges, one behind the other, in the order given; and the numbers of those that could not be read,
        whose bytes are zero. They are read in that order, so that a range named twice tells whether it changed.
        ``into``: where they are to stand, with room enough; filling fresh memory costs more than reading."""

    def files(self) -> list[MappedFile]:
        """Mapped files whose beginning is mapped too, in order of addresses."""

    def open_file(self, file: MappedFile) -> bytes | None:
        """The whole of a mapped file as it is on disk, if that still is the same file."""

    def thread_name(self, native_id: int) -> str | None:
        """What the kernel calls a thread; None where nobody knows."""

    def check(self) -> None:
        """Gone, when what was read last may not be the target's any more."""

    def close(self) -> None:
        """Gives back what is held open."""


class Buffers:
    """Memory for one reading after another: fresh memory costs more to fill than another process to read."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._taken: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        room = 1 << max(12, (size - 1).bit_length())
        free = self._free.get(room)
        buffer = free.pop() if free else bytearray(room)
        self._taken.append(buffer)
        return buffer

    def take_back(self) -> None:
        """All that was taken: what was read into it is not looked at any more."""
        for buffer in self._taken:
            if len(buffer) <= _LARGEST_KEPT:
                self._free.setdefault(len(buffer), []).append(buffer)
        self._taken.clear()


class Process:
    """The memory of a live, stopped or hung process, through process_vm_readv and /proc/PID/mem.

    Raises InferdbgError when there is no such process or its memory may not be read: the hint says what would help.
    """

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self.pid = pid
        self._proc = f"{proc}/{pid}"
        try:
            self._memory = os.open(f"{self._proc}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(pid, error.errno, proc) from error
        try:
            self._ended = os.pidfd_open(pid)
        except OSError:
            os.close(self._memory)
            raise Gone(f"process {pid} has ended") from None
        try:
            self._maps = parse_maps(self._read_maps())
        except OSError as error:
            self.close()
            raise refusal(pid, error.errno, proc) from error
        if not self._maps:
            self.close()
            raise InferdbgError(f"process {pid} has no memory: it has ended, or is a thread of the kernel")
        self._vectors = _readv()

    @property
    def name(self) -> str:
        return f"process {self.pid}"

    def read(self, address: int, size: int) -> bytes:
        try:
            data = os.pread(self._memory, size, address)
        except (OSError, OverflowError, ValueError):
            data = b""
        if len(data) != size:
            raise Unreadable(f"{size} bytes at {address:#x} of {self.name} cannot be read")
        return data

    def read_many(self, ranges: Sequence[Range], into: bytearray | None = None) -> tuple[bytearray, list[int]]:
        flat = _flat(ranges)
        sizes = flat[1::2]
        total = sum(sizes)
        if total > MOST_BYTES:
            raise Unreadable(f"{total} bytes in one go are more than {self.name} is asked for")
        buffer = bytearray(total) if into is None else into
        missing: list[int] = []
        if not total:
            return buffer, missing
        if self._vectors is None:
            return buffer, self._read_each(ranges, buffer)
        local = (ctypes.c_char * total).from_buffer(buffer)
        start = ctypes.addressof(local)
        remote, _ = flat.buffer_info()
        done = first = 0
        while first < len(ranges):
            count = min(_MOST_VECTORS, len(ranges) - first)
            wanted = sum(sizes[first : first + count])
            target = array("Q", [start + done, wanted])
            got = self._vectors(self.pid, target.buffer_info()[0], 1, remote + 16 * first, count, 0)
            if got == wanted:
                first, done = first + count, done + wanted
                continue
            if got < 0 and (reason := ctypes.get_errno()) not in (errno.EFAULT, errno.EINVAL, errno.ENOMEM):
                if reason == errno.ESRCH:
                    raise Gone(f"{self.name} has ended")
                self._vectors = None  # a sandbox that forbids the call: /proc/PID/mem gives the same bytes
                del local
                return buffer, self._read_each(ranges, buffer)
            got = max(got, 0)
            while sizes[first] <= got:
                got -= sizes[first]
                done += sizes[first]
                first += 1
            buffer[done : done + sizes[first]] = bytes(sizes[first])
            missing.append(first)
            done += sizes[first]
            first += 1
        del local
        return buffer, missing

    def _read_each(self, ranges: Sequence[Range], buffer: bytearray) -> list[int]:
        done, missing = 0, []
        for number, (address, size) in enumerate(ranges):
            try:
                buffer[done : done + size] = self.read(address, size)
            except Unreadable:
                buffer[done : done + size] = bytes(size)
                missing.append(number)
            done += size
        return missing

    def files(self) -> list[MappedFile]:
        return [MappedFile(entry.start, entry.path) for entry in self._maps if entry.offset == 0 and entry.path]

    def open_file(self, file: MappedFile) -> bytes | None:
        entry = next((entry for entry in self._maps if entry.start == file.base), None)
        if entry is None:
            return None
        ways = (
            f"{self._proc}/map_files/{entry.start:x}-{entry.end:x}",  # also a deleted one; needs rights
            f"{self._proc}/exe",
            f"{self._proc}/root{entry.path}",  # the target may live in a container
        )
        for way in ways:
            try:
                with open(way, "rb") as opened:
                    if os.fstat(opened.fileno()).st_ino == entry.inode:
                        return opened.read()
            except OSError:
                continue
        return None

    def thread_name(self, native_id: int) -> str | None:
        try:
            return Path(f"{self._proc}/task/{native_id}/comm").read_text("utf-8", "replace").rstrip("\n")
        except OSError:
            return None

    def check(self) -> None:
        if select.select([self._ended], [], [], 0)[0]:
            raise Gone(f"{self.name} has ended")

    def close(self) -> None:
        os.close(self._memory)
        os.close(self._ended)

    def _read_maps(self) -> bytes:
        with open(f"{self._proc}/maps", "rb") as maps:
            return maps.read(_MAPS_BYTES)


def _flat(ranges: Sequence[Range]) -> "array[int]":
    """As struct iovec has them, one behind the other; what no pointer can be leads to nowhere there too."""
    try:
        return array("Q", chain.from_iterable(ranges))
    except OverflowError:
        return array("Q", [word % (1 << 64) for pair in ranges for word in pair])


class Mapping(NamedTuple):
    """A line of /proc/PID/maps. ``path``: empty for memory of no file."""

    start: int
    end: int
    offset: int
    inode: int
    path: str


def parse_maps(maps: bytes) -> list[Mapping]:
    """Lines of /proc/PID/maps; see proc_pid_maps(5). What is no such line is passed over."""
    found = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        try:
            start, _, end = fields[0].partition(b"-")
            path = os.fsdecode(fields[5]) if len(fields) == 6 and fields[5].startswith(b"/") else ""
            path = path.removesuffix(" (deleted)")
            found.append(Mapping(int(start, 16), int(end, 16), int(fields[2], 16), int(fields[4]), path))
        except (ValueError, IndexError):
            continue
    return found


def refusal(pid: int, reason: int | None, proc: str = "/proc") -> InferdbgError:
    """Why the memory of a process may not be read, and what would allow it."""
    try:
        status = dict(_fields(Path(f"{proc}/{pid}/status").read_text("utf-8", "replace").splitlines()))
    except OSError:
        return Gone(f"there is no process {pid}", "inferdbg top lists the engines that run here")
    if reason not in (errno.EACCES, errno.EPERM):
        return InferdbgError(f"the memory of process {pid} cannot be read: {os.strerror(reason or errno.EIO)}")
    owner = int(status.get("Uid", "0").split()[0])
    name = f"process {pid} ({status.get('Name', '?')})"
    sudo = f"sudo inferdbg attach {pid}"
    if owner != os.getuid() and os.getuid() != 0:
        return InferdbgError(f"{name} belongs to uid {owner}: its memory may not be read by uid {os.getuid()}", sudo)
    if os.getuid() == 0:
        return InferdbgError(
            f"{name} may not be read, though by root: this container has no CAP_SYS_PTRACE",
            "docker run --cap-add SYS_PTRACE, or in Kubernetes securityContext.capabilities.add: [SYS_PTRACE]",
        )
    scope = _yama_scope(proc)
    if scope == 3:
        return InferdbgError(f"no process may be read: kernel.yama.ptrace_scope is {scope} until the next boot")
    if scope:
        cure = f"{sudo}   or: sudo sysctl kernel.yama.ptrace_scope=0"
        return InferdbgError(f"{name} may not be read: kernel.yama.ptrace_scope is {scope}", cure)
    if len(status.get("NSpid", "").split()) > 1:
        return InferdbgError(f"{name} runs in a container, whose memory may not be read from outside", sudo)
    return InferdbgError(f"{name} forbids to be read (it changed its user, or PR_SET_DUMPABLE is 0)", sudo)


def _fields(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(":")
        yield name, value.strip()


def _yama_scope(proc: str) -> int | None:
    try:
        return int(Path(f"{proc}/sys/kernel/yama/ptrace_scope").read_text("ascii"))
    except (OSError, ValueError):
        return None


class _Readv(Protocol):
    def __call__(self, pid: int, local: int, locals_: int, remote: int, remotes: int, flags: int, /) -> int: ...


def _readv() -> _Readv | None:
    """process_vm_readv(2) of the C library, where it has one."""
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return None
    word = ctypes.c_ulong
    call.argtypes = [ctypes.c_int, ctypes.c_void_p, word, ctypes.c_void_p, word, word]
    call.restype = ctypes.c_ssize_t
    found: _Readv = call
    return found


def in_user_space(address: int, size: int = 8) -> bool:
    """Whether a pointer can lead anywhere at all."""
    return address >= 4096 and size >= 0 and address + size <= _ADDRESSES
