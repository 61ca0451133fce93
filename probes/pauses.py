"""How long a process stood still while somebody traced it, seen from outside."""

import os
import threading
import time
from types import TracebackType

_LOOK_S = 0.0005


class Pause:
    """While this is entered, a thread of ours looks at the state of the main thread of ``pid`` twice a millisecond
    (/proc/PID/task/PID/stat). ``t`` is a thread that a tracer holds: ptrace_stop in the kernel; a process that was
    stopped by a signal before (``T``) does not count. A stop lasts from the first look that found it to the first that
    did not, so each is right within a millisecond or two, and what is shorter than half a millisecond may be missed."""

    def __init__(self, pid: int) -> None:
        self._path = f"/proc/{pid}/task/{pid}/stat"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pause", daemon=True)
        self._stopped_ns = 0

    @property
    def stopped_ns(self) -> int | None:
        """All stops together; None: none was seen."""
        return self._stopped_ns or None

    def __enter__(self) -> "Pause":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        since_ns: int | None = None
        try:
            while not self._over.is_set():
                stat = os.pread(file, 1024, 0)
                now_ns, held = time.monotonic_ns(), stat[stat.rfind(b")") + 2 :][:1] == b"t"
                if held and since_ns is None:
                    since_ns = now_ns
                elif not held and since_ns is not None:
                    self._stopped_ns += now_ns - since_ns
                    since_ns = None
                self._over.wait(_LOOK_S)
        except OSError:
            pass  # it has ended
        finally:
            if since_ns is not None:
                self._stopped_ns += time.monotonic_ns() - since_ns
            os.close(file)
