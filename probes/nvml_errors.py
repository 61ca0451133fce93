"""What NVML's errors mean, and what to type next."""

from typing import NamedTuple

import pynvml

from inferdbg import text
from inferdbg.facts.provenance import ProbeStatus

from .nvml import LIBRARY, NO_LIBRARY_CURE


class Trouble(NamedTuple):
    """``why`` in a few words, ``cure``: a line to type."""

    status: ProbeStatus
    why: str
    cure: str


_LOG = "sudo dmesg | grep -iE 'NVRM|Xid'"
_RELOAD = "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia"
_TROUBLES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Trouble("absent", f"no NVML: there is no {LIBRARY}", NO_LIBRARY_CURE),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Trouble(
        "absent", "no NVML: the NVIDIA driver is not loaded", f"sudo modprobe nvidia   (why it is not: {_LOG})"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Trouble(
        "failed",
        "the driver in the kernel and its library differ in version: it was updated and not loaded again",
        f"reboot, or with every process on the GPUs stopped: {_RELOAD}",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: Trouble(
        "denied", "the GPU's device files may not be opened by us", "ls -l /dev/nvidia*   (or run inferdbg with sudo)"
    ),
    pynvml.NVML_ERROR_OPERATING_SYSTEM: Trouble(
        "denied", "the operating system keeps us from the GPU", "in a container: start it with --gpus all"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: Trouble(
        "failed",
        "it fell off the bus, or cannot be reached",
        f"{_LOG}   (then reboot: it does not come back by itself)",
    ),
    pynvml.NVML_ERROR_RESET_REQUIRED: Trouble(
        "failed", "it must be reset before it can be used", "sudo nvidia-smi --gpu-reset -i N   (no process may use it)"
    ),
    pynvml.NVML_ERROR_IRQ_ISSUE: Trouble("failed", "the kernel has trouble with its interrupts", _LOG),
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: Trouble("failed", "its power cables are not properly attached", _LOG),
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: Trouble(
        "failed", "its infoROM is corrupted", "nvidia-smi -q | grep -i inforom   (a new driver may repair it)"
    ),
    pynvml.NVML_ERROR_TIMEOUT: Trouble("failed", "the driver did not answer in time", _LOG),
}
NO_GPU = Trouble("absent", "no NVML: the driver sees no GPU", "lspci | grep -i nvidia   (a container needs --gpus all)")


def trouble_of(error: pynvml.NVMLError, index: int | None = None) -> Trouble:
    """By its code. ``index``: of the GPU that it is about."""
    known = _TROUBLES.get(error.value)
    if known is None:
        return Trouble("failed", text.safe(f"NVML: {error} (code {error.value})", 200), f"nvidia-smi; {_LOG}")
    return known._replace(cure=known.cure.replace("-i N", f"-i {index}")) if index is not None else known
