"""What the arguments of a server say: its port and its model. They may hold secrets: nothing else leaves this file."""

import os
from collections.abc import Mapping, Sequence

_PORTS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "vllm": (("--port",), 8000),
    "sglang": (("--port",), 30000),
    "llama.cpp": (("--port",), 8080),
    "ollama": ((), 11434),
    "tgi": (("--port", "-p"), 3000),
    "tensorrt-llm": (("--port",), 8000),
    "lmdeploy": (("--server-port",), 23333),
}
"""Options that name the HTTP port, and the port without them."""
_MODELS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("--model", "--served-model-name"),
    "sglang": ("--model-path", "--model", "--served-model-name"),
    "llama.cpp": ("-m", "--model", "-hf", "--hf-repo", "-a", "--alias"),
    "tgi": ("--model-id",),
    "tensorrt-llm": ("--model",),
}
"""Options that name the model; the last that is given counts."""


def port_of(engine: str, argv: Sequence[str]) -> int:
    """Where it is to listen."""
    options, usual = _PORTS.get(engine, (("--port",), 8000))
    named = option(argv, *options) if options else None
    return int(named) if named is not None and named.isdecimal() else usual


def model_of(engine: str, argv: Sequence[str]) -> str | None:
    """By its options; of ``vllm serve MODEL`` by its place."""
    found = [value for name in _MODELS.get(engine, ()) if (value := option(argv, name)) is not None]
    if found:
        return found[-1]
    if engine in ("vllm", "tensorrt-llm"):
        for at, word in enumerate(argv[:5]):
            if word == "serve" or os.path.basename(word) == "trtllm-serve":
                follows = argv[at + 1 : at + 2]
                return follows[0] if follows and not follows[0].startswith("-") else None
    return None


def split(cmdline: bytes) -> tuple[str, ...]:
    """/proc/PID/cmdline as words. A title that replaced it is followed by blanks."""
    return tuple(word for word in cmdline.decode("utf-8", "replace").rstrip("\0 ").split("\0"))


def option(argv: Sequence[str], *names: str) -> str | None:
    """The value of ``--name VALUE`` or ``--name=VALUE``, of the last that stands there."""
    found = None
    for at, word in enumerate(argv):
        for name in names:
            if word == name and at + 1 < len(argv):
                found = argv[at + 1]
            elif word.startswith(f"{name}="):
                found = word.removeprefix(f"{name}=")
    return found
