"""Will evidence be there when it is needed? One function a check, tried for real where it can be."""

from collections.abc import Callable

from .check import Check, Place
from .gpu import compute_sanitizer, driver, nccl_ras, persistence, torch_cuda, triton
from .keeping import box_outlives_container, box_outlives_login, box_space, disk
from .looking import (
    core_limit,
    core_pattern,
    coredump_filter,
    gdb,
    kernel_log,
    perf,
    ptrace,
    py_spy,
    pystack,
    target_memory,
    yama,
)
from .machine import clock, huge_pages, memory_limit, numa_balancing, open_files, swap

CHECKS: tuple[Callable[[Place], Check], ...] = (
    ptrace,
    target_memory,
    yama,
    py_spy,
    gdb,
    pystack,
    core_limit,
    core_pattern,
    coredump_filter,
    disk,
    box_space,
    box_outlives_login,
    box_outlives_container,
    kernel_log,
    perf,
    driver,
    torch_cuda,
    triton,
    compute_sanitizer,
    nccl_ras,
    persistence,
    clock,
    numa_balancing,
    huge_pages,
    open_files,
    memory_limit,
    swap,
)


def examine(place: Place) -> list[Check]:
    """Every check, in the order of what an engineer reaches for first; some seconds."""
    return [check(place) for check in CHECKS]


__all__ = ["CHECKS", "Check", "Place", "examine"]
