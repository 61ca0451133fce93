"""A real vLLM with two data-parallel ranks: two engines behind one address, of which neither is taken for the whole."""

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inferdbg.cli import here
from tests.live.commands import inferdbg

from .servers import SMALL_POOL, needs_vllm, vllm
from .test_vllm import eventually, streams

RANKS = ("--data-parallel-size", "2", "--api-server-count", "1", "--distributed-executor-backend", "uni")
STREAMS = 4


def look(pid: int) -> dict[str, Any]:
    done = inferdbg("attach", str(pid), "--json")
    assert done.code in (0, 1), done
    found: dict[str, Any] = json.loads(done.out)
    return found


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Ranks that wait for each other yield in a loop, so that on two cores nobody else gets to run."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@needs_vllm
def test_each_data_parallel_rank_is_looked_at_by_itself_and_their_server_as_the_sum(tmp_path: Path) -> None:
    with vllm(tmp_path, *SMALL_POOL, *RANKS) as server:
        ranks = [one for one in here.discovered().servers if one.front_pid == server.pid and one.rank is not None]
        assert [one.rank for one in ranks] == ["DP0", "DP1"]
        cores = [pid for one in ranks for pid in one.core_pids]
        whole = look(server.pid)["snapshot"]
        assert (whole["target"]["name"], whole["kvcache"]["num_blocks"]) == (f"pid {server.pid}, 2 ranks", 160)
        assert "requests" not in whole
        with streams(server, STREAMS, 1500):
            first, second = eventually(lambda: held(cores), 90.0)
            assert not first & second
        with stopped(cores[1:]):
            for pid in (cores[1], server.pid):
                (found,) = [one for one in look(pid)["findings"] if one["cause"] == "process_stopped"]
                assert f"engine core {cores[1]}" in found["summary"]


def held(cores: Sequence[int]) -> list[set[str]] | None:
    """What each rank has to do, once together they have all that the clients ask."""
    time.sleep(2)
    with stopped(cores):
        seen = [look(pid)["snapshot"] for pid in cores]
    assert [one["kvcache"]["num_blocks"] for one in seen] == [80, 80]
    found = [{request["id"] for request in one["requests"]["items"]} for one in seen]
    return found if sum(map(len, found)) == STREAMS and all(found) else None
