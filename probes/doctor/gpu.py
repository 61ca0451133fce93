"""Checks of the NVIDIA stack: driver, CUDA, torch and triton against each other, and the tools for GPU faults."""

import glob
import importlib.metadata
import os
import re
import shutil
import socket

from inferdbg import text

from .check import Check, Place, first_line, said_by

_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""Of a CUDA major version: docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html."""
_RAS_PORT = 28028
"""NCCL_RAS_ADDR, unless set: docs.nvidia.com/deeplearning/nccl, RAS."""
_MODULE = re.compile(r"NVRM version: .*?\s(\d+\.\d+(?:\.\d+)?)\s")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64")
_NO_DRIVER = "there is no NVIDIA driver on this machine"


def driver(place: Place) -> Check:
    """The loaded kernel module against the libraries on disk: an upgrade without a reload parts them."""
    why = "NVML and new CUDA processes fail where the two differ"
    module = _module(place)
    libraries = _library_versions(place)
    if module is None:
        found = f"{_NO_DRIVER}: no NVML, no GPU facts" if not libraries else "the driver's module is not loaded"
        return Check(
            "driver", "unknown" if not libraries else "fail", found, why, "sudo modprobe nvidia" * bool(libraries)
        )
    if not libraries:
        cure = "docker run --gpus all, with the NVIDIA container toolkit on the host"
        return Check("driver", "fail", f"module {module}, and no libnvidia-ml to speak to it", why, cure)
    if module not in libraries:
        found = f"module {module}, libraries {', '.join(sorted(libraries))}"
        cure = "reboot, or stop all GPU jobs and reload: sudo modprobe -r nvidia_uvm nvidia && sudo modprobe nvidia"
        return Check("driver", "fail", found, why, cure)
    return Check("driver", "ok", f"module and libraries {module}", why)


def torch_cuda(place: Place) -> Check:
    """CUDA of this Python's torch against the driver; torch is not imported."""
    why = "a driver too old for its CUDA ends in 'no kernel image' or no GPU at all"
    version = _version("torch")
    if version is None:
        return Check("torch-cuda", "unknown", "this Python has no torch", why, "run it with the server's Python")
    built = cuda_of_torch(version, _version("nvidia-cuda-runtime-cu12"), _version("nvidia-cuda-runtime"))
    module = _module(place)
    if built is None:
        found = (
            f"torch {version} is built without CUDA"
            if module is not None
            else f"torch {version}, no CUDA; {_NO_DRIVER}"
        )
        return Check(
            "torch-cuda", "fail" if module is not None else "unknown", found, why, "pip install torch   (with CUDA)"
        )
    if module is None:
        return Check("torch-cuda", "unknown", f"torch {version} for CUDA {built}; {_NO_DRIVER}", why)
    oldest = _OLDEST_DRIVER.get(int(built.split(".")[0]))
    found = f"torch {version} for CUDA {built}, driver {module}"
    if oldest is not None and int(module.split(".")[0]) < oldest:
        cure = f"a driver of {oldest} or newer, or a torch for an older CUDA"
        return Check("torch-cuda", "fail", f"{found}: too old", why, cure)
    return Check("torch-cuda", "ok", found, why)


def cuda_of_torch(version: str, runtime_12: str | None, runtime: str | None) -> str | None:
    """``2.11.0+cu128`` says it; a plain version has its CUDA beside it as a package. None of a build for CPUs."""
    found = re.search(r"\+cu(\d{2})(\d)$", version)
    if found is not None:
        return f"{found[1]}.{found[2]}"
    if "+" in version:
        return None
    beside = runtime or runtime_12
    return ".".join(beside.split(".")[:2]) if beside is not None else None


def triton(place: Place) -> Check:
    """The triton that torch was built with against the one that is installed."""
    why = "another triton than torch's own miscompiles or fails at the first kernel"
    torch, installed = _version("torch"), _version("triton")
    if torch is None:
        return Check("triton", "unknown", "this Python has no torch", why, "run it with the server's Python")
    try:
        needs = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        needs = []
    pinned = next((asked[1] for line in needs if (asked := re.match(r"triton\s*==\s*([\w.]+)", line))), None)
    if pinned is None:
        return Check("triton", "unknown", f"torch {torch} asks for none", why)
    if installed != pinned:
        found = f"{f'triton {installed}' if installed else 'none is installed'}, torch {torch} asks for {pinned}"
        return Check("triton", "warn", found, why, f"pip install triton=={pinned}")
    return Check("triton", "ok", f"triton {installed}, as torch {torch} asks for", why)


def compute_sanitizer(place: Place) -> Check:
    why = "it finds the kernel and the line of an illegal access (Xid 13, 31)"
    found = shutil.which("compute-sanitizer") or next(
        (path for path in ("/usr/local/cuda/bin/compute-sanitizer",) if os.access(path, os.X_OK)), None
    )
    if found is not None:
        return Check("compute-sanitizer", "ok", found, why)
    if _version("nvidia-cuda-sanitizer-api") is not None:
        return Check("compute-sanitizer", "ok", "as a Python package", why)
    if _module(place) is None:
        return Check("compute-sanitizer", "unknown", f"not installed; {_NO_DRIVER}", why)
    return Check("compute-sanitizer", "warn", "not installed", why, "pip install 'inferdbg[sanitizers]'")


def nccl_ras(place: Place) -> Check:
    """Whether an NCCL job here answers (2.24 and newer listen unless NCCL_RAS_ENABLE=0)."""
    why = "it names the rank that is missing from a collective"
    try:
        with socket.create_connection(("localhost", _RAS_PORT), timeout=1.0):
            return Check("nccl-ras", "ok", f"a job listens at localhost:{_RAS_PORT}", why, "ncclras   (asks it)")
    except OSError:
        found = f"nobody listens at localhost:{_RAS_PORT}: no NCCL job, an old NCCL, or NCCL_RAS_ENABLE=0"
        return Check("nccl-ras", "unknown", found, why)


def persistence(place: Place) -> Check:
    why = "without it the driver forgets error counts, and unloads, when the last process leaves"
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check("persistence", "unknown", "there is no nvidia-smi", why)
    said = said_by([program, "--query-gpu=index,persistence_mode", "--format=csv,noheader"])
    if said is None:
        found = "nvidia-smi fails or does not answer within 5 s"
        return Check("persistence", "fail", found, why, "nvidia-smi; then: inferdbg doctor   (see driver, kernel-log)")
    modes = [line.split(",") for line in said.splitlines() if "," in line]
    off = [index.strip() for index, mode in ((row[0], row[-1]) for row in modes) if "Enabled" not in mode]
    if not modes:
        return Check("persistence", "unknown", f"nvidia-smi says: {first_line(said)}", why)
    if off:
        return Check(
            "persistence",
            "warn",
            f"off on GPU {', '.join(off)}",
            why,
            "sudo systemctl enable --now nvidia-persistenced",
        )
    return Check("persistence", "ok", f"on, of {text.counted(len(modes), 'GPU')}", why)


def _module(place: Place) -> str | None:
    """The version of the driver that the kernel has loaded."""
    found = _MODULE.search(place.read("proc/driver/nvidia/version") or "")
    return found[1] if found is not None else None


def _library_versions(place: Place) -> set[str]:
    names = [path for folder in _LIBRARIES for path in glob.glob(place.path(f"{folder}/libnvidia-ml.so.*.*"))]
    return {os.path.basename(name).removeprefix("libnvidia-ml.so.") for name in names}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
