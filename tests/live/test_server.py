"""A served tiny model over real sockets: streams, aborts, back-pressure, hangs and endings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferdbg.engine.load import MIXES, Lengths, LoadError, Progress, run

from .commands import DEADLINE_S, INFERDBG, inferdbg
from .servers import Server, running, until

pytestmark = pytest.mark.live

LONG = {"prompt": "once upon a time", "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture(scope="module")
def tiny() -> Iterator[Server]:
    """Few blocks, so that load preempts."""
    with running("tiny", num_blocks=160, max_running=8, token_budget=64, max_waiting=64) as server:
        yield server


def events(raw: bytes) -> list[dict[str, Any]]:
    *parts, done, rest = raw.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


def test_a_stream_says_the_same_as_a_whole_answer(tiny: Server) -> None:
    ask = {"prompt": "The quick brown fox", "max_tokens": 40, "temperature": 0.8, "seed": 7, "ignore_eos": True}
    status, whole = tiny.complete(**ask)
    assert status == 200
    with tiny.stream(**ask, stream_options={"include_usage": True}) as response:
        pieces = events(response.read())
    assert "".join(piece["choices"][0]["text"] for piece in pieces[:-1]) == whole["choices"][0]["text"]
    assert pieces[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 40


def test_pieces_arrive_while_the_answer_is_being_made(tiny: Server) -> None:
    with tiny.stream(**LONG) as response:
        assert response.readline().startswith(b"data: ")
        assert tiny.metrics()["num_requests_running"] == 1


def test_a_chat_is_streamed(tiny: Server) -> None:
    ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    with tiny.stream("/v1/chat/completions", **ask) as response:
        pieces = events(response.read())
    assert pieces[0]["choices"][0]["delta"]["role"] == "assistant"
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"


def test_a_stop_string_ends_the_answer_before_it(tiny: Server) -> None:
    ask = {"prompt": "stop", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    text = tiny.complete(**ask)[1]["choices"][0]["text"]
    stop = text[20:23]
    status, stopped = tiny.complete(**ask, stop=[stop])
    assert status == 200
    assert stopped["choices"][0]["text"] == text[: text.index(stop)]
    assert stopped["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("when", ["streaming", "waiting for the whole answer"])
def test_a_client_that_goes_away_frees_its_blocks(tiny: Server, when: str) -> None:
    before = tiny.until_metrics(lambda metrics: metrics["num_requests_running"] == 0)
    with tiny.stream(**LONG) if when == "streaming" else left_alone(tiny):
        tiny.until_metrics(lambda metrics: metrics["kv_cache_blocks,state=used"] > 0)
    after = tiny.until_metrics(lambda metrics: metrics["num_requests_running"] == 0)
    assert after["kv_cache_blocks,state=used"] == 0
    assert after["kv_cache_blocks,state=free"] + after["kv_cache_blocks,state=cached"] == 160
    assert after["request_success_total,finished_reason=abort"] > before["request_success_total,finished_reason=abort"]


@contextlib.contextmanager
def left_alone(server: Server) -> Iterator[None]:
    """Asks for a whole answer and closes the connection without reading it."""
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/v1/completions", json.dumps(LONG))
        yield


def test_mixed_traffic_leaves_nothing_behind(tiny: Server) -> None:
    mix = replace(
        MIXES["demo"],
        rate=30.0,
        burst_every_s=1.0,
        prompt=Lengths(60, 0.6, 8, 400),
        burst_prompt=Lengths(300, 0.3, 100, 500),
        output=Lengths(30, 0.5, 4, 80),
        abort=0.2,
    )
    reports: list[Progress] = []
    summary = run(tiny.url, mix, seed=3, duration_s=3.0, report=reports.append)
    assert set(summary.errors) <= {"http 429", "client limit"}
    assert summary.finished > 20
    assert summary.aborted > 0
    assert summary.sent == summary.finished + summary.aborted + summary.cut + sum(summary.errors.values())
    assert summary.ttft.count >= summary.finished
    assert reports
    after = tiny.until_metrics(lambda metrics: metrics["num_requests_running"] == 0)
    assert after["kv_cache_blocks,state=used"] == 0
    assert after["prefix_cache_hits_total"] > 0
    assert tiny.get("/health")[0] == 200


def test_traffic_stops_at_once_when_told(tiny: Server) -> None:
    stop = threading.Event()
    mix = replace(MIXES["batch"], concurrency=4, output=Lengths(1000, 0.0, 1000, 1000))
    summary = run(tiny.url, mix, report=lambda progress: stop.set(), stop=stop)
    assert summary.cut > 0
    assert summary.sent == summary.finished + summary.cut
    tiny.until_metrics(lambda metrics: metrics["num_requests_running"] == 0)


def test_traffic_needs_a_server_that_has_the_model(tiny: Server) -> None:
    with pytest.raises(LoadError, match="does not serve gpt"):
        run(tiny.url, MIXES["chat"], model="gpt", duration_s=0.1)
    with pytest.raises(LoadError, match="does not answer"):
        run("http://127.0.0.1:1", MIXES["chat"], duration_s=0.1)


def test_a_full_queue_answers_429_and_the_rest_is_served() -> None:
    with running("letters", step_s=0.05) as server, ThreadPoolExecutor(24) as clients:
        statuses = list(clients.map(lambda _: server.complete(prompt="x", max_tokens=3)[0], range(24)))
        assert set(statuses) == {200, 429}
        assert server.complete(prompt="x", max_tokens=3)[0] == 200


def test_health_falls_during_a_stall_and_comes_back() -> None:
    with running("tiny", faults=["stall:step=6,seconds=4"]) as server, ThreadPoolExecutor(1) as client:
        assert server.get("/health")[0] == 200
        asking = client.submit(server.complete, prompt="x", max_tokens=20, ignore_eos=True)
        status, body = until(lambda: server.get("/health"), lambda answer: answer[0] == 503)
        assert (body["status"], body["phase"], body["step"]) == ("stalled", "forward", 6)
        assert body["seconds"] > 2
        status, body = server.complete(prompt="y")
        assert (status, body["error"]["code"]) == (503, "engine_stalled")
        assert asking.result()[0] == 200
        assert server.get("/health")[0] == 200


def test_a_stopping_server_finishes_what_runs_and_refuses_what_comes() -> None:
    with running("tiny") as server, server.stream(**LONG | {"max_tokens": 300}) as response:
        first = response.readline()
        server.signal()
        until(lambda: server.complete(prompt="y")[0], lambda status: status == 503)
        assert server.get("/health")[0] == 503
        assert events(first + response.read())[-1]["choices"][0]["finish_reason"] == "length"
        assert server.ended() == (0, "")


def test_a_body_that_is_too_large_is_answered_and_garbage_leaves_no_line() -> None:
    with running("letters", step_s=0.01) as server:
        status, body = server.complete(prompt="x" * (20 << 20))
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        with contextlib.closing(server.connect()) as connection:
            connection.connect()
            connection.sock.sendall(b"\0garbage\r\n\r\n")
            assert connection.sock.recv(100).startswith(b"HTTP/1.1 400")
        assert server.get("/health")[0] == 200
        server.signal()
        assert server.ended() == (0, "")


def test_a_terminal_that_goes_away_ends_a_server_in_order() -> None:
    with running("letters", step_s=0.01) as server:
        server.signal(signal.SIGHUP)
        assert server.ended() == (0, "")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--num-blocks", "20000000"), "needs"),
        (("--num-blocks", "99999999999999999999"), "num_blocks must be at most 2147483647"),
        (("--threads", "100000"), "at most"),
        (("--port", "99999"), "not in the range 0<=x<=65535"),
    ],
)
def test_a_start_that_is_refused_leaves_no_box(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = inferdbg("serve", "tiny", "--blackbox-dir", str(tmp_path), "--port", "0", *argv)
    assert done.code == 2, done
    assert said in done.err
    assert not list(tmp_path.iterdir())


def test_the_cache_of_shapes_is_bounded_before_torch_loads_unless_somebody_said_otherwise() -> None:
    program = (
        "import os, sys; sys.modules['torch'] = None; from inferdbg.cli.main import main;"
        "main(['serve', 'tiny', '--port', '0']); print(os.environ['ONEDNN_PRIMITIVE_CACHE_CAPACITY'])"
    )
    for said, wanted in (({}, "32"), ({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}, "7")):
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | said, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [wanted]


def test_a_signal_during_the_start_leaves_no_box(tmp_path: Path) -> None:
    argv = [*INFERDBG, "serve", "tiny", "--blackbox-dir", str(tmp_path), "--port", "0", "--num-blocks", "400000"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: list(tmp_path.glob("*.box")) or process.poll() is not None, bool)
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    assert process.returncode in (0, 128 + signal.SIGTERM)  # ready already, or not yet
    assert not list(tmp_path.iterdir())


def test_what_does_not_finish_in_time_is_aborted() -> None:
    with running("letters", step_s=0.2, drain_s=0.3) as server:
        with server.stream(prompt="x", max_tokens=90) as response:
            first = response.readline()
            server.signal(signal.SIGINT)
            assert events(first + response.read())[-1]["choices"][0]["finish_reason"] == "abort"
        assert server.ended() == (0, "")


def test_a_second_signal_stops_at_once() -> None:
    with running("letters", step_s=0.2, drain_s=60) as server:
        with server.stream(prompt="x", max_tokens=90) as response:
            response.readline()
            server.signal()
            until(lambda: server.get("/health")[0], lambda status: status == 503)
            server.signal()
            response.read()
        assert server.ended() == (0, "")


def test_an_engine_that_is_stuck_is_left_behind_with_a_word() -> None:
    with running("letters", step_s=3600, drain_s=0) as server, server.stream(prompt="x") as response:
        until(lambda: server.get("/health")[0], lambda status: status == 503)
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)  # two of a kind would be one
        assert events(response.read())[-1]["error"]["code"] == "engine_failed"
        code, said = server.ended()
        assert code == 3
        assert "does not stop" in said
