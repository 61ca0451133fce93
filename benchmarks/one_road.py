"""One road: decode(encode(snapshot)) is equal, and the same SVG comes from live and from the recording of it.

A real engine under load is watched and recorded. Then, for moments all over the recording, the Snapshot read back is
compared with the one that was seen, and every view is drawn twice: from the live source, scrubbed back to that moment,
and from the file. The sources are shown under one name and both as standing still: those are the only words on the
screen that say where a moment comes from.

    python -m benchmarks.one_road [--seconds 20]
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from inferdbg.cli import target
from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.source import Source
from inferdbg.facts.window import Window
from inferdbg.record.replay import ReplaySource
from inferdbg.record.writer import RecordingWriter
from inferdbg.tui.app import App

COMMAND = [sys.executable, "-m", "inferdbg"]
INTERVAL_S = 0.25
MOMENTS = 8
VIEWS = "12345"
SIZES = ((80, 24), (120, 40), (200, 60))


class StandingStill:
    """A Source under a neutral name, at its end: nothing new arrives."""

    live = False
    title = "the engine"
    problem = None

    def __init__(self, source: Source) -> None:
        self._source = source

    def advance(self) -> bool:
        return False

    def span(self) -> tuple[int, int]:
        return self._source.span()

    def window(self, at_ns: int | None = None) -> Window:
        return self._source.window(at_ns)

    def close(self) -> None:
        return None


def watch(seconds: float, path: Path) -> tuple[Source, list[Snapshot]]:
    """The live source, its engine gone, and every Snapshot it saw; the recording lies at ``path``."""
    options = ["serve", "tiny", "--port", "0", "--num-blocks", "96", "--max-running", "12", "--json"]
    options += ["--blackbox-dir", str(path.parent / "boxes")]
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        traffic = subprocess.Popen([*COMMAND, "load", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            source = target.engine_source(target.engine_of(str(server.pid)), RecordingWriter(path))
            seen: list[Snapshot] = []
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if source.advance():
                    seen.append(source.window().now)
                time.sleep(INTERVAL_S)
        finally:
            traffic.kill()
            traffic.wait()
            server.kill()
    source.close()
    return source, seen


def equal(seen: Sequence[Snapshot], replay: ReplaySource) -> int:
    """How many of the Snapshots read back are not what was seen."""
    return sum(replay.window(snapshot.mono_ns).now != snapshot for snapshot in seen)


async def drawn(source: Source, at_ns: int, view: str, size: tuple[int, int]) -> str:
    """One view as SVG."""
    app = App(StandingStill(source), diagnose, at_ns=at_ns)
    async with app.run_test(size=size) as pilot:
        while app.frame is None:
            await pilot.pause(0.01)
        await pilot.press(view)
        await pilot.pause()
        return app.export_screenshot(simplify=True)


def same_pictures(seen: Sequence[Snapshot], live: Source, replay: Source) -> tuple[int, int, int]:
    """Moments drawn, how many of them differ, and how many pictures there are that are not the same as another."""
    moments = seen[:: max(1, len(seen) // MOMENTS)][:MOMENTS]
    count = differing = 0
    kinds: set[str] = set()
    for moment in moments:
        for view in VIEWS:
            size = SIZES[count % len(SIZES)]
            pair = [asyncio.run(drawn(source, moment.mono_ns, view, size)) for source in (live, replay)]
            count += 1
            differing += pair[0] != pair[1]
            kinds.add(pair[0])
    return count, differing, len(kinds)


def main(arguments: list[str]) -> int:
    seconds = float(arguments[arguments.index("--seconds") + 1]) if "--seconds" in arguments else 20.0
    with tempfile.TemporaryDirectory(prefix="road-", dir="/dev/shm") as folder:
        path = Path(folder) / "run.idbg"
        live, seen = watch(seconds, path)
        replay = ReplaySource(path)
        replay.advance()
        unequal = equal(seen, replay)
        requests = max(len(s.requests.items) if s.requests else 0 for s in seen)
        print(f"{len(seen)} Snapshots of a real engine, up to {requests} requests; read back unequal: {unequal}")
        count, differing, kinds = same_pictures(seen, live, replay)
        print(f"{count} pictures ({kinds} distinct) of {len(VIEWS)} views, live and recorded: {differing} differ")
        replay.close()
    return 0 if seen and kinds > len(VIEWS) and not unequal and not differing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
