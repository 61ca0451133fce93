"""Why a process's memory may not be read, and what to type."""

import os

import pytest

from inferdbg.probes.rights import denied_memory, why_denied


@pytest.mark.parametrize(
    ("case", "why", "cure"),
    [
        ({"owner": 1001}, "belongs to uid 1001", "sudo inferdbg attach 58"),
        ({"scope": 1}, "only a parent may read", "kernel.yama.ptrace_scope=0"),
        ({"scope": 2}, "only a parent may read", "sudo inferdbg attach 58"),
        ({"scope": 3}, "lets nobody read", "restart of the machine"),
        ({"own": 0, "owner": 0}, "needs CAP_SYS_PTRACE", "capabilities.add: [SYS_PTRACE]"),
        ({}, "protects its memory", "sudo inferdbg attach 58"),
    ],
)
def test_every_reason_has_its_cure(case: dict[str, int], why: str, cure: str) -> None:
    facts = {"owner": 1000, "own": 1000, "scope": 0} | case
    denied = why_denied(owner=facts["owner"], own=facts["own"], scope=facts["scope"], capable=False, pid=58)
    assert why in denied.why
    assert cure in denied.cure


def test_our_own_memory_may_be_read_and_that_of_nobody_may_not() -> None:
    assert denied_memory(os.getpid()) is None
    assert denied_memory(1 << 30) is not None
