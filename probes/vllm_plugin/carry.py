"""What ``inferdbg plugin vllm`` writes into a folder: the plug-in as a package of its own that needs no inferdbg."""

import base64
import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import inferdbg.blackbox
import inferdbg.engine

PACKAGE = "inferdbg_vllm"
GROUP = "vllm.general_plugins"
NAME = "inferdbg"
_BESIDE = {"inferdbg.blackbox.writer": "writer", "inferdbg.engine.hooks": "hooks", "inferdbg.engine.state": "state"}


def package_files() -> dict[str, bytes]:
    """Path inside the folder to content: the package and its .dist-info, by which vLLM finds it."""
    here = Path(__file__).parent
    sources = {
        **{path.stem: path for path in here.glob("*.py") if path != Path(__file__)},
        "writer": Path(inferdbg.blackbox.__path__[0]) / "writer.py",
        "hooks": Path(inferdbg.engine.__path__[0]) / "hooks.py",
        "state": Path(inferdbg.engine.__path__[0]) / "state.py",
    }
    files = {f"{PACKAGE}/{name}.py": _carried(path.read_text(encoding="utf-8")) for name, path in sources.items()}
    info = info_folder()
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {_version()}\n".encode()
    files[f"{info}/entry_points.txt"] = f"[{GROUP}]\n{NAME} = {PACKAGE}.entry:register\n".encode()
    files[f"{info}/RECORD"] = _record(files, info)
    return files


def info_folder() -> str:
    return f"{PACKAGE}-{_version()}.dist-info"


def digest(content: bytes) -> str:
    """As RECORD has it: https://packaging.python.org/en/latest/specifications/recording-installed-packages/"""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def _carried(source: str) -> bytes:
    """Imports of what travels along become relative."""
    for module, name in _BESIDE.items():
        source = source.replace(f"from {module} import", f"from .{name} import")
    return source.encode()


def _record(files: dict[str, bytes], info: str) -> bytes:
    lines = [f"{path},{digest(content)},{len(content)}" for path, content in files.items()]
    return "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()


def _version() -> str:
    try:
        return version("inferdbg")
    except PackageNotFoundError:  # run from a bare folder
        return "0"
