"""A stopped process and a core file are read like a live one."""

import contextlib
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from inferdbg.errors import InferdbgError
from inferdbg.probes.pymem import elf
from inferdbg.probes.pymem.core import Core
from inferdbg.probes.pymem.frames import threads
from inferdbg.probes.pymem.objects import read
from inferdbg.probes.pymem.opening import open_core
from inferdbg.probes.pymem.values import Limits

from .interpreters import TARGET, Interpreter, each_interpreter, held, local, reading
from .trees import Tree, canonical, plain

EVERYTHING = Limits(depth=60, text=None)
FIELDS: dict[str, Tree] = {
    "first": ["int", str(2**200)],
    "second": ["str", [ord("é"), 0x1F600]],
    "third": ["none", None],
}
TREE: Tree = [
    "dict",
    [
        [["str", [97, 98]], ["list", [["int", "-3"], ["float", (0.1).hex()], ["bytes", "00ff"], ["bool", True]]]],
        [["tuple", [["int", "1"], ["none", None]]], ["instance", "Plain", FIELDS, ""]],
        [["int", "7"], ["instance", "SlotsData", FIELDS, ""]],
        [["int", "8"], ["instance", "Named", FIELDS, ""]],
        [["int", "9"], ["based", "Deque", ["list", [["enum", "Status", "RUNNING"]]], {"xname": ["int", "5"]}]],
        [["int", "10"], ["removed", "set", [["int", "1"], ["int", "2"], ["int", "3"]]]],
        [["int", "11"], ["instance", "Plain", FIELDS, "dict taken"]],
    ],
]


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_a_stopped_process_is_read_equal(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target:
        target.hold(TREE)
        target.process.send_signal(signal.SIGSTOP)
        with reading(target.pid) as reader:
            assert plain(read(reader, local(reader, "tree"), EVERYTHING)) == canonical(TREE)


@pytest.mark.parametrize("interpreter", each_interpreter())
@pytest.mark.skipif(shutil.which("gcore") is None, reason="no gcore (of gdb) to write a core with")
def test_a_core_is_read_equal(interpreter: Interpreter, tmp_path: Path) -> None:
    with held(interpreter.path) as target:
        target.hold(TREE)
        with reading(target.pid) as reader:
            alive = {thread.native_id: [frame.line for frame in thread.frames] for thread in threads(reader)}
        written = _gcore(target.pid, tmp_path)
    reader = open_core(written)
    try:
        assert plain(read(reader, local(reader, "tree"), EVERYTHING)) == canonical(TREE)
        assert {thread.native_id: [frame.line for frame in thread.frames] for thread in threads(reader)} == alive
    finally:
        reader.close()


@pytest.mark.skipif(shutil.which("gcore") is None, reason="no gcore (of gdb) to write a core with")
def test_a_cut_core_says_so_or_gives_what_is_left(tmp_path: Path) -> None:
    interpreter = next(iter(_found()))
    with held(interpreter.path) as target:
        target.hold(TREE)
        whole = _gcore(target.pid, tmp_path)
    size = whole.stat().st_size
    for part in [0, 1, 63, 64, 200, 4096, *(size * tenth // 10 for tenth in range(1, 10)), size - 1]:
        cut = tmp_path / "cut"
        with open(whole, "rb") as source:
            cut.write_bytes(source.read(part))
        reader = None
        with contextlib.suppress(InferdbgError):
            reader = open_core(cut)
        if reader is None:
            continue
        assert isinstance(reader.memory, Core)
        assert reader.memory.missing_bytes > 0 or part == size - 1  # a table that nobody needs ends it
        with contextlib.suppress(InferdbgError, LookupError):
            read(reader, local(reader, "tree"), EVERYTHING)
        reader.close()


@pytest.mark.skipif(shutil.which("gcore") is None, reason="no gcore (of gdb) to write a core with")
def test_a_replaced_library_is_noticed(tmp_path: Path) -> None:
    interpreter = next(iter(_found()))
    with held(interpreter.path) as target:
        target.hold(TREE)
        written = _gcore(target.pid, tmp_path)
    core = Core(str(written))
    library = next(file for file in core.files() if "/libpython" in file.path or "/python3" in file.path)
    assert core.open_file(library) == Path(library.path).read_bytes()
    core.close()
    replaced = tmp_path / "root" / library.path.lstrip("/")
    replaced.parent.mkdir(parents=True)
    content = bytearray(Path(library.path).read_bytes())
    content[40:48] = b"\x01\x02\x03\x04\x05\x06\x07\x08"  # another file: its sections stand elsewhere
    build = elf.build_id(lambda at, size: bytes(content[at : at + size]), 0)
    if build:
        content[content.index(build)] ^= 255
    replaced.write_bytes(content)
    core = Core(str(written), sysroot=str(tmp_path / "root"))
    assert core.open_file(library) is None
    complaint = core.complaint()
    core.close()
    assert complaint is not None
    assert library.path in complaint.message
    assert "on the machine that wrote it" in complaint.hint


@pytest.mark.skipif(
    Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"), reason="cores are handed to a program here"
)
def test_a_core_of_the_kernel_is_read_equal(tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("cores are written elsewhere, or not at all")
    interpreter = next(iter(_found()))
    process = subprocess.Popen(
        [interpreter.path, str(TARGET)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=_allow_cores,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    process.stdin.write('["int", "123456789012345678901234567890"]\n')
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGABRT)
    process.communicate()
    deadline = time.monotonic() + 20
    while not (found := list(tmp_path.glob("core*"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    if not found:
        pytest.skip("the kernel wrote no core")
    reader = open_core(found[0])
    try:
        assert read(reader, local(reader, "tree")) == 123456789012345678901234567890
    finally:
        reader.close()


def _allow_cores() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def _found() -> list[Interpreter]:
    from .interpreters import interpreters

    return list(interpreters().values())


def _gcore(pid: int, folder: Path) -> Path:
    subprocess.run(["gcore", "-o", str(folder / "core"), str(pid)], capture_output=True, timeout=120, check=True)
    return folder / f"core.{pid}"
