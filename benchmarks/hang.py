"""Hang: a wedged engine is named from outside within max(2 s, 5 x a normal step), with phase, step and how long.

Each case starts a real server with a planted fault (or stops its process), puts load on it, and runs
``inferdbg attach PID --once --json`` again and again, as a person would. What is measured is the time between the
moment that the engine stood still and the look that said so; the engine itself says nothing and answers nothing.

    python -m benchmarks.hang [--rounds 3]
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

COMMAND = [sys.executable, "-m", "inferdbg"]
GIVE_UP_S = 30.0


class Case(NamedTuple):
    """``causes``: findings that name it. ``phase``: what the pulse must say. ``signal``: sent instead of a fault."""

    name: str
    causes: tuple[str, ...]
    phase: str | None
    fault: str | None = None
    signal: int | None = None


CASES = (
    Case("wedged kernel", ("kernel_wedged",), "forward", fault="wedge:step=150,layer=2"),
    Case("stalled step", ("kernel_wedged", "step_stalled"), "forward", fault="stall:step=150,seconds=60"),
    Case("sampler asleep", ("step_stalled",), "sample", fault="slow-sampler:step=150,ms=60000"),
    Case("process stopped", ("process_stopped",), None, signal=signal.SIGSTOP),
)


class Look(NamedTuple):
    """One ``attach``: the exit code, what it printed, and how long it took."""

    code: int
    found: dict[str, Any]
    seconds: float


def look(pid: int) -> Look:
    begun = time.monotonic()
    done = subprocess.run([*COMMAND, "attach", str(pid), "--once", "--json"], capture_output=True, check=False)
    return Look(done.returncode, json.loads(done.stdout or b"{}"), time.monotonic() - begun)


def median_step_ns(found: dict[str, Any]) -> float:
    """Of the steps that ran something."""
    phases = ("schedule_ns", "prepare_ns", "forward_ns", "sample_ns", "commit_ns")
    steps = found["snapshot"].get("steps", {}).get("items", [])
    return statistics.median(sum(step[phase] for phase in phases) for step in steps) if steps else 0.0


def run(case: Case) -> tuple[bool, str]:
    """Whether it was named in time, and a line about it."""
    options = ["tiny", "--port", "0", "--json", *(["--fault", case.fault] if case.fault else [])]
    with tempfile.TemporaryDirectory(prefix="hang-", dir="/dev/shm") as folder:
        return _run(case, [*options, "--blackbox-dir", folder])


def _run(case: Case, options: list[str]) -> tuple[bool, str]:
    with subprocess.Popen([*COMMAND, "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        traffic = subprocess.Popen(
            [*COMMAND, "load", url, "--for", "60s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            stood_still_ns = None
            if case.signal is not None:
                while look(server.pid).found["snapshot"]["scheduler"].get("steps_total", 0) < 50:
                    time.sleep(0.1)
                os.kill(server.pid, case.signal)
                stood_still_ns = time.monotonic_ns()
            return watch(case, server.pid, stood_still_ns)
        finally:
            traffic.kill()
            traffic.wait()
            server.kill()


def watch(case: Case, pid: int, stood_still_ns: int | None) -> tuple[bool, str]:
    end = time.monotonic() + GIVE_UP_S
    costs = []
    while time.monotonic() < end:
        now = look(pid)
        costs.append(now.seconds)
        finding = next((f for f in now.found.get("findings", ()) if f["cause"] in case.causes), None)
        if finding is None:
            continue
        snapshot = now.found["snapshot"]
        pulse = snapshot["pulse"]
        since_ns = stood_still_ns or pulse["phase_since_ns"]
        bound_s = max(2.0, 5 * median_step_ns(now.found) / 1e9)
        seen_s = (snapshot["mono_ns"] - since_ns) / 1e9
        holds = seen_s <= bound_s and now.code == 1 and case.phase in (None, pulse["phase"])
        return holds, (
            f"seen {seen_s:5.2f} s after it stood still (bound {bound_s:.2f} s, a look takes"
            f" {statistics.median(costs) * 1000:.0f} ms)  step {pulse['step']}, phase {pulse['phase']}:"
            f" {finding['summary']}"
        )
    return False, f"not named within {GIVE_UP_S:.0f} s"


def main(arguments: list[str]) -> int:
    rounds = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else 3
    failed = False
    for case in CASES:
        for _ in range(rounds):
            holds, line = run(case)
            failed |= not holds
            print(f"{'ok    ' if holds else 'FAILED'} {case.name:16} {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
