"""What the live screen costs: CPU, memory and the wait for the first picture, on a real box and in a real terminal.

python -m benchmarks.screen_cost

``inferdbg attach BOX`` runs as a person starts it, on a pseudo terminal of 120 x 40 whose output is read and thrown
away, four looks a second. The box is that of a scheduler with made-up tokens in a process of its own: 100,000 blocks,
240 requests running, 16 waiting, 32 steps a second, some requests ending and others beginning, its pool and its rings
full as after some minutes. Processor time is the kernel's, of the screen and of the children that it reads probes in.

Where the host of a virtual machine takes back what was not touched for a moment, any program that sleeps between two
looks pays for its pages anew. That is kept away (`benchmarks.warm`), and 8 MB that are touched four times a second
beside the screen say how well: only windows in which a page cost little are judged. The start cannot be
kept warm; what a fresh page cost before each says how far the machine was from calm, where a calm one takes 0.2 to 0.5.

Memory is that of a screen that was open for minutes, until its memory of the past is full, and showed every view.
"""

import fcntl
import mmap
import os
import pty
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from typing import NamedTuple

from benchmarks.person import environment
from benchmarks.warm import family, kept_warm

CPU_LIMIT_PERCENT, RSS_LIMIT_MB, FIRST_FRAME_LIMIT_S = 4.0, 100.0, 0.5
BLOCKS, RUNNING, REQUESTS, STEPS_A_SECOND = 100_000, 240, 256, 32
STEPS_BEFORE = 5_000  # by then the free blocks and the ring of events are used up
COLUMNS, LINES = 120, 40
WARM_UP_S, WINDOW_S = 4.0, 2.0
WINDOWS, MOST_WINDOWS = 6, 30
CALM_PAGE_US, CALM_FRESH_PAGE_US = 0.5, 1.0
OPEN_S, EACH_VIEW_S = 180.0, 4.0
VIEWS = (("1", "overview"), ("2", "KV map"), ("3", "requests"), ("4", "batch"))
_MEMORY = bytearray(os.urandom(8 << 20))


class Share(NamedTuple):
    """What one window of time showed: share of a core, and what touching a page cost then."""

    cpu_percent: float
    page_us: float


class Cost(NamedTuple):
    fresh_page_us: float
    first_frame_s: float
    shares: list[Share]

    def cpu_percent(self, *, calm: bool) -> float | None:
        """The median of the windows, or of the calm ones; None when these are too few."""
        shares = [share.cpu_percent for share in self.shares if not calm or share.page_us <= CALM_PAGE_US]
        return statistics.median(shares) if len(shares) >= WINDOWS or not calm else None


class Screen:
    """A screen on a pseudo terminal of its own, when its first picture is there."""

    def __init__(self, box: str) -> None:
        self._ours, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        begun = time.monotonic()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "inferdbg", "attach", box],
            stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            env=environment(),
        )  # fmt: skip
        os.close(terminal)
        first = threading.Event()
        threading.Thread(target=_swallow, args=(self._ours, b"verdict", first), name="terminal", daemon=True).start()
        if not first.wait(20):
            self._child.kill()
            raise SystemExit("the screen showed nothing within 20 s")
        self.first_frame_s = time.monotonic() - begun
        self.pid = self._child.pid

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def close(self) -> None:
        self.press("q")
        self._child.wait(10)


def measure(box: str, view: str) -> Cost:
    """Starts the screen, changes to the view, waits until it is warm, and counts until enough windows were calm."""
    fresh_page_us = _fresh_page_us()
    screen = Screen(box)
    screen.press(view)
    shares: list[Share] = []
    with kept_warm():
        time.sleep(WARM_UP_S)
        while sum(share.page_us <= CALM_PAGE_US for share in shares) < WINDOWS and len(shares) < MOST_WINDOWS:
            shares.append(_share(screen.pid))
    screen.close()
    return Cost(fresh_page_us, screen.first_frame_s, shares)


def measure_memory(box: str) -> tuple[float, float]:
    """MB in the end, and the most there was."""
    screen = Screen(box)
    time.sleep(OPEN_S)
    for key, _ in VIEWS:
        screen.press(key)
        time.sleep(EACH_VIEW_S)
    found = _status_mb(screen.pid, "VmRSS"), _status_mb(screen.pid, "VmHWM")
    screen.close()
    return found


