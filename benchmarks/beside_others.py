"""A vLLM whose engine core is stopped while /health answers 200: what inferdbg says, and what other monitors say.

python -m benchmarks.beside_others         needs `make real`; installs the others in .real/ at the first run

A real vLLM, idle, busy, and busy with its engine core stopped by SIGSTOP. Each monitor is asked as its README says. It
holds when inferdbg names the stopped process within 2 s of the stop, and finds nothing that hangs in the other two. The
others have no bound: they are shown.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.memory_truth import load
from tests.real import install
from tests.real.servers import SMALL_POOL, RealServer, vllm

BOUND_S = 2.0
PEERS_ASKED_AFTER_S = 10.0
_HANGS = ("stuck", "dead")


class Said(NamedTuple):
    who: str
    code: int
    seconds: float
    words: str


def ours(server: RealServer) -> tuple[Said, list[dict[str, str]]]:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "inferdbg", "attach", str(server.pid), "--json"], capture_output=True, check=False
    )
    taken = time.monotonic() - begun
    findings = (
        json.loads(done.stdout)["findings"] if done.stdout else [{"summary": done.stderr.decode(), "severity": ""}]
    )
    words = f"{findings[0]['severity']}: {findings[0]['summary']}" if findings else "nothing is wrong"
    return Said("inferdbg attach", done.returncode, taken, words), findings


def doctor(server: RealServer) -> Said:
    """Its verdict, and the rules that fired."""
    code, taken, printed = _asked("vllm-doctor", "diagnose", f"{server.url}/metrics", "--output", "json")
    try:
        told = json.loads(printed)
        fired = [check["name"] for check in told["checks"] if check.get("finding")]
        words = f"health {told['health']}: {', '.join(fired) or 'no rule fired'}"
    except (ValueError, KeyError):
        words = " ".join(printed.split())[:200]
    return Said("vllm-doctor", code, taken, words)


def htop(server: RealServer) -> Said:
    """The line with the state of the server, and what it counts as running."""
    code, taken, printed = _asked("vllm-htop", "--url", server.url, "--once", "--detail", "--no-gpu-detect")
    wanted = ("running", "waiting", "out tok", "down", "stale", "health", "uptime", "status")
    lines = [" ".join(line.split()) for line in printed.splitlines() if any(word in line.lower() for word in wanted)]
    return Said("vllm-htop", code, taken, " | ".join(lines[:6]) or " ".join(printed.split())[:200])


def _asked(program: str, *arguments: str) -> tuple[int, float, str]:
    begun = time.monotonic()
    done = subprocess.run(
        [str(install.ROOT / "peers" / "bin" / program), *arguments],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "COLUMNS": "160", "NO_COLOR": "1"},
    )  # fmt: skip
    return done.returncode, time.monotonic() - begun, done.stdout or done.stderr


def show(scene: str, said: list[Said]) -> None:
    print(f"\n{scene}")
    for one in said:
        print(f"    {one.who:16} rc {one.code}  {one.seconds:4.1f} s  {one.words}", flush=True)


@contextmanager
def stopped(pid: int) -> Iterator[float]:
    """Gives the moment since when."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield time.monotonic()
    finally:
        os.kill(pid, signal.SIGCONT)


def compare(server: RealServer, *, peers: bool) -> bool:
    def others() -> list[Said]:
        return [doctor(server), htop(server)] if peers else []

    holds = True
    mine, findings = ours(server)
    show("idle", [mine, *others()])
    holds &= not any(found["severity"] in _HANGS for found in findings)
    with load(server, 4):
        time.sleep(5)
        mine, findings = ours(server)
        show("busy", [mine, *others()])
        holds &= not any(found["severity"] in _HANGS for found in findings)
        core = server.children()["VLLM::EngineCor"]
        with stopped(core) as since:
            named = None
            while named is None and time.monotonic() < since + 30:
                mine, findings = ours(server)
                if any(found["cause"] == "process_stopped" and str(core) in found["summary"] for found in findings):
                    named = time.monotonic() - since
            holds &= named is not None and named <= BOUND_S
            after = "not" if named is None else f"after {named:.2f} s"
            print(f"\nengine core {core} stopped: named by inferdbg {after} (bound {BOUND_S} s)")
            time.sleep(max(0.0, since + PEERS_ASKED_AFTER_S - time.monotonic()))
            mine, findings = ours(server)
            health = server.health()
            show(f"stopped for {time.monotonic() - since:.0f} s, /health answers {health}", [mine, *others()])
            holds &= health == 200
    return holds


def main() -> int:
    if not install.installed("vllm", install.VLLM):
        print("there is no vLLM to look at: make real")
        return 1
    peers = install.main(["peers"]) == 0 if not install.installed("peers", install.PEERS) else True
    with tempfile.TemporaryDirectory() as folder, vllm(Path(folder), *SMALL_POOL) as server:
        holds = compare(server, peers=peers)
    print("\nholds" if holds else "\ndoes NOT hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
