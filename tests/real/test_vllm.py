"""A real vLLM, looked at as a person does: idle, busy, short of blocks, hung, and with the thread that answers dead."""

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError

import pytest

from inferdbg.cli import target
from inferdbg.cli.depth import Wanted
from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from tests.live.commands import inferdbg

from .servers import SMALL_POOL, RealServer, needs_vllm, vllm

pytestmark = needs_vllm
T = TypeVar("T")
PLUGIN = Path(__file__).with_name("faulty")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("vllm")
    with vllm(folder, *SMALL_POOL, env={"PYTHONPATH": str(PLUGIN), "FAULTY": str(folder)}) as started:
        yield started


def look(server: RealServer, *options: str) -> dict[str, Any]:
    done = inferdbg("attach", str(server.pid), "--json", *options)
    assert done.code in (0, 1), done
    found: dict[str, Any] = json.loads(done.out)
    return found


def finding(server: RealServer, cause: str, *options: str) -> dict[str, Any] | None:
    return next((found for found in look(server, *options)["findings"] if found["cause"] == cause), None)


def eventually(asked: Callable[[], T | None], seconds: float = 40.0) -> T:
    deadline = time.monotonic() + seconds
    while (found := asked()) is None:
        assert time.monotonic() < deadline, asked
        time.sleep(0.2)
    return found


@contextmanager
def streams(server: RealServer, count: int, tokens: int) -> Iterator[None]:
    """So many clients that ask for long answers, again and again, until the block is left."""
    over = threading.Event()
    body = {"model": "tiny", "prompt": "hello " * 40, "max_tokens": tokens, "ignore_eos": True, "stream": True}

    def client() -> None:
        while not over.is_set():
            asked = urllib.request.Request(
                f"{server.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            with suppress(OSError, HTTPException, ValueError), urllib.request.urlopen(asked, timeout=5) as answer:
                while not over.is_set() and answer.readline():
                    pass

    threads = [threading.Thread(target=client, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


def order(server: RealServer, fault: str, text: str = "") -> None:
    """Asks the plug-in of ``faulty`` for a fault; whole at once, it must never read a half-written order."""
    folder = server.log.parent
    (folder / f"{fault}.part").write_text(text)
    (folder / f"{fault}.part").rename(folder / fault)


def running(server: RealServer) -> int:
    return int(look(server)["snapshot"]["scheduler"].get("running") or 0)


def test_an_idle_one_is_well_and_seen_to_the_last_block(server: RealServer) -> None:
    seen = look(server, "--blocks")
    snapshot = seen["snapshot"]
    assert not [found for found in seen["findings"] if found["severity"] != "note"]
    assert snapshot["server"]["engine"] == "vllm"
    assert snapshot["server"]["version"].startswith("0.")
    assert snapshot["pulse"]["phase"] == "idle"
    assert snapshot["kvcache"]["num_blocks"] == 80
    assert len(snapshot["kvcache"]["state"]) >= 80
    assert snapshot["requests"]["items"] == []


def test_a_server_that_refuses_what_it_is_asked_is_not_called_idle(server: RealServer) -> None:
    """Clients have the model's name wrong."""
    source = target.engine_source(target.engine_of(str(server.pid)), None, Wanted("reported"))

    def refused() -> Finding | None:
        asked = urllib.request.Request(
            f"{server.url}/v1/completions", b'{"model": "other", "prompt": "a"}', {"content-type": "application/json"}
        )
        with pytest.raises(HTTPError):
            urllib.request.urlopen(asked, timeout=5)
        source.advance()
        return next((one for one in diagnose(source.window()) if one.cause == "requests_refused"), None)

    try:
        assert "POST /v1/completions answers 4xx" in eventually(refused).summary
    finally:
        source.close()


def test_preemption_is_seen_at_once_with_who_waits_and_why(server: RealServer) -> None:
    with streams(server, 8, 1200):
        eventually(lambda: finding(server, "kv_pressure"), 60.0)
        waiting = eventually(lambda: [r for r in requests(server) if r.get("wait")] or None)
        assert {request["wait"]["reason"] for request in waiting} <= {"blocks", "behind", "max running"}
        seen = look(server, "--blocks")["snapshot"]
        held = {request["number"] for request in seen["requests"]["items"] if request.get("blocks")}
        assert held
        assert seen["kvcache"]["used_blocks"] > 40
        advice = eventually(lambda: finding(server, "kv_pressure"))["next_step"]
        assert "--max-num-seqs" in advice or "--num-gpu-blocks-override" in advice


def requests(server: RealServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = look(server)["snapshot"]["requests"]["items"]
    return found


@pytest.mark.parametrize(("name", "role"), [("VLLM::EngineCor", "engine core"), ("VLLM::Worker", "worker")])
def test_a_stopped_process_is_named_while_health_says_200(server: RealServer, name: str, role: str) -> None:
    with streams(server, 2, 400):
        eventually(lambda: running(server) or None)
        pid = server.children()[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            found = eventually(lambda: finding(server, "process_stopped"))
            assert found["severity"] == "stuck"
            assert found["summary"].startswith(f"{role} {pid}")
            assert server.health() == 200
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: None if finding(server, "process_stopped") else True)


def test_an_engine_that_waits_for_a_worker_that_sleeps_is_stuck_and_later_well(server: RealServer) -> None:
    """Nobody is stopped, and every process is in state S or R as any that waits."""
    with streams(server, 2, 400):
        eventually(lambda: running(server) or None)
        order(server, "hang", "25")
        found = eventually(lambda: finding(server, "step_stalled") or finding(server, "kernel_wedged"))
        assert found["severity"] == "stuck"
        assert found["next_step"]
        assert server.health() == 200
        eventually(lambda: None if finding(server, found["cause"]) else True)


def test_looking_does_not_stop_anything(server: RealServer) -> None:
    """No signal, no trace stop: the kernel would count involuntary stops as t or T states."""
    core = server.children()["VLLM::EngineCor"]
    states = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            states.add(Path(f"/proc/{core}/stat").read_text().rpartition(")")[2].split()[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(5):
        look(server)
    over.set()
    watcher.join()
    assert states <= {"R", "S", "D"}


def test_the_end_of_the_thread_that_answers_is_seen_though_all_is_quiet(server: RealServer) -> None:
    """The last one: this server is of no use afterwards."""
    with streams(server, 2, 200):
        eventually(lambda: running(server) or None)
        order(server, "output")
        found = eventually(lambda: finding(server, "output_thread_dead"))
        assert found["severity"] in ("stuck", "wrong", "dead")
        assert server.health() == 200
