"""What /proc says of threads: of raw files, and of a real process."""

import os
import threading
import time

from inferdbg.facts.sections.stacks import Call, ThreadStack
from inferdbg.probes.thread_files import ThreadFiles, parse_thread, read_threads, with_kernel

STAT = b"20912 (python) %s 1 20912 20912 0 -1 4194304 0 0 0 0 100 40 0 0 20 0 6 0 999 0 0 " + b"0 " * 30
FUTEX = b"202 0x56207dfa94f0 0x189 0x0 0x0 0x0 0xffffffff 0x7ffcffe3dba0 0x7f0e2eaa3f16\n"
STACK = b"[<0>] futex_do_wait+0x46/0x90\n[<0>] __futex_wait+0x8a/0x100\n"


def test_a_thread_that_sleeps_says_where() -> None:
    status = b"Name:\tpython\nvoluntary_ctxt_switches:\t596\nnonvoluntary_ctxt_switches:\t7\n"
    thread = parse_thread(
        ThreadFiles(STAT % b"S", status, b"1439375640 5799863687 596\n", b"futex_do_wait", FUTEX, STACK), "x86_64"
    )
    assert (thread.state, thread.kernel_wait, thread.wakes, thread.cpu_ns) == ("S", "futex_do_wait", 596, 1439375640)
    assert (thread.timed, thread.active, thread.kernel_calls) == (False, False, ())


def test_a_wait_with_a_timeout_is_told() -> None:
    timed = FUTEX.replace(b"0x189 0x0 0x0", b"0x189 0x0 0x7f0e077fd240")
    assert parse_thread(ThreadFiles(STAT % b"S", syscall=timed), "x86_64").timed is True
    assert parse_thread(ThreadFiles(STAT % b"S", syscall=timed), "riscv64").timed is None
    assert parse_thread(ThreadFiles(STAT % b"R", syscall=b"running\n"), "x86_64").timed is None


def test_what_may_not_be_read_is_unknown() -> None:
    """The kernel shows 0 for wchan to whoever may not trace the process."""
    thread = parse_thread(ThreadFiles(STAT % b"S", wchan=b"0"))
    assert (thread.kernel_wait, thread.wakes, thread.cpu_ns) == (None, None, 1_400_000_000)


def test_the_kernel_stack_is_kept_of_who_hangs_there() -> None:
    thread = parse_thread(ThreadFiles(STAT % b"D", wchan=b"folio_wait_bit_common.isra.0", stack=STACK))
    assert thread.kernel_wait == "folio_wait_bit_common"
    assert thread.kernel_calls == ("futex_do_wait", "__futex_wait")


def test_the_kernels_word_is_joined_by_thread() -> None:
    calls = (Call("f", "a.py", 1),)
    kernel = [ThreadStack("python", 7, state="S", wakes=3), ThreadStack("ZMQbg/IO/0", 8, state="S")]
    (joined,) = with_kernel([ThreadStack("MainThread", 7, calls)], kernel)
    assert (joined.name, joined.calls, joined.wakes) == ("MainThread", calls, 3)
    assert [one.name for one in with_kernel([ThreadStack("MainThread", 7, calls)], kernel, native=True)] == [
        "MainThread", "ZMQbg/IO/0",
    ]  # fmt: skip


def test_a_real_process_is_read_main_thread_first() -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait, daemon=True)
    other.start()
    try:
        found = read_threads(os.getpid())
    finally:
        over.set()
    assert found[0].native_id == os.getpid()
    there = next(thread for thread in found if thread.native_id == other.native_id)
    assert there.state in ("S", "R")
    assert there.cpu_ns is not None
    assert there.cpu_ns < time.process_time_ns() + 10**9
    assert read_threads(2**22 + 1) == ()
