"""What threads of real servers wait for, in words: from the captures that their stacks were kept in."""

import re
from pathlib import Path

import pytest

from inferdbg.diagnosis.wait_table import KERNEL, NATIVE, PYTHON, WORK
from inferdbg.diagnosis.waits import Wait, waits_of
from inferdbg.facts.sections.stacks import Call, ProcessStacks, ThreadStack
from inferdbg.probes.stack_texts import parse_gdb, parse_pystack
from tests.support.pyspy_text import parse_text

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stacks"
MONITOR, POOL = "its parent to end (monitor)", "work (thread pool)"
CORE = ("a worker to end (monitor)", "messages of the front end", "outputs to send", "a signal (monitor)")
API = ("an engine core to end (monitor)", POOL, POOL, POOL)
TIMER = "its timer (progress bar)"
EXPECTED: dict[str, tuple[str, ...]] = {
    "vllm/pyspy_idle_api.txt": ("waits for events (event loop)", *API),
    "vllm/pyspy_busy_api.txt": ("runs Python: OpenAIBaseModel.__log_extra_fields__", *API),
    "vllm/pyspy_idle_enginecore.txt": ("waits for requests", *CORE),
    "vllm/pyspy_busy_enginecore.txt": ("waits for a worker's answer", *CORE),
    "vllm/pyspy_idle_worker.txt": ("waits for work from the engine core", TIMER, MONITOR),
    "vllm/pyspy_busy_worker.txt": ("waits for work from the engine core", TIMER, MONITOR),
    "vllm/pyspy_native_worker.txt": ("runs native code: _mm512_cvtepu16_epi32", TIMER, MONITOR),
    "vllm/pystack_core_enginecore.txt": (*CORE[::-1], "waits for a worker's answer"),
    "vllm/pystack_remote_enginecore.txt": (*CORE[::-1], "waits for its message to be sent (ZMQ)"),
    "vllm/pystack_remote_native_enginecore.txt": (*CORE[::-1], "waits for a worker's answer"),
    "incidents/15-vllm-ray-executor-queue-pyspy/pyspy_enginecore.txt": (
        "waits for a worker's answer", "messages of the front end", "outputs to send", TIMER,
    ),
    "incidents/15-vllm-ray-executor-queue-pyspy/pyspy_worker_pp0.txt": (
        "waits for work from the engine core", TIMER, MONITOR, "outputs to copy",
    ),
    "incidents/15-vllm-ray-executor-queue-pyspy/pyspy_worker_pp1.txt": (
        "waits for work from the engine core", TIMER, MONITOR, "outputs to copy",
    ),
    "incidents/69-fr-jit-stall-collective-mismatch/pyspy_rank0.txt": (
        "compiles a Triton kernel, waits for a child process", TIMER,
    ),
    "incidents/healthy-pyspy-idle/pyspy_api.txt": (
        "waits for events (event loop)", "an engine core to end (monitor)", POOL,
    ),
    "incidents/healthy-pyspy-idle/pyspy_enginecore.txt": ("waits for requests", *CORE[:3]),
    "incidents/healthy-pyspy-idle/pyspy_worker0.txt": ("waits for work from the engine core", MONITOR),
    "incidents/healthy-pyspy-idle/pyspy_worker1.txt": ("waits for work from the engine core", MONITOR),
    "incidents/65-trtllm-allgather-gdb/gdb_rank3.txt": (
        *["sockets or pipes"] * 2, "responses", "waits for a collective (TensorRT-LLM)",
        *["a lock or a condition in native code"] * 2, *["sockets or pipes"] * 2,
        "a lock or a condition in native code", *["work (NCCL's proxy)"] * 2, *["events (event loop)"] * 2,
        "a thread to end",
    ),
}  # fmt: skip
"""Without "waits for" where it is not the main thread."""


def capture(name: str) -> ProcessStacks:
    path = FIXTURES / name
    if path.name.startswith("pyspy"):
        return parse_text(path.read_text(encoding="utf-8"))
    parse = parse_gdb if path.name.startswith("gdb") else parse_pystack
    return ProcessStacks(1, threads=parse(path.read_bytes()))