def _fresh_page_us() -> float:
    begun = time.thread_time()
    with mmap.mmap(-1, len(_MEMORY)) as fresh:
        for at in range(0, len(fresh), 4096):
            fresh[at] = 1
    return (time.thread_time() - begun) / (len(_MEMORY) / 4096) * 1e6


def _share(pid: int) -> Share:
    before, at, touches = _cpu_s(pid), time.monotonic(), []
    while time.monotonic() - at < WINDOW_S:
        time.sleep(0.25)
        touched = time.thread_time()
        sum(_MEMORY[::4096])
        touches.append((time.thread_time() - touched) / (len(_MEMORY) / 4096) * 1e6)
    return Share((_cpu_s(pid) - before) / (time.monotonic() - at) * 100, statistics.median(touches))


def _swallow(controller: int, wanted: bytes, seen: threading.Event) -> None:
    tail = b""
    while True:
        ready, _, _ = select.select([controller], [], [], 1.0)
        if not ready:
            continue
        try:
            data = os.read(controller, 65536)
        except OSError:
            return
        if not seen.is_set():
            tail = tail[-100:] + data
            if wanted in tail:
                seen.set()


def _cpu_s(pid: int) -> float:
    """Processor time of a process and of its living children."""
    # the clock of a process's scheduled time: CPUCLOCK_SCHED of the Linux kernel
    return sum(time.clock_gettime((~one << 3) | 2) for one in family(pid))


def _status_mb(pid: int, name: str) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


def main() -> int:
    folder = tempfile.mkdtemp(prefix="screen-", dir="/dev/shm")
    command = ["benchmarks.synthetic", folder, *map(str, (BLOCKS, RUNNING, REQUESTS, STEPS_A_SECOND, STEPS_BEFORE))]
    engine = subprocess.Popen(
        [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert engine.stdout is not None
        return report(engine.stdout.readline().strip())
    finally:
        engine.communicate("")
        shutil.rmtree(folder)


def report(box: str) -> int:
    print(
        f"{BLOCKS:,} blocks, {REQUESTS} requests, {STEPS_A_SECOND} steps/s, 4 looks/s, {COLUMNS} x {LINES}", flush=True
    )
    costs = []
    for key, title in VIEWS:
        cost = measure(box, key)
        costs.append(cost)
        calm = cost.cpu_percent(calm=True)
        page_us = statistics.median(share.page_us for share in cost.shares)
        print(
            f"{title:9} cpu {cost.cpu_percent(calm=False):4.1f} % of a core at {page_us:.2f} us a page, "
            f"{'no calm windows' if calm is None else f'{calm:.1f} % when calm'}   "
            f"first picture {cost.first_frame_s * 1000:.0f} ms at {cost.fresh_page_us:.1f} us a fresh page",
            flush=True,
        )
    rss_mb, peak_mb = measure_memory(box)
    print(
        f"memory    {rss_mb:.0f} MB after {OPEN_S / 60:.0f} minutes and all views, {peak_mb:.0f} MB at most", flush=True
    )
    first_s = statistics.median(cost.first_frame_s for cost in costs)
    calm_start = statistics.median(cost.fresh_page_us for cost in costs) <= CALM_FRESH_PAGE_US
    shares = [cost.cpu_percent(calm=True) for cost in costs]
    held = {
        f"cpu {CPU_LIMIT_PERCENT:.0f} %": None if None in shares else max(filter(None, shares)) <= CPU_LIMIT_PERCENT,
        f"memory {RSS_LIMIT_MB:.0f} MB": rss_mb <= RSS_LIMIT_MB,
        f"first picture {FIRST_FRAME_LIMIT_S * 1000:.0f} ms (median {first_s * 1000:.0f})": (
            True if first_s <= FIRST_FRAME_LIMIT_S else False if calm_start else None
        ),
    }
    words = {True: "holds", False: "does NOT hold", None: "not judged, the machine was not calm"}
    print("bounds    " + "; ".join(f"{bound}: {words[holds]}" for bound, holds in held.items()))
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
