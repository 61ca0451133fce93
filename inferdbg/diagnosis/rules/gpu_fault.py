"""The GPU's driver reported an error: of a program, of the hardware, or of the driver itself."""

from collections.abc import Iterator

from inferdbg import text
from inferdbg.diagnosis.finding import Evidence, Finding, Severity
from inferdbg.diagnosis.kernel import ENDS, told, whose
from inferdbg.facts.sections.kernel_log import KernelEvent
from inferdbg.facts.window import Window

_KINDS = ("xid", "sxid", "gpu lost", "driver mismatch", "driver failed")
_SHOWN = 4
_CAUSES = {"hardware": "gpu_hardware_fault", "program": "kernel_memory_fault", "driver": "driver_stack_mismatch"}


def check(window: Window) -> Iterator[Finding]:
    """The first that is no consequence of another; of those of one device and number one stands for all."""
    seen = list(told(window, *_KINDS))
    first = next((event for event in seen if event.blame != "consequence"), None)
    if first is None:
        first = seen[0] if seen else None
    if first is None:
        return
    alike = [
        event for event in seen if (event.kind, event.code, event.device) == (first.kind, first.code, first.device)
    ]
    devices = {event.device for event in seen if event.device is not None}
    who = next((found[0] for event in seen if event.device == first.device and (found := whose(window, event))), None)
    of = f" (of {who})" if who is not None else ""
    often = f", {len(alike)} times" if len(alike) > 1 else ""
    spread = f"; {len(devices) - 1} more GPUs report errors after it" if len(devices) > 1 else ""
    yield Finding(
        cause=_CAUSES.get(first.blame or "", "gpu_fault"),
        severity=_severity(first, who),
        confidence="likely" if first.kind == "xid" and first.blame in ("either", "program") else "sure",
        summary=f"{_headed(first)}{text.safe(first.what)}{of}{often}{spread}",
        evidence=tuple(Evidence("kernel_log", text.safe(event.text)) for event in seen[:_SHOWN]),
        next_step=first.advice or _ADVICE.get(first.kind, "nvidia-smi -q"),
        since_ns=first.mono_ns,
        explains=ENDS,
    )


def _headed(event: KernelEvent) -> str:
    return f"Xid {event.code} on {event.device}: " if event.kind == "xid" else ""


def _severity(event: KernelEvent, who: str | None) -> Severity:
    """An error of a program that is not this one's is no business of this server."""
    if event.blame == "consequence" or (event.blame == "program" and who is None and event.pid is not None):
        return "note"
    return "wrong"


_ADVICE = {
    "gpu lost": "reboot; then look at power, PCIe and heat: nvidia-smi, lspci -vv",
    "driver mismatch": "reboot, or unload and load the module: its library was changed under it",
    "driver failed": "dmesg -T | grep NVRM;  lspci -vv -s DEVICE",
    "sxid": "the log of nv-fabricmanager; its guide lists the SXids",
}
