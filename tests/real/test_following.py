"""Real servers, found and followed: starting, idle, stopped, orphaned, restarted on the same port."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferdbg.cli import here, naming, target
from inferdbg.cli.depth import Wanted
from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.engine.loading import find_default_model
from inferdbg.facts.source import Source
from tests.live.commands import inferdbg

from .servers import SMALL_POOL, family, llamacpp, needs_llamacpp, needs_vllm, vllm
from .test_vllm import eventually

REPORTED = Wanted("reported")


def finding(source: Source, cause: str) -> Finding | None:
    source.advance()
    return next((found for found in diagnose(source.window()) if found.cause == cause), None)


def phase(source: Source) -> str | None:
    """``up`` when it serves; None while the first answer is on the way."""
    source.advance()
    now = source.window().now
    if now.processes is None or now.server is None:
        return None
    return "up" if now.processes.startup is None else now.processes.startup.phase


def memory(source: Source) -> int | None:
    """The engine core whose objects are read; None while none are."""
    source.advance()
    now = source.window().now
    report = next((one for one in now.probes if one.probe == "memory" and one.status in ("ok", "torn")), None)
    if report is None or now.pulse is None or now.processes is None:
        return None
    return next((one.pid for one in now.processes.items if one.role == "engine core"), None)


def role_pid(pid: int, mark: str) -> int:
    return next(one for one, name in family(pid).items() if name.startswith(mark))


def until_up(pid: int) -> list[str]:
    """Every phase of a start that was seen, in order."""
    engine = target.engine_of(str(pid))
    source = target.engine_source(engine)
    seen: list[str] = []
    try:

        def look() -> bool | None:
            now = phase(source)
            if now is not None and now not in seen:
                seen.append(now)
            return True if now == "up" else None

        eventually(look, 180.0)
        if engine.engine == "vllm":
            eventually(lambda: memory(source), 20.0)
    finally:
        source.close()
    return seen


@needs_vllm
def test_a_vllm_is_followed_from_its_start_to_its_orphans_and_its_successor(tmp_path: Path) -> None:
    with vllm(tmp_path, *SMALL_POOL, ready=False) as process:
        eventually(lambda: True if "vllm" in family(process.pid).get(process.pid, "") else None, 30.0)
        time.sleep(1.0)
        starting = inferdbg("attach", str(process.pid), "--once")
        assert starting.code == 0, starting
        assert "● STARTING" in starting.out
        seen = until_up(process.pid)
        assert seen[0] == "starting"
        assert seen[-1] == "up"
        assert seen == sorted(seen, key=["starting", "loading weights", "compiling", "warming up", "up"].index), seen

        core, worker = role_pid(process.pid, "VLLM::EngineCor"), role_pid(process.pid, "VLLM::Worker")
        for pid in family(process.pid):
            engine = target.engine_of(str(pid))
            assert (engine.pid, engine.url) == (process.pid, process.url)
        roles = {one["pid"]: one.get("role") for one in _processes(process.pid)}
        assert (roles[process.pid], roles[core], roles[worker]) == ("front end", "engine core", "worker")
        assert "resource tracker" in roles.values()

        for pid, role in ((core, "engine core"), (worker, "worker")):
            os.kill(pid, signal.SIGSTOP)
            stopped = json.loads(inferdbg("attach", str(process.pid), "--json", "--depth", "reported").out)
            os.kill(pid, signal.SIGCONT)
            found = {one["cause"]: one for one in stopped["findings"]}["process_stopped"]
            assert found["summary"].startswith(f"{role} {pid} (VLLM::")
            assert found["next_step"] == f"kill -CONT {pid}"
            assert stopped["snapshot"]["server"]["health"]["answer"] == "200"

        source = target.engine_source(target.engine_of(str(process.pid)), None, REPORTED)
        try:
            eventually(lambda: phase(source), 120.0)
            os.kill(process.pid, signal.SIGKILL)
            process.process.wait(10)
            orphans = eventually(lambda: finding(source, "orphans"), 30.0)
            assert f"engine core {core}" in orphans.summary
            assert f"worker {worker}" in orphans.summary
            assert orphans.next_step.startswith(f"kill {core} {worker}")
            dead = eventually(lambda: finding(source, "engine_dead"), 10.0)
            assert f"vllm pid {process.pid} has ended" in dead.summary
            left = target.engine_of(str(worker))
            assert not left.alive
            assert "orphans of vllm" in naming.line_of(left)
            assert inferdbg("attach", str(core), "--once").code == 1
        finally:
            source.close()


@needs_vllm
def test_a_vllm_whose_engine_core_dies_and_one_that_follows_on_its_port(tmp_path: Path) -> None:
    with vllm(tmp_path, *SMALL_POOL, ready=False) as first:
        until_up_from_start(first.pid)
        source = target.engine_source(target.engine_of(str(first.pid)))
        try:
            eventually(lambda: phase(source), 120.0)
            core = role_pid(first.pid, "VLLM::EngineCor")
            assert eventually(lambda: memory(source), 20.0) == core
            os.kill(core, signal.SIGKILL)
            gone = eventually(lambda: finding(source, "engine_core_gone") or finding(source, "engine_dead"), 20.0)
            assert gone.severity == "dead"
            eventually(lambda: finding(source, "engine_dead"), 40.0)
            with vllm(tmp_path, *SMALL_POOL, ready=False, port=first.port) as second:
                eventually(lambda: finding(source, "starting_up"), 20.0)
                now = source.window().now
                assert now.server is not None
                assert (now.server.pid, now.pulse) == (second.pid, None), "what was told of the one before is gone"
                restarted = finding(source, "restarted")
                assert restarted is not None
                assert f"pid {first.pid} is gone, pid {second.pid} starts" in restarted.summary
                assert finding(source, "engine_dead") is None
                later = eventually(lambda: memory(source), 180.0)
                assert later == role_pid(second.pid, "VLLM::EngineCor")
        finally:
            source.close()


def until_up_from_start(pid: int) -> None:
    eventually(lambda: True if "vllm" in family(pid).get(pid, "") else None, 30.0)
    until_up(pid)


@needs_llamacpp
def test_a_llamacpp_in_python_is_known_by_its_library(tmp_path: Path) -> None:
    model = find_default_model()
    if model is None:
        pytest.skip("SmolLM2 is not installed: make setup fetches it")
    with llamacpp(tmp_path, model) as process:
        engine = eventually(lambda: _of_pid(process.pid), 30.0)
        assert (naming.engine_name(engine), engine.url) == ("llama.cpp", process.url)
        done = inferdbg("attach", process.url.removeprefix("http://"), "--once")
        assert done.code == 0, done
        assert "llama.cpp" in done.out
        assert f"front end {process.pid}" in done.out


@needs_llamacpp
def test_a_llamacpp_is_followed_from_its_start_over_its_end_to_its_successor(tmp_path: Path) -> None:
    model = find_default_model()
    if model is None:
        pytest.skip("SmolLM2 is not installed: make setup fetches it")
    with llamacpp(tmp_path, model, ready=False) as first:
        eventually(lambda: _of_pid(first.pid), 30.0)
        seen = until_up(first.pid)
        assert seen[-1] == "up"
        source = target.engine_source(target.engine_of(str(first.pid)), None, REPORTED)
        try:
            eventually(lambda: phase(source), 30.0)
            os.kill(first.pid, signal.SIGKILL)
            dead = eventually(lambda: finding(source, "engine_dead"), 20.0)
            assert f"pid {first.pid}" in dead.summary
            with llamacpp(tmp_path, model, ready=False, port=first.port) as second:
                restarted = eventually(lambda: finding(source, "restarted"), 60.0)
                assert f"pid {first.pid} is gone, pid {second.pid} " in restarted.summary
                assert finding(source, "engine_dead") is None
        finally:
            source.close()


def _of_pid(pid: int) -> "naming.Engine | None":
    found = here.discovered()
    return next((server for server in found.servers if server.pid == pid), None)


def _processes(pid: int) -> Iterator[dict[str, object]]:
    done = inferdbg("attach", str(pid), "--json")
    yield from json.loads(done.out)["snapshot"]["processes"]["items"]
