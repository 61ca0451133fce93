"""Starts real servers where they are installed: the folder that INFERDBG_REAL names, as `make real` fills it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from inferdbg.probes.process_table import descendants, read_table

REAL = Path(os.environ.get("INFERDBG_REAL", "")) / ".real"
T = TypeVar("T")

needs_vllm = pytest.mark.skipif(
    not (REAL / "vllm/bin/vllm").exists(), reason="no vLLM: INFERDBG_REAL names no folder that has one"
)
needs_llamacpp = pytest.mark.skipif(
    not (REAL / "llamacpp/bin/python").exists(), reason="no llama.cpp: INFERDBG_REAL names no folder that has one"
)
_LLAMACPP = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames = sys.argv[1], int(sys.argv[2]), ["127.0.0.1"]
params.n_ctx, params.endpoint_metrics, params.endpoint_slots = 2048, True, True
server = xllamacpp.Server(params)
time.sleep(3600)
"""


@contextlib.contextmanager
def vllm(port: int, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Started, and not waited for. At the end whatever it started is ended too, also what lives on without it."""
    command = [str(REAL / "vllm/bin/vllm"), "serve", str(REAL / "tiny"), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "2048", "--block-size", "32"]
    command += ["--num-gpu-blocks-override", "80", "--max-num-seqs", "16"]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    session = process.pid
    try:
        yield process
    finally:
        _end(session)
        process.wait(30)


@contextlib.contextmanager
def llamacpp(port: int, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("ab") as out:
        process = subprocess.Popen(
            [str(REAL / "llamacpp/bin/python"), "-c", _LLAMACPP, str(REAL / "tiny.gguf"), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process.pid)
        process.wait(30)


def tree(pid: int) -> dict[int, str]:
    """Names of a process and all that descend from it."""
    table = read_table()
    below = descendants(pid, {stat.pid: stat.parent for stat in table.values()})
    return {one: table[one].comm for one in (pid, *below) if one in table}


def eventually(look: Callable[[], T | None], patience_s: float = 120.0) -> T:
    """What it gives as soon as that is something."""
    deadline = time.monotonic() + patience_s
    while (found := look()) is None:
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.25)
    return found


def _end(session: int) -> None:
    """Everybody in a session that we began, and nobody else."""
    for number, patience_s in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience_s
        for stat in _of_session(session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(stat, signal.SIGCONT)
                os.kill(stat, number)
        while _of_session(session) and time.monotonic() < deadline:
            time.sleep(0.1)


def _of_session(session: int) -> list[int]:
    return [stat.pid for stat in read_table().values() if stat.session == session]
