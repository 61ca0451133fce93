"""A real llama.cpp server: idle, busy and stopped."""

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from inferdbg.engine.loading import find_default_model
from tests.live.commands import inferdbg

from .servers import RealServer, llamacpp, needs_llamacpp
from .test_vllm import eventually

pytestmark = needs_llamacpp
ALPHABET = "Repeat: a b c d e f g h i j k l m n o p q r s t u v w x y z. " * 8
"""What follows it is easily drafted."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    model = find_default_model()
    if model is None:
        pytest.skip("SmolLM2 is not installed: make setup fetches it")
    with llamacpp(tmp_path_factory.mktemp("llamacpp"), model) as started:
        yield started


def look(server: RealServer) -> dict[str, Any]:
    done = inferdbg("attach", server.url, "--json")
    assert done.code in (0, 1), done
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_an_idle_one_is_known_by_its_metrics(server: RealServer) -> None:
    snapshot = look(server)["snapshot"]
    assert snapshot["server"]["engine"] == "llama.cpp"
    assert snapshot["server"]["pid"] == server.pid
    assert snapshot["scheduler"]["running"] == 0


def test_speculation_is_counted_and_shown_while_it_goes_on(tmp_path: Path) -> None:
    model = find_default_model()
    if model is None:
        pytest.skip("SmolLM2 is not installed: make setup fetches it")
    over = threading.Event()

    def ask(server: RealServer) -> dict[str, int]:
        body = {"prompt": ALPHABET, "n_predict": 200, "ignore_eos": True, "temperature": 0}
        asked = urllib.request.Request(
            f"{server.url}/completion", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            timings: dict[str, int] = json.load(answer)["timings"]
            return timings

    def keep_asking(server: RealServer) -> None:
        while not over.is_set():
            ask(server)

    with llamacpp(tmp_path, model, "NGRAM_MAP_K") as server:
        made = ask(server)
        counts = look(server)["snapshot"]["scheduler"]
        assert counts["drafts_total"] > 0
        assert counts["drafted_tokens_total"] == made["draft_n"]
        assert counts["accepted_tokens_total"] == made["draft_n_accepted"]
        client = threading.Thread(target=keep_asking, args=(server,), daemon=True)
        client.start()
        try:
            eventually(
                lambda: "tokens a step with one, 1 without" in inferdbg("attach", server.url, "--once").out or None
            )
        finally:
            over.set()
            client.join(60)


def test_slots_are_requests_and_a_stopped_one_is_named(server: RealServer) -> None:
    body = json.dumps({"prompt": "Once upon a time", "n_predict": 2000, "ignore_eos": True, "stream": True}).encode()

    def client() -> None:
        asked = urllib.request.Request(f"{server.url}/completion", body, {"content-type": "application/json"})
        with suppress(OSError, HTTPException, ValueError), urllib.request.urlopen(asked, timeout=60) as answer:
            answer.read()

    threading.Thread(target=client, daemon=True).start()
    busy = eventually(lambda: look(server)["snapshot"].get("requests", {}).get("items") or None)
    assert busy[0]["stage"] in ("prefill", "decode")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        found = eventually(lambda: next((f for f in look(server)["findings"] if f["cause"] == "process_stopped"), None))
        assert str(server.pid) in found["summary"]
    finally:
        os.kill(server.pid, signal.SIGCONT)
