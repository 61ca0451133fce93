"""Measured activity of a GPU: GPM of NVML, Hopper and later, from two samples of its hardware counters."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pynvml

from inferdbg.facts.sections.gpus import Activity

_LEAST_NS = 100_000_000
"""Between two samples, as nvml.h asks for."""
_MIB = 1 << 20
_METRICS = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: ("sm", 0.01),
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: ("occupancy", 0.01),
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: ("tensor", 0.01),
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: ("dram", 0.01),
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: ("pcie_tx_bytes_per_s", _MIB),
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: ("pcie_rx_bytes_per_s", _MIB),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: ("nvlink_tx_bytes_per_s", _MIB),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: ("nvlink_rx_bytes_per_s", _MIB),
}
"""NVML tells percent and MiB a second."""

Handle: TypeAlias = Any
Take = Callable[[Handle], object]
"""Fills a sample, from a whole GPU or from a slice of it."""


class _Sample(NamedTuple):
    handle: Handle
    mono_ns: int


class Sampler:
    """Keeps the last sample of each GPU or slice; the first one is taken twice, 0.1 s apart."""

    def __init__(self) -> None:
        self._last: dict[str, _Sample] = {}

    def activity(self, uuid: str, take: Take) -> Activity | None:
        """Since the last look. Raises pynvml.NVMLError."""
        before = self._last.pop(uuid, None) or _sample(take)
        try:
            time.sleep(max(0, before.mono_ns + _LEAST_NS - time.monotonic_ns()) / 1e9)
            after = self._last[uuid] = _sample(take)
            return _between(before, after)
        finally:
            pynvml.nvmlGpmSampleFree(before.handle)


def _sample(take: Take) -> _Sample:
    handle = pynvml.nvmlGpmSampleAlloc()
    try:
        take(handle)
    except pynvml.NVMLError:
        pynvml.nvmlGpmSampleFree(handle)
        raise
    return _Sample(handle, time.monotonic_ns())


def _between(before: _Sample, after: _Sample) -> Activity:
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
    asked.sample1, asked.sample2 = before.handle, after.handle
    for index, metric in enumerate(_METRICS):
        asked.metrics[index].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    found: dict[str, float] = {}
    for index, (name, unit) in enumerate(_METRICS.values()):
        metric = asked.metrics[index]
        if metric.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(metric.value):
            found[name] = metric.value * unit
    return Activity(after.mono_ns - before.mono_ns, **found)
