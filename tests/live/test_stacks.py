"""`inferdbg stacks` of real jobs: the missing rank of a gloo collective, who holds the GIL, the bundled engine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import Done, eventually, inferdbg, serving

pytestmark = pytest.mark.live
RANKS = 4
ASLEEP = 2
JOB = """
import os, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
def work(rank):
    if rank == int(os.environ["ASLEEP"]):
        time.sleep(600)
    dist.all_reduce(torch.ones(4))
dist.init_process_group("gloo")
dist.barrier()
print("ready", flush=True)
work(dist.get_rank())
time.sleep(600)
"""
HOG = """
import threading, time
def hog():
    time.sleep(0.3)
    sum(range(10**12))
def victim():
    while True:
        time.sleep(0.001)
threading.Thread(target=hog, name="hog", daemon=True).start()
print("ready", flush=True)
victim()
"""


@contextlib.contextmanager
def gloo_job() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Four ranks that have met once; one of them sleeps before the collective."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ASLEEP": str(ASLEEP)}
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank in range(RANKS):
            environment = {**os.environ, **shared, "RANK": str(rank), "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen([sys.executable, "-c", JOB], stdout=subprocess.PIPE, env=environment)
            stack.enter_context(process)
            stack.callback(process.kill)
            ranks.append(process)
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield ranks


def test_the_rank_that_sleeps_before_an_all_reduce_is_named() -> None:
    with gloo_job() as ranks:
        pids = [process.pid for process in ranks]
        done = eventually(lambda: inferdbg("stacks", str(pids[0]), "--all-ranks", "--json"), lambda one: one.code == 1)
        found = json.loads(done.out)
        text = inferdbg("stacks", str(pids[0]), "--all-ranks", "--twice", "500ms")
        alone = inferdbg("stacks", str(pids[0]))
    (finding,) = found["findings"]
    assert (finding["cause"], finding["confidence"]) == ("rank_lost_or_stalled", "sure")
    assert finding["summary"].startswith(f"rank {ASLEEP} is missing: ranks 0, 1, 3 wait in all_reduce")
    assert f"rank {ASLEEP} sleeps" in finding["summary"]
    assert {one["rank"]: one["pid"] for one in found["processes"]} == {str(at): pid for at, pid in enumerate(pids)}
    (group,) = [one for one in found["groups"] if one["said"] == "waits for all_reduce (gloo)"]
    assert len(group["threads"]) == RANKS - 1
    assert all("paused_ns" not in one for one in found["processes"])
    assert text.code == 1
    assert f"rank {ASLEEP} is missing" in text.out
    assert "3 ranks, 3 threads:" in text.out
    assert all(len(line) <= 80 for line in text.out.splitlines())
    assert alone.code == 0
    assert f"inferdbg stacks {pids[0]} --all-ranks" in alone.out


def test_who_holds_the_gil_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", HOG], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()

        def look() -> Done:
            return inferdbg("stacks", str(process.pid), "--json")

        try:
            done = eventually(look, lambda one: "which hog holds" in one.out)
        finally:
            process.kill()
    threads = json.loads(done.out)["processes"][0]["threads"]
    waits = {thread["name"]: thread["waits"] for thread in threads}
    assert waits["MainThread"]["said"] == "waits for the GIL, which hog holds"
    assert waits["hog"]["said"] == "runs Python: hog"


def test_the_bundled_engine_waits_for_requests(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        done = eventually(
            lambda: inferdbg("stacks", str(server.pid), "--json"), lambda one: "waits for requests" in one.out
        )
        text = inferdbg("stacks", server.url)
    first = json.loads(done.out)["groups"][0]
    assert (done.code, first["said"]) == (0, "waits for requests")
    assert text.code == 0
    assert f"engine {server.pid} · engine" in text.out


def test_a_process_that_is_no_server_and_no_python_is_shown_with_its_children() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60; true"], start_new_session=True) as shell:
        try:
            done = eventually(lambda: inferdbg("stacks", str(shell.pid)), lambda one: "sleeps" in one.out)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    assert done.code == 0
    assert f"sh {shell.pid}" in done.out
    assert "waits for a child process" in done.out
    assert "it runs no Python that py-spy knows" in done.out


def test_a_process_that_is_not_there_is_code_3() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    done = inferdbg("stacks", str(ended.pid))
    assert (done.code, done.out) == (3, "")
    assert f"there is no process {ended.pid} here" in done.err
