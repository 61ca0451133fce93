"""What pystack, gdb and faulthandler print, read without trust."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from inferdbg.probes.stack_texts import parse_faulthandler, parse_gdb, parse_pystack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stacks"
FAULT = b"""noise of the program
Thread 0x00007f45565c56c0 [worker] (most recent call first):
  File "/usr/local/lib/python3.14/threading.py", line 982 in run
  File "/usr/local/lib/python3.14/threading.py", line 1045 in _bootstrap_inner

Current thread 0x00007f4557210b80 (most recent call first):
  File "/srv/app/train.py", line 5 in <module>
"""


def test_calls_of_pystack_come_innermost_first_with_short_files() -> None:
    threads = parse_pystack((FIXTURES / "vllm" / "pystack_remote_native_enginecore.txt").read_bytes())
    main = threads[-1]
    assert (main.native_id, len(threads)) == (4011, 5)
    assert (main.calls[0].function, main.calls[0].native) == ("__sched_yield", True)
    python = [(call.function, call.file, call.line) for call in main.calls if not call.native]
    assert python[0] == ("sched_yield", "vllm/distributed/utils.py", 46)
    assert python[3] == ("__enter__", "contextlib.py", 137)
    assert python[-1] == ("<module>", "<string>", 1)


def test_the_holder_of_the_gil_is_read_from_pystack() -> None:
    head = b"Traceback for thread 7 (python) [Has the GIL] (most recent call last):\n"
    (thread,) = parse_pystack(head + b'    (Python) File "a.py", line 3, in f\n')
    assert (thread.holds_gil, thread.name, thread.calls[0].line) == (True, "python", 3)


def test_calls_of_gdb_have_their_library() -> None:
    threads = parse_gdb((FIXTURES / "incidents" / "65-trtllm-allgather-gdb" / "gdb_rank3.txt").read_bytes())
    loop = next(thread for thread in threads if thread.name == "executionLoop")
    assert (loop.native_id, loop.calls[0].function, loop.calls[0].file) == (6370, "syscall", "libc.so.6")
    assert "tensorrt_llm::plugins::AllgatherPlugin::enqueue" in loop.calls[7].function
    assert all(call.native for thread in threads for call in thread.calls)


def test_calls_of_gdb_with_sources_have_no_arguments() -> None:
    printed = (
        b'Thread 2 (Thread 0x7f86 (LWP 28878) "pt_gloo_runloop"):\n'
        b"#0  0x00007f86 in __GI_epoll_pwait (epfd=3, events=0x7f (a), set=0x0) at ../sysdeps/unix/epoll_pwait.c:40\n"
        b"#1  futex_wait (word=...) at ./nptl/futex.c:57\n"
    )
    (thread,) = parse_gdb(printed)
    assert [(call.function, call.file, call.line) for call in thread.calls] == [
        ("__GI_epoll_pwait", "epoll_pwait.c", 40), ("futex_wait", "futex.c", 57),
    ]  # fmt: skip


def test_of_several_dumps_of_faulthandler_the_last_is_read() -> None:
    worker, main = parse_faulthandler(FAULT.replace(b"line 982", b"line 7") + FAULT)
    assert (worker.name, worker.active, worker.calls[0].function, worker.calls[0].line) == ("worker", False, "run", 982)
    assert (main.active, main.calls[0].file, main.native_id) == (True, "train.py", None)


def test_control_characters_do_not_come_through() -> None:
    head = b"Traceback for thread 7 (\x1b[2Jx) [] (most recent call last):\n"
    threads = parse_pystack(head + b'    (Python) File "\x07a", line 1, in \x1b]0;f\n')
    assert all(word.isprintable() for one in threads for word in (one.name, one.calls[0].function, one.calls[0].file))


@given(st.binary(max_size=300))
def test_whatever_is_printed_is_stacks_or_none(printed: bytes) -> None:
    for parse in (parse_pystack, parse_gdb, parse_faulthandler):
        assert isinstance(parse(FAULT[:60] + printed), tuple)
