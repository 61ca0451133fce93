"""How long a person waits for `inferdbg --help` and for `attach --once --json`, and what these load.

python -m benchmarks.startup_cost

Medians of 15 runs each, one after the other, from fork to exit, after one that leaves compiled modules as any first run
does. The engine that is attached to is a tiny one of ours under no load, in a process of its own.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.person import environment

RUNS = 15
HELP_LIMIT_MS = 120.0
ATTACH_LIMIT_MS = 300.0
INFERDBG = (sys.executable, "-m", "inferdbg")
_LOADED = (
    "import sys; from inferdbg.cli.main import main; main({argv!r}); print('\\n'.join(sys.modules), file=sys.stderr)"
)
_RSS = (
    "import os, resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def times_ms(command: Sequence[str]) -> tuple[list[float], list[float]]:
    """Wall time of each run, fork to exit, and the processor time that it took."""
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=environment())
    wall, cpu = [], []
    for _ in range(RUNS):
        start, used = time.perf_counter(), os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=environment())
        wall.append((time.perf_counter() - start) * 1e3)
        now = os.times()
        cpu.append((now.children_user + now.children_system - used.children_user - used.children_system) * 1e3)
    return wall, cpu


def peak_mib(argv: Sequence[str]) -> float:
    """Largest resident size of one run."""
    said = subprocess.run([sys.executable, "-c", _RSS, *INFERDBG, *argv], capture_output=True, check=True).stdout
    return int(said) / 1024  # ru_maxrss is in KiB on Linux


def loaded(argv: Sequence[str], unwanted: Sequence[str]) -> list[str]:
    """Which of ``unwanted`` that command line imports."""
    code = _LOADED.format(argv=list(argv))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    return sorted({line.partition(".")[0] for line in said.splitlines()} & set(unwanted))


def report(name: str, argv: Sequence[str], limit_ms: float, unwanted: Sequence[str]) -> bool:
    found, cpu = times_ms([*INFERDBG, *argv])
    middle = statistics.median(found)
    bad = loaded(argv, unwanted)
    print(
        f"{name:24} median {middle:5.0f} ms, {statistics.median(cpu):.0f} of them on the processor  "
        f"(least {min(found):.0f}, most {max(found):.0f}, limit {limit_ms:.0f})  "
        f"peak {peak_mib(argv):.0f} MiB  loads {', '.join(bad) or 'nothing'} of {', '.join(unwanted)}"
    )
    return middle <= limit_ms and not bad


def main() -> int:
    bare, _ = times_ms([sys.executable, "-c", "pass"])
    print(f"{'python -c pass':24} median {statistics.median(bare):5.0f} ms")
    holds = report("--help", ["--help"], HELP_LIMIT_MS, ["torch", "textual", "numpy", "psutil", "urllib3", "pynvml"])
    with tempfile.TemporaryDirectory() as folder:
        serve = [*INFERDBG, "serve", "tiny", "--port", "0", "--blackbox-dir", folder]
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            server.stdout.readline()  # says so when it serves
            box = next(str(path) for path in Path(folder).iterdir())
            argv = ["attach", box, "--once", "--json"]
            holds &= report("attach BOX --once --json", argv, ATTACH_LIMIT_MS, ["torch", "textual", "numpy"])
            argv = ["attach", str(server.pid), "--once", "--json"]
            holds &= report("attach PID --once --json", argv, ATTACH_LIMIT_MS, ["torch", "textual", "numpy"])
        finally:
            server.terminate()
            server.wait(30)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
