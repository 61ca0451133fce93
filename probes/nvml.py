"""NVIDIA GPUs through NVML, the driver's own library: what they do, what holds them back, and how healthy they are."""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferdbg.collect.probe import SECOND, Probe, Reading

from .withheld import Withheld

if TYPE_CHECKING:
    from .nvml_gpus import NvmlGpus

LIBRARY = "libnvidia-ml.so.1"
NO_LIBRARY_CURE = "lspci | grep -i nvidia   (a card needs its driver, a container --gpus all)"


@dataclass
class Nvml:
    """Of a GPU that is not well any call may sleep in the kernel for ever: never read on a thread of ours. A driver
    without persistence mode takes seconds to wake each GPU up, hence the long deadline; a look takes some ms a GPU."""

    cadence_ns: int = SECOND
    deadline_ns: int = 10 * SECOND

    name = "nvml"
    sections = ("gpus",)
    isolated = True

    def __post_init__(self) -> None:
        self._gpus: NvmlGpus | None = None

    def read(self, now_ns: int) -> Reading:
        from .nvml_gpus import NvmlGpus  # loads pynvml

        if self._gpus is None:
            self._gpus = NvmlGpus(self.name)
        return self._gpus.look(now_ns)

    def close(self) -> None:
        """The child that reads ends, and with it what the driver keeps for it."""


def gpus_here() -> Probe:
    """The probe; on a machine without the driver's library what says so, without a child."""
    try:
        ctypes.CDLL(LIBRARY)  # maps a file, and does not speak to the driver
    except OSError:
        return Withheld(Nvml.name, Nvml.sections, f"no NVML: there is no {LIBRARY}", NO_LIBRARY_CURE)
    return Nvml()
