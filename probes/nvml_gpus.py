"""What NVML tells of each GPU, as facts: what it does not know or does not say is None."""

import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import pynvml

from inferdbg import text
from inferdbg.collect.probe import Reading
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.gpus import (
    Activity,
    Gpu,
    GpuProcess,
    Gpus,
    GpuState,
    MemoryHealth,
    MigInstance,
    NvLinks,
    Pcie,
    Throttle,
    Xid,
)

from .nvml_errors import NO_GPU, Trouble, trouble_of
from .nvml_gpm import Sampler

Given = ParamSpec("Given")
Told = TypeVar("Told")
Device: TypeAlias = Any
Raw: TypeAlias = Any
"""A structure of pynvml, which has no types."""

_GONE: dict[int, GpuState] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "needs reset",
}
_THROTTLES: dict[int, Throttle] = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "heat (software)",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "heat (hardware)",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "clocks set by hand",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display",
}
_ALL_LINKS = 0xFFFFFFFF
_NO_INSTANCE = 0xFFFFFFFF
_MOST_GPUS, _MOST_XIDS, _MOST_PROCESSES = 64, 32, 256


def known(call: Callable[Given, Told], *arguments: Given.args, **named: Given.kwargs) -> Told | None:
    """What the call tells; None for what this GPU has not, this driver does not know or we may not see. Raises
    pynvml.NVMLError only where the GPU itself is gone."""
    try:
        return call(*arguments, **named)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise
        return None