def test_every_capture_is_expected() -> None:
    assert {str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.txt")} >= set(EXPECTED)
    assert len(EXPECTED) == 19


@pytest.mark.parametrize("name", EXPECTED)
def test_each_thread_of_a_capture_waits_for(name: str) -> None:
    said = [wait.said for wait in waits_of(capture(name))]
    assert [words.removeprefix("waits for ") for words in said] == [
        words.removeprefix("waits for ") for words in EXPECTED[name]
    ]


def test_only_threads_whose_waiting_tells_nothing_are_idle() -> None:
    process = capture("vllm/pyspy_idle_enginecore.txt")
    assert [wait.idle for wait in waits_of(process)] == [False, True, True, True, True]


def wait_of(*calls: Call, **kernel: object) -> Wait:
    """Of a thread beside one that holds the GIL."""
    thread = ThreadStack("it", 2, calls, **kernel)  # type: ignore[arg-type]  # fields by name
    (wait, _) = waits_of(ProcessStacks(1, None, (thread, ThreadStack("holder", 3, (), True, True))))
    return wait


USER = Call("step", "train.py", 33)


def test_the_kernel_tells_where_no_call_does() -> None:
    assert wait_of(USER, state="S", kernel_wait="hrtimer_nanosleep").said == "sleeps"
    assert wait_of(USER, state="S", kernel_wait="anon_pipe_read").said == "waits for a message in a pipe"
    assert wait_of(USER, state="S", kernel_wait="do_wait").said == "waits for a child process"
    assert wait_of(USER, state="T").said == "is stopped by a signal"
    hung = wait_of(USER, state="D", kernel_wait="folio_wait_bit_common")
    assert hung.kind == "kernel"
    assert "a page of a file" in hung.said
    assert wait_of(USER, state="S").kind == "unknown"


def test_who_waits_for_the_gil_is_told_from_who_may_wait_for_another_lock() -> None:
    """take_gil waits with a timeout, a lock of C without."""
    sure = wait_of(USER, state="S", kernel_wait="futex_do_wait", timed=True)
    unsure = wait_of(USER, state="S", kernel_wait="futex_do_wait", timed=False)
    assert (sure.kind, sure.said) == ("gil", "waits for the GIL, which holder holds")
    assert unsure.said == "waits for the GIL, which holder holds, or a lock in native code"
    native = Call("take_gil", "libpython3.11.so.1.0", 0, True), Call("PyEval_RestoreThread", "", 0, True), USER
    assert wait_of(*native).said == "waits for the GIL, which holder holds"


def test_a_call_that_runs_waits_for_nothing() -> None:
    """The names of those that wait count only around something that waits."""
    sockets = Call("process_input_sockets", "vllm/v1/engine/core.py", 1890)
    assert wait_of(sockets, active=True).kind == "native"
    decoding = Call("decode", "msgspec/msgpack.py", 5)
    assert wait_of(decoding, sockets, active=True).said.startswith("runs decode")
    worker = Call("_worker", "concurrent/futures/thread.py", 81)
    assert wait_of(worker).kind == "pool"
    assert wait_of(worker, active=True).kind == "native"


def test_a_collective_is_named_with_what_carries_it() -> None:
    inner = Call("broadcast", "torch/distributed/distributed_c10d.py", 3000)
    logged = Call("_exception_logger.<locals>.wrapper", "torch/distributed/c10d_logger.py", 83)
    outer = Call("broadcast_object_list", "torch/distributed/distributed_c10d.py", 4000)
    main = ThreadStack("MainThread", 1, (inner, logged, outer, logged, USER))
    gloo = ThreadStack("pt_gloo_runloop", 2)
    (wait, _) = waits_of(ProcessStacks(1, None, (main, gloo)))
    assert (wait.said, wait.collective) == ("waits for broadcast_object_list (gloo)", "broadcast_object_list")
    (bare,) = waits_of(ProcessStacks(1, None, (main,)))
    assert bare.said == "waits for broadcast_object_list"


def test_files_of_the_same_name_elsewhere_do_not_match() -> None:
    assert wait_of(Call("get", "myqueue.py", 3), state="S").kind == "unknown"
    assert wait_of(Call("Queue.get", "queue.py", 171), state="S").kind == "queue"


def test_the_table_is_sound() -> None:
    for row in (*PYTHON, *WORK, *NATIVE):
        assert row.functions.split(), row
        assert re.sub(r"\{function\}", "", row.words).isprintable(), row
        assert not set(row.words.replace("{function}", "")) & set("{}"), row
    assert all(row.file for row in (*PYTHON, *WORK))
    assert all(start and words for start, _, words in KERNEL)
