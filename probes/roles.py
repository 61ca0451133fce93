"""What a process does for a server: told by the title that engines give their processes, or by its arguments."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

FRONT_END, CORE, WORKER, LAUNCHER = "front end", "engine core", "worker", "launcher"
STARTING = "starting"
"""A child of Python's multiprocessing that has not said yet what it will be."""
_COMM = 15
"""What the kernel keeps of a name."""


class Part(NamedTuple):
    """``rank``: as the engine writes it, ``DP0 TP1``."""

    engine: str
    role: str
    rank: str | None = None


_TITLES: tuple[tuple[str, str, str], ...] = (
    ("VLLM::EngineCore", "vllm", CORE),
    ("VLLM::Worker", "vllm", WORKER),
    ("VLLM::APIServer", "vllm", FRONT_END),
    ("VLLM::DPCoordinator", "vllm", "coordinator"),
    ("sglang::scheduler", "sglang", CORE),
    ("sglang::detokenizer", "sglang", "detokenizer"),
    ("sglang::data_parallel_controller", "sglang", "coordinator"),
    ("llama-server", "llama.cpp", FRONT_END),
)
"""How titles begin. vLLM: set_process_title; SGLang: setproctitle in managers/."""
_PROGRAMS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("vllm", ("serve",), "vllm", FRONT_END),
    ("sglang", ("serve",), "sglang", FRONT_END),
    ("llama-server", (), "llama.cpp", FRONT_END),
    ("ollama", ("serve",), "ollama", FRONT_END),
    ("ollama", ("runner",), "ollama", WORKER),
    ("text-generation-launcher", (), "tgi", LAUNCHER),
    ("text-generation-router", (), "tgi", FRONT_END),
    ("text-generation-server", ("serve",), "tgi", WORKER),
    ("trtllm-serve", (), "tensorrt-llm", FRONT_END),
    ("lmdeploy", ("serve", "api_server"), "lmdeploy", FRONT_END),
)
"""A program's name, the words that must follow it, and what it is then."""
_MODULES: tuple[tuple[str, str, str], ...] = (
    ("vllm.entrypoints.openai.api_server", "vllm", FRONT_END),
    ("vllm.entrypoints.api_server", "vllm", FRONT_END),
    ("vllm.entrypoints.cli.main", "vllm", FRONT_END),
    ("sglang.launch_server", "sglang", FRONT_END),
    ("llama_cpp.server", "llama.cpp", FRONT_END),
)
"""What follows ``python -m``."""
_LIBRARIES: tuple[tuple[str, str], ...] = (
    ("xllamacpp", "llama.cpp"),
    ("/llama_cpp/", "llama.cpp"),
    ("libllama.", "llama.cpp"),
    ("libllama-server", "llama.cpp"),
)
"""What a host in Python has mapped: then the name of its own script tells nothing."""
_RANK = re.compile(r"_?((?:DP|PP|PCP|DCP|TP|EP)\d+)")


def part_of_title(name: str) -> Part | None:
    """By comm (cut at 15 characters) or a whole title: ``VLLM::EngineCor``, ``VLLM::Worker_DP0_TP1``."""
    title = name.split(" ", 1)[0]
    for whole, engine, role in _TITLES:
        if title.startswith(whole) or (len(title) == _COMM and whole.startswith(title)):
            ranks = _RANK.findall(name[len(whole) :])
            return Part(engine, role, " ".join(ranks) or None)
    return None


def part_of_arguments(argv: Sequence[str]) -> Part | None:
    """By the command line of a process that has no title yet, or never gets one."""
    if not argv:
        return None
    if len(argv) <= 2 and (part := part_of_title(argv[0])) is not None:
        return part
    for at, word in enumerate(argv[:4]):  # interpreter, its options, the program
        following = argv[at + 1 :]
        if word == "-m" and following:
            for module, engine, role in _MODULES:
                if following[0] == module:
                    return Part(engine, role)
        name = os.path.basename(word)
        for program, must_follow, engine, role in _PROGRAMS:
            if name == program and tuple(following[: len(must_follow)]) == must_follow:
                return Part(engine, role)
    return None


def engine_of_maps(maps: bytes) -> str | None:
    """The engine whose library /proc/PID/maps names."""
    text = maps.decode("utf-8", "replace")
    return next((engine for mark, engine in _LIBRARIES if mark in text), None)


def helper_of_arguments(argv: Sequence[str]) -> str | None:
    """What Python's multiprocessing and PyTorch start beside the processes that matter."""
    joined = " ".join(argv[:6])
    for mark, role in (
        ("multiprocessing.resource_tracker", "resource tracker"),
        ("multiprocessing.forkserver", "fork server"),
        ("_inductor/compile_worker", "compiler"),
        ("multiprocessing.spawn", STARTING),
    ):
        if mark in joined:
            return role
    return None


def may_be_server(comm: str) -> bool:
    """Whether it is worth while to read the arguments of a process with that name."""
    return bool(_CANDIDATE.match(comm))


_CANDIDATE = re.compile(
    r"python|VLLM|pt_main_thread|uvicorn|gunicorn|vllm|sglang|ollama|text-generation|trtllm|lmdeploy|llama|uv$",
    re.IGNORECASE,
)
