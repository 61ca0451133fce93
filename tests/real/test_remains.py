"""A real vLLM that speculates, read alive, stopped, from core files of its engine core, and without the right to."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import INFERDBG, Done, inferdbg

from .servers import SMALL_POOL, RealServer, needs_vllm, vllm
from .test_vllm import eventually

pytestmark = needs_vllm
needs_gdb = pytest.mark.skipif(shutil.which("gcore") is None, reason="no gcore (of gdb) to write a core with")
DRAFTS = 3
SPECULATION = {"method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 2, "prompt_lookup_min": 1}
NOBODY = 65534
PROMPTS = {"one": 40, "two": 77, "three": 130}
"""Tokens of each client's prompt: all of them fit into the pool together."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("vllm")
    with vllm(folder, *SMALL_POOL, "--speculative-config", json.dumps(SPECULATION)) as started:
        yield started


@contextmanager
def clients(server: RealServer) -> Iterator[None]:
    """One for each of PROMPTS: it names its request, and asks anew when it was answered."""
    over = threading.Event()

    def client(name: str, tokens: int) -> None:
        body = {"model": "tiny", "prompt": [7, 8] * (tokens // 2) + [9] * (tokens % 2), "stream": True}
        body |= {"max_tokens": 600, "ignore_eos": True, "temperature": 0}
        headers = {"content-type": "application/json", "x-request-id": name}
        asked = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
        while not over.is_set():
            with suppress(OSError, HTTPException, ValueError), urllib.request.urlopen(asked, timeout=120) as answer:
                while not over.is_set() and answer.readline():
                    pass

    threads = [threading.Thread(target=client, args=one, daemon=True) for one in PROMPTS.items()]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(asked_of(look(str(server.pid)))) == len(PROMPTS) or None)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def look(target: str, *options: str) -> dict[str, Any]:
    done = inferdbg("attach", target, "--json", *options)
    assert done.code in (0, 1), done
    found: dict[str, Any] = json.loads(done.out)
    return found


def asked_of(seen: dict[str, Any]) -> dict[str, int]:
    """Tokens of the prompt by the name that the client gave its request: vLLM adds to it."""
    found = {}
    for request in seen["snapshot"].get("requests", {}).get("items", ()):
        name = next((name for name in PROMPTS if f"-{name}-" in request["id"]), request["id"])
        found[name] = request["prompt_tokens"]
    return found


def memory_report(seen: dict[str, Any], name: str = "memory") -> dict[str, Any]:
    reports: list[dict[str, Any]] = seen["snapshot"]["probes"]
    return next(report for report in reports if report["probe"] == name)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def gcore(pid: int, folder: Path) -> str:
    done = subprocess.run(
        ["gcore", "-o", str(folder / "core"), str(pid)], capture_output=True, text=True, timeout=180, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    written = folder / f"core.{pid}"
    if not written.exists():
        pytest.skip(f"gcore wrote no core: {done.stderr[-300:]}")
    return str(written)


def test_speculation_is_seen_as_decodes_of_several_tokens(server: RealServer) -> None:
    """A decode computes the newest token and its drafts."""
    with clients(server):

        def widths() -> set[int] | None:
            running = (look(str(server.pid))["snapshot"].get("steps") or {}).get("running") or {}
            found = {work["tokens"] for work in running.get("work", ()) if work["kind"] == "decode"}
            return found if found - {1} else None

        assert max(eventually(widths)) <= 1 + DRAFTS
        seen = look(str(server.pid))
        assert not [found for found in seen["findings"] if found["severity"] in ("stuck", "wrong", "dead")]


@needs_gdb
def test_a_stopped_engine_core_and_a_core_file_of_it_tell_the_same(server: RealServer, tmp_path: Path) -> None:
    core = server.children()["VLLM::EngineCor"]
    with clients(server), stopped(core):
        alive = look(str(server.pid), "--blocks")
        file = gcore(core, tmp_path)
    dead = look(file, "--blocks")
    assert asked_of(alive) == PROMPTS
    assert memory_report(alive)["status"] == memory_report(dead, "core file")["status"]
    for section in ("requests", "scheduler", "kvcache"):
        differ = list(differences(dead["snapshot"][section], alive["snapshot"][section], section))
        assert not differ
    assert dead["snapshot"]["pulse"]["step"] == alive["snapshot"]["pulse"]["step"]
    assert (alive["snapshot"]["server"]["state"], dead["snapshot"]["server"]["state"]) == ("alive", "core file")
    held = {request["number"] for request in dead["snapshot"]["requests"]["items"]}
    assert held
    assert dead["snapshot"]["kvcache"]["used_blocks"] > 0


@needs_gdb
def test_a_core_file_of_one_that_runs_has_what_ran(server: RealServer, tmp_path: Path) -> None:
    core = server.children()["VLLM::EngineCor"]
    with clients(server):
        file = gcore(core, tmp_path)
    seen = look(file)
    assert asked_of(seen).items() <= PROMPTS.items()
    assert asked_of(seen)
    text = inferdbg("attach", file, "--once")
    assert text.code == 0, text
    assert "a core file of vllm" in text.out
    path = "scheduler.running[0].num_prompt_tokens"
    printed = inferdbg("attach", file, "--object", path)
    assert printed.code == 0, printed
    assert re.fullmatch(rf"{re.escape(path)}: ({'|'.join(map(str, PROMPTS.values()))})\n", printed.out), printed


def differences(dead: object, alive: object, where: str) -> Iterator[str]:
    """Of all that the core file tells, what the living one tells otherwise, apart from who said it when. Of the living
    one more is known: by the front end, and from earlier looks."""
    if isinstance(dead, dict) and isinstance(alive, dict):
        for name, value in dead.items():
            if name not in ("origin", "reuse") and not name.endswith("_ns"):
                yield from differences(value, alive.get(name), f"{where}.{name}")
    elif isinstance(dead, list) and isinstance(alive, list) and len(dead) == len(alive):
        for number, (one, other) in enumerate(zip(dead, alive, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif dead != alive:
        yield f"{where}: {dead} in the core file, {alive} alive"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root, with setpriv, can look as another user"
)
def test_without_rights_it_is_reported_says_so_and_how_to_see_more(server: RealServer) -> None:
    core = server.children()["VLLM::EngineCor"]
    with clients(server):
        text, done = as_nobody("attach", str(server.pid), "--once"), as_nobody("attach", str(server.pid), "--json")
        for one in (text, done):
            assert one.code == 0, one
            assert f"no depth memory: process {core} belongs to uid {os.getuid()}" in one.err
            assert f"sudo inferdbg attach {core}" in one.err
        seen = json.loads(done.out)
        report = memory_report(seen)
        assert (report["status"], report["hint"]) == ("denied", f"sudo inferdbg attach {core}")
        assert seen["snapshot"]["scheduler"]["origin"]["provenance"] == "reported"
        assert seen["snapshot"]["scheduler"]["running"] == len(PROMPTS)
        refused = as_nobody("attach", str(server.pid), "--json", "--depth", "memory")
        assert refused.code == 3, refused
        assert f"sudo inferdbg attach {core}" in refused.err


def as_nobody(*argv: str) -> Done:
    """inferdbg of another user, without any right of ours."""
    keeps = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")  # our files may lie in a home
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *keeps)
    done = subprocess.run(
        [*user, *INFERDBG, *argv], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)