class NvmlGpus:
    """The GPUs of this machine, over many looks: samples and Xids are kept between them."""

    def __init__(self, probe: str) -> None:
        self._probe = probe
        self._open = False
        self._sampler = Sampler()
        self._seen: dict[int, Gpu] = {}
        self._events: dict[int, Any] = {}
        self._xids: dict[int, tuple[Xid, ...]] = {}

    def look(self, now_ns: int) -> Reading:
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            count = min(pynvml.nvmlDeviceGetCount(), _MOST_GPUS)
        except pynvml.NVMLError as error:
            self._open = False
            self._events.clear()
            return Reading({}, *trouble_of(error))
        if not count:
            return Reading({}, *NO_GPU)
        looks = [self._gpu(index) for index in range(count)]
        section = Gpus(
            Origin(self._probe, now_ns),
            tuple(gpu for gpu, _ in looks),
            _safe(known(pynvml.nvmlSystemGetDriverVersion)),
            _cuda_version(),
        )
        for gpu, trouble in looks:
            if trouble is not None:
                return Reading({"gpus": section}, message=f"GPU {gpu.index}: {trouble.why}", hint=trouble.cure)
        return Reading({"gpus": section})

    def _gpu(self, index: int) -> tuple[Gpu, Trouble | None]:
        """Of one that is gone, what it was."""
        try:
            found = self._seen[index] = self._look_at(index, pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError as error:
            trouble = trouble_of(error, index)
            was = self._seen.get(index, Gpu(index))
            state: GpuState = _GONE.get(error.value, "unreadable")
            xids = self._heard(index)
            return Gpu(index, state, trouble.why, was.uuid, was.name, was.bus, xids=xids), trouble
        return found, None

    def _look_at(self, index: int, device: Device) -> Gpu:
        if index not in self._events:
            self._events[index] = _xid_events(device)
        uuid = _safe(known(pynvml.nvmlDeviceGetUUID, device))
        pci = known(pynvml.nvmlDeviceGetPciInfo, device)
        memory = _memory(device)
        busy = known(pynvml.nvmlDeviceGetUtilizationRates, device)
        return Gpu(
            index=index,
            uuid=uuid,
            name=_safe(known(pynvml.nvmlDeviceGetName, device)),
            bus=_safe(pci.busId) if pci is not None else None,
            busy=busy.gpu / 100 if busy is not None else None,
            memory_busy=busy.memory / 100 if busy is not None else None,
            memory_total_bytes=memory.total if memory is not None else None,
            memory_used_bytes=memory.used if memory is not None else None,
            memory_free_bytes=memory.free if memory is not None else None,
            memory_reserved_bytes=getattr(memory, "reserved", None),
            sm_clock_mhz=known(pynvml.nvmlDeviceGetClockInfo, device, pynvml.NVML_CLOCK_SM),
            sm_clock_max_mhz=known(pynvml.nvmlDeviceGetMaxClockInfo, device, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=known(pynvml.nvmlDeviceGetClockInfo, device, pynvml.NVML_CLOCK_MEM),
            memory_clock_max_mhz=(clock := known(pynvml.nvmlDeviceGetMaxClockInfo, device, pynvml.NVML_CLOCK_MEM)),
            dram_peak_bytes_per_s=dram_peak(clock, known(pynvml.nvmlDeviceGetMemoryBusWidth, device)),
            power_mw=known(pynvml.nvmlDeviceGetPowerUsage, device),
            power_limit_mw=known(pynvml.nvmlDeviceGetEnforcedPowerLimit, device),
            temperature_c=known(pynvml.nvmlDeviceGetTemperature, device, pynvml.NVML_TEMPERATURE_GPU),
            slowdown_c=known(
                pynvml.nvmlDeviceGetTemperatureThreshold, device, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            throttle=throttle_in_words(_clock_reasons(device)),
            persistence=_yes(known(pynvml.nvmlDeviceGetPersistenceMode, device)),
            nvlinks=_nvlinks(device),
            health=_health(device),
            xids=self._heard(index),
            mig=self._mig(device),
            processes=_processes(device),
            activity=(activity := self._activity(uuid, device)),
            pcie=_pcie(device, sampled=activity is None or activity.pcie_tx_bytes_per_s is None),
        )

    def _activity(self, uuid: str | None, device: Device) -> Activity | None:
        support = known(pynvml.nvmlGpmQueryDeviceSupport, device)
        if uuid is None or support is None or not support.isSupportedDevice:
            return None
        return known(self._sampler.activity, uuid, lambda sample: pynvml.nvmlGpmSampleGet(device, sample))

    def _mig(self, device: Device) -> tuple[MigInstance, ...] | None:
        """Its slices; None where it is whole."""
        mode = known(pynvml.nvmlDeviceGetMigMode, device)
        if mode is None or not mode[0]:
            return None
        most = known(pynvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0
        slices = (known(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index) for index in range(most))
        return tuple(self._slice(device, one) for one in slices if one is not None)

    def _slice(self, device: Device, part: Device) -> MigInstance:
        uuid = _safe(known(pynvml.nvmlDeviceGetUUID, part)) or ""
        memory = known(pynvml.nvmlDeviceGetMemoryInfo, part)
        instance = known(pynvml.nvmlDeviceGetGpuInstanceId, part)
        activity = None
        if instance is not None:
            activity = known(
                self._sampler.activity, uuid, lambda sample: pynvml.nvmlGpmMigSampleGet(device, instance, sample)
            )
        return MigInstance(
            uuid=uuid,
            name=_safe(known(pynvml.nvmlDeviceGetName, part)),
            gpu_instance=instance,
            compute_instance=known(pynvml.nvmlDeviceGetComputeInstanceId, part),
            memory_total_bytes=memory.total if memory is not None else None,
            memory_used_bytes=memory.used if memory is not None else None,
            activity=activity,
        )

    def _heard(self, index: int) -> tuple[Xid, ...]:
        """The Xids since the first look, the last ones of many. The driver tells them only to those who asked before,
        also after the GPU is lost."""
        events, found = self._events.get(index), list(self._xids.get(index, ()))
        for _ in range(_MOST_XIDS if events is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait(events, 0)
            except pynvml.NVMLError:  # there is none, or never will be
                break
            found.append(Xid(event.eventData, time.monotonic_ns()))
        self._xids[index] = tuple(found[-_MOST_XIDS:])
        return self._xids[index]


def dram_peak(clock_mhz: int | None, bus_bits: int | None) -> int | None:
    """Bytes a second: memory clock × 2 transfers (double data rate) × bus width / 8. What data sheets say is this
    within some percent."""
    return clock_mhz * 1_000_000 * 2 * bus_bits // 8 if clock_mhz and bus_bits else None


def throttle_in_words(reasons: int | None) -> tuple[Throttle, ...] | None:
    """The bits of nvmlClocksEventReasons; that it is idle is no reason."""
    if reasons is None:
        return None
    left = reasons & ~pynvml.nvmlClocksEventReasonGpuIdle
    words = [word for bit, word in _THROTTLES.items() if left & bit]
    return (*words, "unknown") if left & ~sum(_THROTTLES) else tuple(words)


def _clock_reasons(device: Device) -> int | None:
    reasons: int | None = known(pynvml.nvmlDeviceGetCurrentClocksEventReasons, device)
    return reasons if reasons is not None else known(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, device)


def _memory(device: Device) -> Raw:
    """Before driver 510 what is reserved counts as used."""
    memory = known(pynvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2)
    return memory if memory is not None else known(pynvml.nvmlDeviceGetMemoryInfo, device)


def _pcie(device: Device, *, sampled: bool) -> Pcie:
    """``sampled``: also the throughput, which takes 20 ms for each direction."""
    sent, got = (
        known(pynvml.nvmlDeviceGetPcieThroughput, device, direction) if sampled else None
        for direction in (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    )
    return Pcie(
        known(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, device),
        known(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, device),
        known(pynvml.nvmlDeviceGetCurrPcieLinkWidth, device),
        known(pynvml.nvmlDeviceGetMaxPcieLinkWidth, device),
        sent * 1000 if sent is not None else None,  # NVML tells KB
        got * 1000 if got is not None else None,
        known(pynvml.nvmlDeviceGetPcieReplayCounter, device),
    )


def _nvlinks(device: Device) -> NvLinks | None:
    """None where it has none."""
    asked = [
        pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    ]
    fields: Raw = known(pynvml.nvmlDeviceGetFieldValues, device, asked)
    if fields is None:
        return None
    count, sent, got = (_number(field) for field in fields)
    if not count:
        return None
    links = min(count, pynvml.NVML_NVLINK_MAX_LINKS)
    narrow = fields[1].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return NvLinks(
        links,
        sum(bool(known(pynvml.nvmlDeviceGetNvLinkState, device, link)) for link in range(links)),
        sent * 1024 if sent is not None else None,  # NVML counts KiB
        got * 1024 if got is not None else None,
        (1 << 32) * 1024 if narrow and sent is not None else None,
    )


def _number(field: Raw) -> int | None:
    """An unsigned one; None where it has no value."""
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    kinds = {
        pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    }
    found: int | None = getattr(field.value, kinds[field.valueType]) if field.valueType in kinds else None
    return found


def _health(device: Device) -> MemoryHealth:
    corrected, uncorrected = (
        known(pynvml.nvmlDeviceGetTotalEccErrors, device, kind, pynvml.NVML_VOLATILE_ECC)
        for kind in (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    )
    rows = known(pynvml.nvmlDeviceGetRemappedRows, device)
    if rows is not None:
        return MemoryHealth(corrected, uncorrected, rows[0] + rows[1], None, bool(rows[2]), bool(rows[3]))
    causes = range(pynvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)
    pages = [known(pynvml.nvmlDeviceGetRetiredPages, device, cause) for cause in causes]
    told = [len(of_cause) for of_cause in pages if of_cause is not None]
    pending = _yes(known(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, device))
    return MemoryHealth(corrected, uncorrected, None, sum(told) if told else None, pending)


def _processes(device: Device) -> tuple[GpuProcess, ...] | None:
    """Compute first; None where they are hidden from us."""
    compute = known(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, device)
    if compute is None:  # before driver 510
        compute = known(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, device)
    graphics = known(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, device)
    if compute is None and graphics is None:
        return None
    found = {one.pid: GpuProcess(one.pid, "graphics", one.usedGpuMemory, _instance(one)) for one in graphics or ()}
    found |= {one.pid: GpuProcess(one.pid, "compute", one.usedGpuMemory, _instance(one)) for one in compute or ()}
    return tuple(sorted(found.values(), key=lambda one: (one.kind, one.pid))[:_MOST_PROCESSES])


def _instance(process: Raw) -> int | None:
    return process.gpuInstanceId if process.gpuInstanceId != _NO_INSTANCE else None


def _xid_events(device: Device) -> Raw:
    """Where Xids of this GPU arrive; None where they cannot be heard."""
    supported = known(pynvml.nvmlDeviceGetSupportedEventTypes, device) or 0
    if not supported & pynvml.nvmlEventTypeXidCriticalError:
        return None
    try:
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError:
        return None
    return events


def _cuda_version() -> str | None:
    """NVML writes 12.4 as 12040."""
    version = known(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return f"{version // 1000}.{version % 1000 // 10}" if version is not None else None


def _yes(state: int | None) -> bool | None:
    return None if state is None else bool(state)


def _safe(name: str | bytes | None) -> str | None:
    if name is None:
        return None
    return text.safe(name if isinstance(name, str) else name.decode("utf-8", "replace"), 100)
