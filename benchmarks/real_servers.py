"""A real vLLM and a real llama.cpp, attached to in every state: idle, busy, hung, dead, orphaned, restarted; cores;
KV events against the pool; the plug-in.

python -m benchmarks.real_servers         needs `make real`
"""

import subprocess
import sys

from tests.real import install

TESTS = ("tests/real", "tests/plugin/live_vllm.py", "tests/kv_events/live_compare.py")


def main() -> int:
    for name, version in (("vllm", install.VLLM), ("llamacpp", install.LLAMACPP)):
        if not install.installed(name, version):
            print(f"there is no {name} to look at: make real")
            return 1
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "--durations=5", *TESTS], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
