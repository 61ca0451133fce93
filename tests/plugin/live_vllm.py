"""The plug-in inside a real vLLM: told the truth at every moment, alive, stopped and killed. Run by name.

.venv/bin/python -m pytest tests/plugin/live_vllm.py          needs `make real`
"""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from inferdbg.blackbox.reader import Box
from inferdbg.probes.engine_box import readable_columns
from inferdbg.probes.vllm_plugin.carry import package_files
from tests.live.commands import inferdbg
from tests.real import install
from tests.real.servers import SMALL_POOL, RealServer, needs_vllm, vllm

from .comparing import differences

pytestmark = [pytest.mark.live, needs_vllm]
ALONE = Path(__file__).with_name("vllm_alone.py")
FORWARD = 4


def carry(folder: Path) -> Path:
    for path, content in package_files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@contextmanager
def watched(folder: Path, **env: str) -> Iterator[tuple[RealServer, Path]]:
    """A server with the plug-in in it, and its box."""
    settings = {"INFERDBG": "1", "PYTHONPATH": str(carry(folder / "carried")), "INFERDBG_BLACKBOX_DIR": str(folder)}
    with vllm(folder, *SMALL_POOL, env={**settings, **env}) as server:
        (box,) = folder.glob("*.box")
        yield server, box


@contextmanager
def load(server: RealServer, streams: int = 10, tokens: int = 1500) -> Iterator[None]:
    """Streams that do not fit into the pool together. At the end whoever is left is let go."""

    def one(number: int) -> None:
        body = {"model": "tiny", "prompt": [number + 1] * 200, "max_tokens": tokens, "ignore_eos": True}
        request = urllib.request.Request(
            f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with suppress(OSError):
            urllib.request.urlopen(request, timeout=60).read()

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(streams)]
    for thread in threads:
        thread.start()
    yield


def look(box: Path) -> dict[str, Any]:
    done = inferdbg("attach", str(box), "--once", "--json")
    return dict(json.loads(done.out))


def until_one_waits_for_blocks(box: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        snapshot = look(box)["snapshot"]
        if any(one.get("wait", {}).get("reason") == "blocks" for one in snapshot["requests"]["items"]):
            return snapshot
    raise AssertionError("nobody waited for blocks")


def causes(box: Path) -> dict[str, str]:
    return {one["cause"]: one["summary"] for one in look(box)["findings"]}


def numbers(box: Box, columns: dict[str, bytes]) -> dict[str, memoryview]:
    return {name: memoryview(content).cast(box.layout.columns[name].typecode) for name, content in columns.items()}


def test_the_box_is_what_vllm_holds_and_tells_preemptions_before_its_metrics(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    with watched(tmp_path, INFERDBG_TRUTH=str(truth)) as (server, path):
        box = Box.open(str(path))
        width = json.loads(box.facts() or b"")["facts"]["blocks_per_row"]
        names = readable_columns(box.layout)
        moments: dict[int, dict[str, bytes]] = {}
        ours, theirs, until = 0.0, 0.0, time.monotonic() + 30
        asked = 0.0
        with load(server):
            while time.monotonic() < until and not (theirs and len(moments) > 200):
                moment, now = box.read(names), time.monotonic()
                again = memoryview(box.read(["pulse"]).columns["pulse"]).cast("Q")
                pulse = memoryview(moment.columns["pulse"]).cast("Q")
                still = not moment.torn and not moment.change and list(pulse[1:4]) == list(again[1:4])
                if still and pulse[2] == FORWARD:
                    moments[pulse[1]] = moment.columns
                if not ours and memoryview(moment.columns["counters"]).cast("Q")[9]:
                    ours = now
                if not theirs and now - asked > 0.1:
                    asked = now
                    text = urllib.request.urlopen(f"{server.url}/metrics", timeout=5).read().decode()
                    counted = [line for line in text.splitlines() if line.startswith("vllm:num_preemptions_total")]
                    theirs = now if float(counted[0].split()[-1]) else 0.0
                time.sleep(0.003)
        time.sleep(0.5)
        lines = [line for line in map(json.loads, truth.read_text().splitlines()) if line["at"] == "scheduled"]
        wrong = [
            f"step {line['step']}: {what}"
            for line in lines
            if line["step"] in moments
            for what in differences(line, numbers(box, moments[line["step"]]), width)
        ]
        box.close()
    assert wrong == []
    assert len(moments) > 200
    assert theirs - ours > 0.3


def test_stopped_and_killed_it_is_read_as_that_with_the_step_it_was_in(tmp_path: Path) -> None:
    with watched(tmp_path) as (server, path):
        core = server.children()["VLLM::EngineCor"]
        with load(server):
            seen = until_one_waits_for_blocks(path)
            assert seen["server"]["engine"] == "vllm"
            assert seen["server"]["url"] == server.url
            assert "kv_pressure" in causes(path)
            os.kill(core, signal.SIGSTOP)
            time.sleep(3)
            assert server.health() == 200  # vLLM's own word
            stopped = causes(path)
            assert "process_stopped" in stopped
            assert "has not moved" in stopped["step_stalled"]
            os.kill(core, signal.SIGCONT)
            time.sleep(1)
            os.kill(core, signal.SIGKILL)
            time.sleep(1)
        dead = causes(path)["engine_dead"]
        step = look(path)["snapshot"]["pulse"]["step"]
    assert f"in the middle of step {step:,}" in dead


def test_a_clean_stop_takes_the_box_away(tmp_path: Path) -> None:
    with watched(tmp_path) as (server, path):
        os.kill(server.pid, signal.SIGTERM)
        server.process.wait(30)
        deadline = time.monotonic() + 10
        while path.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not path.exists()


@pytest.mark.parametrize("seed", [0, 1], ids=["Scheduler", "AsyncScheduler"])
def test_random_traffic_through_the_real_scheduler_is_followed_exactly(tmp_path: Path, seed: int) -> None:
    found = alone(tmp_path, "check", seed, 1000)
    assert found["wrong"] == []
    assert found["hooks"] is True
    assert min(found["preempted"], found["evicted"], found["finished"], found["aborted"]) > 0


def alone(folder: Path, *args: object) -> dict[str, Any]:
    done = subprocess.run(
        [str(install.python_of("vllm")), str(ALONE), str(install.tiny_model()), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(carry(folder)), "INFERDBG_BLACKBOX_DIR": str(folder),
             "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))
