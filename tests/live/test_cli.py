"""The main road by its commands: serve, look, record, open; an engine that hangs and one that was killed."""

import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import DEADLINE_S, INFERDBG, Done, Serving, eventually, inferdbg, serving, traffic

pytestmark = pytest.mark.live

HEAVY = ("torch", "textual", "numpy", "pynvml", "urllib3", "zstandard", "psutil")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One healthy engine under traffic for all tests that do it no harm."""
    with serving(tmp_path_factory.mktemp("boxes")) as served, traffic(served.url):
        eventually(lambda: inferdbg("attach", served.box, "--json"), lambda done: _generated(done) > 20)
        yield served


def _generated(done: Done) -> int:
    if not done.out:
        return 0
    total: int = json.loads(done.out)["snapshot"].get("scheduler", {}).get("generated_tokens_total", 0)
    return total


def test_attach_says_how_a_running_engine_is(engine: Serving) -> None:
    done = inferdbg("attach", str(engine.pid), "--json")
    assert done.code == 0, done
    look = json.loads(done.out)
    assert look["schema"] == "inferdbg.snapshot.v1"
    assert look["snapshot"]["server"]["state"] == "alive"
    assert look["snapshot"]["server"]["pid"] == engine.pid
    assert look["snapshot"]["processes"]["items"][0]["pid"] == engine.pid
    well = {probe["probe"] for probe in look["snapshot"]["probes"] if probe["status"] == "ok"}
    assert well - {"kernel log"} == {"engine box", "processes"}, "the kernel's log is not everybody's to read"
    assert done.err == ""


@pytest.mark.parametrize("way", ["url", "address", "box"])
def test_a_running_engine_has_several_names(engine: Serving, way: str) -> None:
    name = {"url": engine.url, "address": engine.url.removeprefix("http://"), "box": engine.box}[way]
    done = inferdbg("attach", name, "--once")
    assert done.code == 0, done
    assert f"pid {engine.pid}" in done.out
    assert "● OK" in done.out


@pytest.mark.parametrize("argv", [["--once"], ["--once", "--json"]], ids=" ".join)
def test_one_look_loads_nothing_heavy(engine: Serving, argv: list[str]) -> None:
    code = (
        "import sys; from inferdbg.cli.main import main; "
        f"main(['attach', {str(engine.pid)!r}, *{argv}]); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert {name.partition(".")[0] for name in done.stderr.split()}.isdisjoint(HEAVY)


def test_top_without_a_terminal_prints_one_look(engine: Serving) -> None:
    done = inferdbg("top", "--blackbox-dir", os.path.dirname(engine.box))
    assert done.code == 0, done
    assert "verdict" in done.out
    assert "\x1b" not in done.out


def test_probes_say_what_they_see(engine: Serving) -> None:
    done = inferdbg("probes", str(engine.pid))
    assert done.code == 0, done
    assert done.out.startswith("engine box   ok")


def test_a_recording_shows_what_was_there(engine: Serving, tmp_path: Path) -> None:
    path = str(tmp_path / "run.idbg")
    assert inferdbg("record", str(engine.pid), "-o", path, "--for", "1s").code == 0
    last = inferdbg("open", path, "--json")
    first = inferdbg("open", path, "--json", "--at", "+0s")
    assert (last.code, first.code) == (0, 0)
    assert json.loads(last.out)["snapshot"]["server"]["pid"] == engine.pid
    assert 0 < _generated(first) < _generated(last)
    assert f"pid {engine.pid}" in inferdbg("open", path).out
    assert inferdbg("open", path, "--at", "+1h", "--once").code == 2


def test_a_recording_is_not_overwritten_unless_told(engine: Serving, tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    path.write_text("precious")
    refused = inferdbg("record", engine.box, "-o", str(path), "--for", "1ms")
    assert refused.code == 2
    assert "exists already" in refused.err
    assert path.read_text() == "precious"
    assert inferdbg("record", engine.box, "-o", str(path), "--for", "1ms", "--force").code == 0
    assert inferdbg("open", str(path)).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_recording_that_is_ended_by_a_signal_is_complete(number: int, engine: Serving, tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    with subprocess.Popen([*INFERDBG, "record", engine.box, "-o", str(path)], stderr=subprocess.PIPE) as recorder:
        eventually(lambda: Done(path.stat().st_size if path.exists() else 0, "", ""), lambda done: done.code > 1000)
        recorder.send_signal(number)
        _, said = recorder.communicate(timeout=DEADLINE_S)
    assert recorder.returncode == 0
    assert b"recorded" in said
    assert inferdbg("open", str(path)).code == 0


NOHUP = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def screen(engine: Serving, log: Path | None = None) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    """A live screen on a terminal of its own, of which our end is given, when its first picture is there. With a
    ``log`` as a shell starts `nohup inferdbg top 2>log`."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    command = [*INFERDBG, "top", "--blackbox-dir", os.path.dirname(engine.box)]
    complaints = its if log is None else os.open(log, os.O_WRONLY | os.O_CREAT)
    command = command if log is None else [sys.executable, "-c", NOHUP, *command]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=complaints, start_new_session=True) as top:
        for descriptor in {its, complaints}:
            os.close(descriptor)
        seen = b""
        while b"verdict" not in seen:
            assert select.select([ours], [], [], DEADLINE_S)[0], seen
            seen += os.read(ours, 65536)
        yield top, ours


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), (signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)], ids=str
)
def test_a_screen_ends_with_0_when_left_and_130_by_a_signal(
    end: str | signal.Signals, code: int, engine: Serving
) -> None:
    with screen(engine) as (top, ours):
        if isinstance(end, str):
            os.write(ours, end.encode())
        else:
            top.send_signal(end)
        with contextlib.suppress(OSError):  # EIO: nobody has it open any more
            while os.read(ours, 65536):
                pass
        assert top.wait(DEADLINE_S) == code
        os.close(ours)


