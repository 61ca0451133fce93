"""A real engine that crashes, and what the kernel's log says of it."""

import json
from pathlib import Path

import pytest

from .commands import eventually, inferdbg, serving, traffic


def test_an_engine_that_crashed_is_dead_of_what_the_kernel_says(tmp_path: Path) -> None:
    with serving(tmp_path, "--fault", "segfault:step=30") as served, traffic(served.url):
        served.process.wait(60)
        done = eventually(lambda: inferdbg("attach", served.box, "--json"), lambda done: done.code == 1)
    look = json.loads(done.out)
    log = look["snapshot"].get("kernel_log")
    exception_trace = Path("/proc/sys/debug/exception-trace")
    if log is None or not exception_trace.exists() or exception_trace.read_text().strip() == "0":
        pytest.skip("the kernel's log is not to be read here, or tells of no crash")
    first, *others = look["findings"]
    assert (first["cause"], first["severity"], first["confidence"]) == ("native_memory_bug", "dead", "likely")
    assert "crashed (SIGSEGV) in libc" in first["summary"]
    assert "it read memory that is not there (0x0)" in first["summary"]
    assert "engine_dead" in [finding["cause"] for finding in others]
