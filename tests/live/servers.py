"""Starts a server in a process of its own, talks to it over a real socket, and takes it down.

Run as a program it is that server: ``servers.py tiny|letters CONFIG``, with CONFIG a JSON object of EngineConfig's
fields, ``faults`` and ``drain_s``. It prints its address once it listens, and the error that ended it, if any.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 30.0
Value = TypeVar("Value")


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)

    def ask(self, method: str, path: str, body: dict[str, object] | None = None) -> tuple[int, Any]:
        """Status and body, parsed where it is JSON."""
        connection = self.connect()
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            raw = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(raw) if is_json else raw.decode()

    def get(self, path: str) -> tuple[int, Any]:
        return self.ask("GET", path)

    def complete(self, **body: object) -> tuple[int, Any]:
        return self.ask("POST", "/v1/completions", body)

    @contextlib.contextmanager
    def stream(self, path: str = "/v1/completions", **body: object) -> Iterator[http.client.HTTPResponse]:
        """The open response; leaving closes the connection, read or not."""
        connection = self.connect()
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps({"stream": True, **body}))
            with connection.getresponse() as response:
                yield response

    def metrics(self) -> dict[str, float]:
        """Value by name without prefix, labels but model_name behind it."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = [f"{key}={value}" for key, value in sorted(sample.labels.items()) if key != "model_name"]
                found[",".join([sample.name.removeprefix("inferdbg:"), *labels])] = sample.value
        return found

    def until_metrics(self, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        return until(self.metrics, holds)

    def signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)

    def ended(self) -> tuple[int, str]:
        """Exit status and everything that it printed since it listened; waits for it."""
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out


def until(read: Callable[[], Value], holds: Callable[[Value], bool]) -> Value:
    """Polls until it holds; AssertionError with the last value at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(0.01)
    return value


@contextlib.contextmanager
def running(kind: str, **config: object) -> Iterator[Server]:
    """A server that is killed at the end if it is still there."""
    argv = [sys.executable, "-m", "tests.live.servers", kind, json.dumps(config)]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    process = subprocess.Popen(
        argv, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line.startswith("http"), line + process.stdout.read()
            yield Server(process, line)
        finally:
            process.kill()


def main(kind: str, config: dict[str, Any]) -> int:
    from inferdbg.engine.engine import Engine
    from inferdbg.engine.errors import EngineError
    from inferdbg.engine.server import serve

    drain_s = config.pop("drain_s", 5.0)
    make = tiny_engine if kind == "tiny" else letters_engine
    try:
        serve(cast(Engine, make(config)), port=0, drain_s=drain_s, ready=lambda url: print(url, flush=True))  # noqa: T201
    except EngineError as error:
        print(f"{error.message}\n{error.hint}")  # noqa: T201
        return 3
    return 0


def tiny_engine(config: dict[str, Any]) -> object:
    """The real engine with a tiny random model."""
    from inferdbg.engine.config import EngineConfig
    from inferdbg.engine.engine import Engine
    from inferdbg.engine.faults import Faults
    from inferdbg.engine.loading import load

    faults = Faults.parse(config.pop("faults", []))
    return Engine(load("tiny", "fp32"), EngineConfig(**config), faults=faults)


def letters_engine(config: dict[str, Any]) -> object:
    """An engine without arithmetic, whose steps take ``step_s``: up in half a second."""
    from tests.engine.served import Letters, LettersEngine

    class Slow(LettersEngine):
        model = SimpleNamespace(tokenizer=Letters())

        def step(self) -> list[Any]:
            time.sleep(config["step_s"])
            return super().step()

    return Slow()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