def test_a_screen_whose_terminal_is_gone_ends_by_itself(engine: Serving, tmp_path: Path) -> None:
    """A connection that breaks without a hangup; reading on from it would take a whole core of somebody's server, and
    writing on to it must neither wait nor complain."""
    with screen(engine, tmp_path / "log") as (top, ours):
        os.close(ours)
        assert top.wait(DEADLINE_S) == 0
    assert (tmp_path / "log").read_text() == ""


def test_a_folder_that_cannot_be_written_is_told(engine: Serving, tmp_path: Path) -> None:
    done = inferdbg("record", engine.box, "-o", str(tmp_path / "none" / "run.idbg"))
    assert done.code == 3
    assert "cannot be written" in done.err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_recording_that_fills_the_disk_says_so_and_can_be_read(engine: Serving, small_disk: Path) -> None:
    path = small_disk / "run.idbg"
    command = [*INFERDBG, "record", engine.box, "-o", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
        eventually(lambda: Done(path.stat().st_size if path.exists() else 0, "", ""), lambda done: done.code > 1000)
        with contextlib.suppress(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        _, said = recorder.communicate(timeout=DEADLINE_S)
    assert recorder.returncode == 3
    assert f"{path} cannot be written further: No space left on device; until " in said
    assert f"pid {engine.pid}" in inferdbg("open", str(path), "--once").out


def test_a_port_in_use_is_told_before_the_model_is_loaded(engine: Serving) -> None:
    port = engine.url.rpartition(":")[2]
    done = inferdbg("serve", "tiny", "--port", port)
    assert done.code == 3
    assert f"port {port} on 127.0.0.1 is in use" in done.err
    assert "--port" in done.err.splitlines()[1]


def test_load_says_what_its_clients_saw(engine: Serving) -> None:
    done = inferdbg("load", engine.url, "--mix", "chat", "--rate", "20", "--requests", "5", "--json")
    assert done.code == 0, done
    assert json.loads(done.out)["sent"] == 5


def test_a_reader_that_goes_away_ends_it_quietly(engine: Serving) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*INFERDBG, "attach", engine.box, "--once"],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=False,
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.parametrize("closed", ["out", "err"])
def test_a_stream_that_was_closed_before_leaves_the_exit_code(engine: Serving, closed: str) -> None:
    number = {"out": "1", "err": "2"}[closed]
    for argv, code in (((engine.box, "--once"), 0), (("no such thing",), 3)):
        shell = ("sh", "-c", f'exec "$@" {number}>&-', "sh")
        done = subprocess.run(
            [*shell, *INFERDBG, "attach", *argv], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == code, done
        assert "bug in inferdbg" not in done.stderr


@pytest.mark.parametrize(("argv", "code"), [(("attach", "no such thing"), 3), (("--help",), 141)])
def test_a_reader_that_goes_away_leaves_the_exit_code(argv: tuple[str, ...], code: int) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*INFERDBG, *argv], stdout=write, stderr=write, timeout=DEADLINE_S, check=False)
    os.close(write)
    assert done.returncode == code


def test_a_wedged_kernel_is_named_without_the_engines_help(tmp_path: Path) -> None:
    with serving(tmp_path, "--fault", "wedge:step=40,layer=2") as served, traffic(served.url):
        done = eventually(lambda: inferdbg("attach", served.box, "--once"), lambda done: done.code == 1)
        assert "● STUCK" in done.out
        assert "step 40 has not moved for" in done.out
        assert "forward, layer 2, kernel attention launched and not completed" in done.out
        assert "a fault planted with --fault" in done.out
        found = json.loads(inferdbg("attach", served.box, "--json").out)["findings"]
        assert [finding["cause"] for finding in found] == ["kernel_wedged", "planted_fault"]
        served.kill()  # it would take its time to stop


