"""What a terminal holds after keys and pictures, as an emulator of one understands what it was sent."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from inferdbg.record.writer import RecordingWriter
from tests.support import scenes

DEADLINE_S, QUIET_S = 20.0, 0.4
Cell = tuple[str, str, str, bool, bool]
"""Character, colours of it and of its ground, bold, reverse."""


class Terminal:
    """A screen of ours in an emulated terminal."""

    def __init__(self, child: "subprocess.Popen[bytes]", end: int, columns: int, lines: int) -> None:
        self.child, self._end = child, end
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    def settle(self, holds: Callable[[str], bool] = lambda text: True) -> None:
        """Until it shows that, and nothing more comes for a while."""
        while select.select([self._end], [], [], QUIET_S)[0] or not holds("\n".join(self._screen.display)):
            assert select.select([self._end], [], [], DEADLINE_S)[0], "\n".join(self._screen.display)
            self._stream.feed(os.read(self._end, 65536))

    def press(self, keys: bytes, holds: Callable[[str], bool] = lambda text: True) -> None:
        os.write(self._end, keys)
        self.settle(holds)

    def watch(self, keys: bytes, seconds: float) -> None:
        """What comes within that time after these keys."""
        os.write(self._end, keys)
        end_s = time.monotonic() + seconds
        while select.select([self._end], [], [], max(0.0, end_s - time.monotonic()))[0]:
            self._stream.feed(os.read(self._end, 65536))

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.child.send_signal(signal.SIGWINCH)
        self.settle()

    def leave_for_the_shell(self) -> None:
        """Ctrl-Z, and a shell that draws over everything until we are called back."""
        os.write(self._end, b"\x1a")
        until_s = time.monotonic() + DEADLINE_S
        while Path(f"/proc/{self.child.pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < until_s
            self.settle()
        self._screen.reset()

    def cells(self) -> list[list[Cell]]:
        screen = self._screen
        rows = [[screen.buffer[y][x] for x in range(screen.columns)] for y in range(screen.lines)]
        return [[(cell.data, cell.fg, cell.bg, cell.bold, cell.reverse) for cell in row] for row in rows]

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)


ONE_AFTER_THE_OTHER = """
import gc, sys
from inferdbg.cli.looking import on_screen
from inferdbg.record.replay import ReplaySource
from inferdbg.tui.app import App

for place in ("1/2", "2/2"):
    to_next = on_screen(ReplaySource(sys.argv[1]), 100_000_000, place=place)
gc.collect()
print("to next:", to_next, "screens left:", sum(isinstance(one, App) for one in gc.get_objects()))
input()
"""


@contextlib.contextmanager
def terminal(path: Path, *program: str, columns: int = 120, lines: int = 40) -> Iterator[Terminal]:
    """``inferdbg open`` of the recording, or another program with it, when its first picture is there."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
    command = [sys.executable, *(program or ("-m", "inferdbg", "open")), str(path)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True, env=environment) as child:
        os.close(its)
        shown = Terminal(child, ours, columns, lines)
        try:
            shown.settle(lambda text: "verdict" in text)
            yield shown
        finally:
            child.kill()
            os.close(ours)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run.idbg"
    writer = RecordingWriter(path)
    for snapshot in scenes.pressed():
        writer.write(snapshot)
    writer.close()
    return path


@pytest.mark.parametrize("view", "1234")
def test_lines_drawn_at_once_are_as_the_whole_picture_drawn_anew(view: str, recording: Path) -> None:
    with terminal(recording) as shown:
        shown.press(view.encode())
        before = shown.text
        shown.press(b",", lambda text: "paused" in text and text != before)
        shown.press(b",")
        assert shown.cells() == drawn_anew(shown)


def test_lines_drawn_at_once_find_their_place_after_a_new_size(recording: Path) -> None:
    with terminal(recording) as shown:
        shown.resize(90, 30)
        shown.press(b",", lambda text: "paused" in text)
        shown.press(b",")
        assert shown.cells() == drawn_anew(shown)


def test_pictures_that_come_meanwhile_stay_under_an_open_help(recording: Path) -> None:
    with terminal(recording) as shown:
        shown.press(b"\x1b[H", lambda text: "-10 s" in text)
        shown.press(b"?", lambda text: "escape closes" in text)
        help_alone = box(shown.text)
        shown.press(b"\x1b", lambda text: "escape closes" not in text)
        shown.watch(b" ?", 2.0)  # it plays
        assert box(shown.text) == help_alone
        shown.watch(b"\x1b", 1.0)
        assert "playing" in shown.text


def test_back_from_the_shell_everything_is_drawn_anew(recording: Path) -> None:
    with terminal(recording) as shown:
        before = shown.cells()
        shown.leave_for_the_shell()
        shown.child.send_signal(signal.SIGCONT)
        shown.settle(lambda text: "verdict" in text and "quit" in text)
        assert shown.cells() == before


def test_one_screen_after_the_other_and_none_stays_in_memory(recording: Path) -> None:
    with terminal(recording, "-c", ONE_AFTER_THE_OTHER) as shown:
        shown.press(b"e", lambda text: "server 2/2" in text)
        shown.press(b"e", lambda text: "to next: True screens left: 0" in text)


def drawn_anew(shown: Terminal) -> list[list[Cell]]:
    """The same picture after help lay over it."""
    shown.press(b"?", lambda text: "escape closes" in text)
    shown.press(b"\x1b", lambda text: "escape closes" not in text)
    return shown.cells()


def box(text: str) -> list[str]:
    """The help as it stands on the screen."""
    lines = text.splitlines()
    top = next(y for y, row in enumerate(lines) if "escape closes" in row)
    title = lines[top].index("escape closes")
    left, right = lines[top].rindex("╭", 0, title), lines[top].index("╮", title)
    bottom = next(y for y in range(top, len(lines)) if lines[y][left] == "╰")
    return [row[left : right + 1] for row in lines[top : bottom + 1]]
