"""The kernel's log of this machine: who was killed or crashed, what the GPU driver, disks and links reported.

Read from /dev/kmsg, which needs no root where kernel.dmesg_restrict is 0, else from the journal. Nothing is written,
and nobody else's place in it moves.
"""

import contextlib
import errno
import json
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.kernel_log import KernelEvent
from inferdbg.facts.sections.kernel_log import KernelLog as Section

from ..containers import has_own_pids
from .events import Reports
from .lines import Entry, entries

KEPT = 64
_MOST_RECORDS = 1 << 16
_RECORD_BYTES = 8192
_JOURNAL_LINES = 5000
_JOURNAL_S = 4.0


@dataclass
class KernelLog:
    """``device``: where the kernel gives its messages out."""

    device: str = "/dev/kmsg"
    proc: str = "/proc"

    name = "kernel log"
    sections = ("kernel_log",)
    cadence_ns = 2 * SECOND
    deadline_ns = 5 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._descriptor: int | None = None
        self._cursor: str | None = None
        self._reports = Reports()
        self._items: deque[KernelEvent] = deque(maxlen=KEPT)
        self._first_ns: int | None = None
        self._read_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        try:
            found, source = self._records(), self.device
        except OSError as error:
            journal = self._journal()
            if journal is None:
                return _unread(error.errno, self.device)
            found, source = journal, "journalctl -k"
        for entry in found:
            if self._first_ns is None:
                self._first_ns = entry.mono_ns
            event = self._reports.take(entry)
            if event is not None:
                self._items.append(self._dated(event, now_ns))
        self._read_ns = now_ns
        section = Section(Origin(self.name, now_ns), source, tuple(self._items), self._first_ns)
        return Reading({"kernel_log": section}, message=self._caveat())

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _dated(self, event: KernelEvent, now_ns: int) -> KernelEvent:
        """The kernel's clock is its own: what is new since the last look happened since then."""
        if event.mono_ns is None:
            return event
        earliest = self._read_ns if self._read_ns is not None else 0
        return replace(event, mono_ns=max(earliest, min(event.mono_ns, now_ns)))

    def _records(self) -> list[Entry]:
        """What is new. A record is one read: a line, and below it fields that we do not need (kernel's
        Documentation/ABI/testing/dev-kmsg)."""
        if self._descriptor is None:
            self._descriptor = os.open(self.device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        lines: list[bytes] = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EINVAL):  # overwritten before it was read, or too long
                    raise
                continue
            if not record:
                break  # a file, not the device
            lines.append(record.partition(b"\n")[0] if _is_device(self._descriptor) else record)
        return list(entries(b"\n".join(lines)))

    def _journal(self) -> list[Entry] | None:
        """What is new in the journal; None where that cannot be had."""
        program = shutil.which("journalctl")
        if program is None:
            return None
        place = [f"--after-cursor={self._cursor}"] if self._cursor else [f"--lines={_JOURNAL_LINES}"]
        try:
            done = subprocess.run(
                [program, "-k", "-b", "-o", "json", "--no-pager", "-q", *place],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_JOURNAL_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0 or (not done.stdout and self._cursor is None):
            return None
        self._cursor = next(_cursors(done.stdout), self._cursor)
        return list(entries(done.stdout))

    def _caveat(self) -> str:
        return "its PIDs are those of the host, not of this container" if has_own_pids(self.proc) else ""


def _is_device(descriptor: int) -> bool:
    return not os.path.isfile(f"/proc/self/fd/{descriptor}")


def _cursors(journal: bytes) -> Iterator[str]:
    """The last first."""
    for line in reversed(journal.splitlines()):
        with contextlib.suppress(ValueError):
            fields = json.loads(line)
            if isinstance(fields, dict) and isinstance(fields.get("__CURSOR"), str):
                yield fields["__CURSOR"]


def _unread(reason: int | None, device: str) -> Reading:
    if reason in (errno.EPERM, errno.EACCES):
        return Reading(
            {},
            "denied",
            "the kernel log may not be read by us (kernel.dmesg_restrict)",
            "sudo dmesg -T   shows it; sudo sysctl kernel.dmesg_restrict=0 lets us",
        )
    if reason == errno.ENOENT:
        return Reading({}, "absent", f"there is no {device} here: a container?", "on the host: dmesg -T")
    raise InferdbgError(f"{device} cannot be read: {os.strerror(reason or errno.EIO)}")