def test_an_engine_whose_thread_ended_by_an_error_is_named_by_that_error(tmp_path: Path) -> None:
    options = ("--num-blocks", "64", "--fault", "corrupt:step=40,what=refcount")
    with serving(tmp_path, *options) as served, traffic(served.url):
        done = eventually(
            lambda: inferdbg("attach", served.box, "--json"),
            lambda done: "engine_thread_gone" in [found["cause"] for found in json.loads(done.out)["findings"]],
        )
        first = json.loads(done.out)["findings"][0]
        assert first["cause"] == "engine_thread_gone"
        assert first["confidence"] == "sure"
        assert first["summary"].startswith("the engine's thread ended")
        assert "Error: " in first["summary"]
        served.kill()


def test_a_box_that_was_damaged_under_a_living_engine_is_named(engine: Serving) -> None:
    with serving(Path(engine.box).parent) as served:
        with open(served.box, "r+b") as box:
            box.write(bytes(64))
        top = inferdbg("top", "--blackbox-dir", os.path.dirname(engine.box))
        assert top.code == 0, top
        assert f"also here: {served.box} is not a readable black box" in top.err
        attach = inferdbg("attach", str(served.pid))
        assert attach.code == 3
        assert f"has a black box, and it is damaged: {served.box} is not" in attach.err


def test_a_killed_engine_is_dead_and_its_recording_ends_with_that(tmp_path: Path) -> None:
    path = str(tmp_path / "run.idbg")
    with serving(tmp_path) as served, traffic(served.url):
        eventually(lambda: inferdbg("attach", served.box, "--json"), lambda done: _generated(done) > 20)
        recorder = subprocess.Popen([*INFERDBG, "record", served.box, "-o", path], stderr=subprocess.PIPE)
        eventually(lambda: Done(0, str(os.path.exists(path)), ""), lambda done: done.out == "True")
        served.kill()
        _, said = recorder.communicate(timeout=DEADLINE_S)
        assert recorder.returncode == 1
        assert b"died meanwhile" in said
        for argv in (("attach", served.box, "--once"), ("open", served.box), ("open", path)):
            done = inferdbg(*argv)
            assert done.code == 1, argv
            assert "● DEAD" in done.out
            assert f"pid {served.pid} died at" in done.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        (b"", "is not a readable black box"),
        (b"idbg-box" + bytes(100), "is not a readable black box"),
        (b"idbg-box" + b"\xff" * 4000, "black box"),
    ],
    ids=["missing", "empty", "short", "nonsense"],
)
@pytest.mark.parametrize("verb", ["attach", "open"])
def test_a_box_that_cannot_be_read_is_told_in_a_line(
    verb: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "58.box"
    if content is not None:
        path.write_bytes(content)
    done = inferdbg(verb, str(path))
    assert done.code == 3
    assert said in done.err
    assert "Traceback" not in done.err


def test_what_cannot_be_recorded_leaves_no_file(engine: Serving, tmp_path: Path) -> None:
    path, other = str(tmp_path / "run.idbg"), str(tmp_path / "other.idbg")
    assert inferdbg("record", engine.box, "-o", path, "--for", "1ms").code == 0
    for argv, code in (
        (("record", path, "-o", other), 2),
        (("record", "no such thing", "-o", other), 3),
        (("attach", engine.box, "--once", "--record", other), 2),
    ):
        assert inferdbg(*argv).code == code, argv
        assert not os.path.exists(other), argv


def test_serving_without_torch_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from inferdbg.cli.main import main; sys.exit(main(['serve', 'tiny']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines()[1] == "  pip install 'inferdbg[engine]'"


def test_a_recording_that_is_none_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    path.write_bytes(b"not a recording at all")
    done = inferdbg("open", str(path))
    assert done.code == 3
    assert "is not an inferdbg recording" in done.err


def test_a_process_that_is_no_engine_is_told() -> None:
    done = inferdbg("attach", str(os.getpid()))
    assert done.code == 3
    assert "keeps no black box" in done.err


def _descendants(pid: int) -> set[int]:
    """Children of a process, by /proc."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.add(int(entry.name))
    return found


def test_a_demo_without_a_terminal_shows_traffic_and_leaves_nothing_behind() -> None:
    done = inferdbg("top", "--demo", "--model", "tiny")
    assert done.code == 0, done
    assert "tokens/s out" in done.out
    pid = int(done.err.rpartition("pid ")[2])
    assert not os.path.exists(f"/proc/{pid}")


def test_a_demo_ends_with_the_one_who_asked_for_it_even_if_that_was_killed() -> None:
    top = subprocess.Popen(
        [*INFERDBG, "top", "--demo", "--model", "tiny"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert top.stderr is not None
    top.stderr.readline()  # says that the engine serves
    children: set[int] = set()
    eventually(
        lambda: Done(len(children.update(_descendants(top.pid)) or children), "", ""), lambda done: done.code >= 2
    )
    top.kill()
    top.communicate(timeout=DEADLINE_S)
    eventually(
        lambda: Done(sum(os.path.exists(f"/proc/{pid}") for pid in children), "", ""), lambda done: done.code == 0
    )
