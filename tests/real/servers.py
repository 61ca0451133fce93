"""Starts real servers, waits until they answer, and ends them and all that they started."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import install

START_S = 180.0
needs_vllm = pytest.mark.skipif(
    not install.installed("vllm", install.VLLM), reason="there is no vLLM to look at: make real"
)
needs_llamacpp = pytest.mark.skipif(
    not install.installed("llamacpp", install.LLAMACPP), reason="there is no llama.cpp to look at: make real"
)
SMALL_POOL = (
    "--max-model-len",
    "2048",
    "--num-gpu-blocks-override",
    "80",
    "--block-size",
    "32",
    "--max-num-seqs",
    "16",
)
"""Eight long streams preempt each other within seconds."""


@dataclass
class RealServer:
    url: str
    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """The front end's."""
        return self.process.pid

    def children(self) -> dict[str, int]:
        """Descendants by the name that the kernel has for them: ``VLLM::EngineCor``, ``VLLM::Worker``."""
        return {name: pid for pid, name in family(self.pid).items() if pid != self.pid}

    def health(self) -> int | None:
        """The status of /health; None when nobody answers."""
        return _status(self.port, "/health")


@contextlib.contextmanager
def vllm(
    folder: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    ready: bool = True,
    port: int | None = None,
    model: Path | None = None,
) -> Iterator[RealServer]:
    """``vllm serve`` of a model (default: the tiny one) on a port of this machine (default: a free one); its log in
    ``folder``. ``ready``: wait until it answers."""
    port = free_port() if port is None else port
    command = [
        str(install.ROOT / "vllm" / "bin" / "vllm"), "serve", str(model or install.tiny_model()),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16",
        "--enforce-eager", *arguments,
    ]  # fmt: skip
    settings = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        **(env or {}),
    }
    with _running(command, settings, folder / f"vllm-{port}.log", port, ready=ready) as server:
        yield server


@contextlib.contextmanager
def llamacpp(
    folder: Path, model: Path, *arguments: str, ready: bool = True, port: int | None = None
) -> Iterator[RealServer]:
    """llama.cpp's own server with /metrics and /slots, two slots. ``arguments``: as llamacpp_host.py takes them."""
    port = free_port() if port is None else port
    script = Path(__file__).with_name("llamacpp_host.py")
    command = [str(install.python_of("llamacpp")), str(script), str(model), str(port), *arguments]
    with _running(command, {}, folder / f"llamacpp-{port}.log", port, ready=ready) as server:
        yield server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(pid: int) -> dict[int, str]:
    """A process and its descendants by pid, with the names that the kernel has for them."""
    found: dict[int, str] = {}
    ahead = [pid]
    while ahead:
        one = ahead.pop()
        with contextlib.suppress(OSError):
            found[one] = Path(f"/proc/{one}/comm").read_text(encoding="utf-8").strip()
            for thread in os.listdir(f"/proc/{one}/task"):
                ahead += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text(encoding="ascii").split())
    return found


@contextlib.contextmanager
def _running(
    command: list[str], settings: dict[str, str], log: Path, port: int, *, ready: bool
) -> Iterator[RealServer]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, **settings}, start_new_session=True,
        )  # fmt: skip
    server = RealServer(f"http://127.0.0.1:{port}", port, process, log)
    try:
        deadline = time.monotonic() + START_S
        while ready and server.health() != 200:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} did not come up:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield server
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills the server and what it started, also what it left behind: all of these are in the session that we began."""
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.getsid(int(name)) == process.pid:
                os.kill(int(name), signal.SIGKILL)
    process.wait(30)


def _status(port: int, path: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()
