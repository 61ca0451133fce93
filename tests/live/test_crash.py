"""However an engine dies, its box can be read, and says what was half done: fifteen deaths of real processes.

`make shows` kills three hundred."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.server import Server
from inferdbg.probes.discovery import discover
from inferdbg.probes.engine_box import EngineBox
from tests.support.boxes import living_engine

from .commands import inferdbg

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120

pytestmark = pytest.mark.live


def test_every_death_leaves_a_sound_box_and_the_intent_covers_what_disagrees() -> None:
    command = [sys.executable, "-m", "benchmarks.crash", "--kills", "15", "--forced", "9", "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 of 15 deaths left a sound box" in done.stdout


def test_a_killed_engine_is_found_dead_and_read_like_a_living_one(tmp_path: Path) -> None:
    with living_engine(tmp_path) as engine:
        probe = EngineBox(engine.path)
        asked_ns = time.monotonic_ns()
        alive = probe.read(asked_ns)
        assert alive.mono_ns is None or alive.mono_ns > asked_ns
        server = alive.sections["server"]
        assert isinstance(server, Server)
        assert (server.state, server.pid) == ("alive", engine.process.pid)
        engine.process.send_signal(signal.SIGKILL)
        engine.process.wait()
        dead = probe.read(time.monotonic_ns())
        probe.close()
    server = dead.sections["server"]
    assert isinstance(server, Server)
    assert server.state == "dead"
    found = discover(now_wall_ns=time.time_ns(), now_mono_ns=time.monotonic_ns(), folders=[str(tmp_path)])
    assert (engine.path, "dead", engine.process.pid) in [(e.box_path, e.state, e.pid) for e in found.engines]


def test_a_living_engine_is_found_by_its_lock_wherever_its_box_lies(tmp_path: Path) -> None:
    with living_engine(tmp_path / "anywhere") as engine:
        found = discover(now_wall_ns=time.time_ns(), now_mono_ns=time.monotonic_ns())
    assert (engine.path, "alive", engine.process.pid) in [(e.box_path, e.state, e.pid) for e in found.engines]


def test_a_stopped_process_is_read_without_its_help(tmp_path: Path) -> None:
    with living_engine(tmp_path) as engine:
        probe = EngineBox(engine.path)
        engine.process.send_signal(signal.SIGSTOP)
        _wait_until_stopped(engine.process.pid)
        first, second = (probe.read(time.monotonic_ns()).sections["pulse"] for _ in range(2))
        probe.close()
        assert isinstance(first, Pulse)
        assert isinstance(second, Pulse)
        assert first.heartbeat_ns == second.heartbeat_ns
        assert first.step == second.step > 0


def test_a_clean_stop_leaves_no_box(tmp_path: Path) -> None:
    with living_engine(tmp_path) as engine:
        assert os.path.exists(engine.path)
        assert engine.process.stdin is not None
        engine.process.stdin.close()
        assert engine.process.wait(DEADLINE_S) == 0
        assert not os.path.exists(engine.path)


def _wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_one_that_died_is_named_beside_one_that_lives(tmp_path: Path) -> None:
    with living_engine(tmp_path) as gone, living_engine(tmp_path) as here:
        gone.process.kill()
        gone.process.wait()
        top = inferdbg("top", "--blackbox-dir", str(tmp_path))
        assert f"pid {here.process.pid}" in top.out
        said = top.err.partition("died lately: ")[2].splitlines()[0]
        assert f"pid {gone.process.pid} " in said
        to_type = said.partition("   inferdbg ")[2].split()
        assert "DEAD" in inferdbg(*to_type, "--once").out
