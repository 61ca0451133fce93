"""What NVIDIA's Xid numbers mean, whose fault they tell of, and what to do.

After NVIDIA's Xid catalog and Xid errors guide (docs.nvidia.com/deploy/xid-errors, drivers R570 to R580), in our words.
"""

from typing import NamedTuple

from inferdbg.facts.sections.kernel_log import Blame


class Xid(NamedTuple):
    what: str
    blame: Blame
    advice: str


_SANITIZE = (
    "run it under compute-sanitizer; if another program faults there too, the GPU's diagnostics (dcgmi diag -r 3)"
)
_RESET = "end what uses the GPU, then nvidia-smi --gpu-reset -i DEVICE; reboot where that fails"
_DRAIN = "take the GPU out of service: nvidia-smi -q -d ECC,ROW_REMAPPER, dcgmi diag -r 3"
_BEFORE = "look for the Xid before it: this one follows from it"
_FABRIC = "nvidia-smi nvlink -e, the log of nv-fabricmanager; then reset the GPUs of that fabric"

XIDS: dict[int, Xid] = {
    8: Xid("a channel did not go on in time", "either", _RESET),
    13: Xid("a kernel faulted: an illegal address or instruction", "program", _SANITIZE),
    31: Xid("a kernel touched memory that is not mapped", "program", _SANITIZE),
    32: Xid("commands for the GPU were damaged on their way", "either", "check PCIe (AER in this log) and the driver"),
    38: Xid("the GPU's firmware failed", "driver", _RESET),
    43: Xid("the driver cut off a process that had faulted; the GPU is well", "consequence", _BEFORE),
    44: Xid("a fault while the GPU changed from one process to another", "either", _RESET),
    45: Xid("the driver cleaned up after a process that ended or faulted", "consequence", _BEFORE),
    46: Xid("the GPU stopped", "either", _RESET),
    48: Xid("memory of the GPU had an error that ECC cannot correct", "hardware", _DRAIN),
    61: Xid("the GPU's own controller stopped at a breakpoint", "hardware", _RESET),
    62: Xid("the GPU's own controller halted", "hardware", _RESET),
    63: Xid("a bad row of memory is to be replaced at the next reset", "hardware", _DRAIN),
    64: Xid("a bad row of memory could not be replaced", "hardware", _DRAIN),
    69: Xid("a program sent the GPU what it does not understand", "either", _SANITIZE),
    74: Xid("an NVLink failed", "hardware", _FABRIC),
    79: Xid(
        "the GPU has fallen off the bus: it does not answer any more", "hardware", "reboot; then power, PCIe and heat"
    ),
    92: Xid("memory of the GPU has many errors that ECC corrects", "hardware", _DRAIN),
    94: Xid("an uncorrectable memory error hit one process; the others are safe", "hardware", _DRAIN),
    95: Xid("an uncorrectable memory error hit everybody on the GPU", "hardware", _RESET),
    109: Xid("the GPU did not change to another process in time", "either", _RESET),
    110: Xid("a security fault of the GPU", "hardware", _RESET),
    119: Xid("the GPU's system processor (GSP) did not answer the driver", "driver", _RESET),
    120: Xid("the GPU's system processor (GSP) failed", "driver", _RESET),
    121: Xid("the link between GPU and CPU (C2C) had an error", "hardware", _DRAIN),
    137: Xid("a process touched memory of another GPU that it may not", "program", _SANITIZE),
    140: Xid("an ECC error was found that could not be recovered from", "hardware", _RESET),
    143: Xid("the GPU could not be initialised", "hardware", _RESET),
    **{code: Xid("the NVLink fabric had an error", "hardware", _FABRIC) for code in range(144, 151)},
    154: Xid("what brings the GPU back has changed", "consequence", "do as it says; the Xid before it says why"),
    156: Xid("a part of the GPU was taken out of use", "hardware", _DRAIN),
    157: Xid("a part of the GPU could not be taken out of use", "hardware", _DRAIN),
    158: Xid("the GPU did not answer in time, for good", "hardware", _RESET),
}
UNKNOWN = Xid("", "either", "see NVIDIA's Xid catalog: docs.nvidia.com/deploy/xid-errors")
