"""What is read was written by others: every lie ends in a clear error or a label, within the limits."""

import contextlib
import os
import pwd
import random
import struct
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from inferdbg.errors import InferdbgError
from inferdbg.probes.pymem import elf
from inferdbg.probes.pymem.bulk import table
from inferdbg.probes.pymem.core import mapped_files
from inferdbg.probes.pymem.frames import line_at, line_of_3_10, threads
from inferdbg.probes.pymem.layouts import LAYOUTS, Runtime, find_runtime
from inferdbg.probes.pymem.memory import Gone, MappedFile, Process, Range, Unreadable, parse_maps, refusal
from inferdbg.probes.pymem.nodes import NodeReader, OverBudget
from inferdbg.probes.pymem.objects import contents, read
from inferdbg.probes.pymem.opening import open_process
from inferdbg.probes.pymem.reader import Reader
from inferdbg.probes.pymem.typeinfo import DICT, HEAP_TYPE, INLINE_VALUES, INT, LIST, MANAGED_DICT, STR, TUPLE, Type
from inferdbg.probes.pymem.values import Limits, Unread

from .interpreters import held, local, reading

SMALL = Limits(depth=4, objects=500, bytes=1 << 20)


class Lies:
    """A memory where anything stands anywhere; many words are pointers to other such places, or sizes."""

    name = "a liar"

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.read_bytes = 0

    def read(self, address: int, size: int) -> bytes:
        if not 0 <= size <= 1 << 28 or self._random.random() < 0.05:
            raise Unreadable(f"{size} bytes at {address:#x} of {self.name}")
        self.read_bytes += size
        few = self._random.choices(_WORDS, k=64)
        return (struct.pack("<64Q", *few) * (size // 512 + 1))[:size]

    def read_many(self, ranges: Sequence[Range], into: bytearray | None = None) -> tuple[bytearray, list[int]]:
        parts, missing = [], []
        for number, (address, size) in enumerate(ranges):
            try:
                parts.append(self.read(address, size))
            except Unreadable:
                parts.append(bytes(max(size, 0)))
                missing.append(number)
        found = b"".join(parts)
        if into is None:
            return bytearray(found), missing
        into[: len(found)] = found
        return into, missing

    def files(self) -> list[MappedFile]:
        return [MappedFile(4096, "/usr/lib/libpython3.12.so")]

    def open_file(self, file: MappedFile) -> bytes | None:
        return self.read(file.base, 1 << 16)

    def thread_name(self, native_id: int) -> str | None:
        return None

    def check(self) -> None:
        return None

    def close(self) -> None:
        return None


_WORDS = [
    *range(8),
    *(0x7F0000001000 + 64 * number for number in range(40)),
    *(1 << bit for bit in range(64)),
    (1 << 64) - 1,
    0x0164_6F70_0000_0000,
    0x6570_7974,
    *(sum(1 << bit for bit in bits) for bits in ((9, 25), (9, 29, 4), (9, 31), (26,), (28,), (24,), (4, 2, 9))),
]


@pytest.mark.parametrize("version", LAYOUTS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_memory_ends_within_the_limits(version: tuple[int, int], seed: int) -> None:
    memory = Lies(seed)
    reader = Reader(memory, Runtime(0x7F0000001000, (*version, 1), LAYOUTS[version], "made up"))
    reader.small_ints = 0x7F0000009000
    for ask in (
        lambda: read(reader, 0x7F0000001040, SMALL),
        lambda: contents(reader, 0x7F0000001040),
        lambda: threads(reader),
        lambda: reader.modules(),
        lambda: table(reader, np.arange(0x7F0000001000, 0x7F0000002000, 64, np.uint64), {"x": "value", "y": "integer"}),
        lambda: find_runtime(memory),
    ):
        with contextlib.suppress(InferdbgError):
            ask()


@pytest.mark.parametrize("version", LAYOUTS)
@given(seed=st.integers(0, 2**32))
@example(seed=6657)  # half a megabyte that hangs at a hundred places
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_objects_of_real_types_end_within_the_limits(version: tuple[int, int], seed: int) -> None:
    memory = Lies(seed)
    reader = Reader(memory, Runtime(0x7F0000001000, (*version, 1), LAYOUTS[version], "made up"))
    kinds = [
        ("list", "list", LIST), ("tuple", "tuple", TUPLE), ("dict", "dict", DICT), ("int", "int", INT),
        ("str", "str", STR), ("set", "set", 0), ("deque", "deque", 0), ("Some", "instance", HEAP_TYPE | MANAGED_DICT),
        ("Inline", "instance", HEAP_TYPE | MANAGED_DICT | INLINE_VALUES), ("Old", "instance", HEAP_TYPE),
    ]  # fmt: skip
    for number, address in enumerate(_WORDS):
        name, kind, flags = kinds[number % len(kinds)]
        reader.types[address] = Type(
            address=address, name=name, kind=kind, plain=not flags & HEAP_TYPE, enum=False, bases=(name, "object"),
            basicsize=48, itemsize=0, flags=flags, dictoffset=(0, 16, -8)[number % 3], cached_keys=address,
            slots={"slot": 24}, fields=(), anchor=b"",
        )  # type: ignore[arg-type]  # fmt: skip
    with contextlib.suppress(InferdbgError):
        read(reader, 0x7F0000001040, SMALL)
    assert memory.read_bytes < 40 * SMALL.bytes


class Endless(Lies):
    """A list of 100 lists of 100 lists, and so on for ever, each at a place of its own. Items lie above 1 << 45."""

    def read(self, address: int, size: int) -> bytes:
        self.read_bytes += size
        if address & _ITEMS:
            number, offset = divmod(address & ~_ITEMS, 1024)
            items = struct.pack("<100Q", *(64 * (64 + (number * 101 + 1 + item) % (1 << 33)) for item in range(100)))
            return items[offset : offset + size]
        number, offset = divmod(address, 64)
        whole = struct.pack("<8Q", 1, _LIST, 100, _ITEMS | (number - 64) * 1024, 100, 0, 0, 0)
        return whole[offset : offset + size]


_ITEMS = 1 << 45
_LIST = 0x7F0000001000


@pytest.mark.parametrize("limits", [Limits(depth=60, objects=300), Limits(depth=60, objects=20_000, bytes=1 << 16)])
def test_what_has_no_end_stops_at_the_limits(limits: Limits) -> None:
    memory = Endless(0)
    reader = Reader(memory, Runtime(_LIST, (3, 12, 1), LAYOUTS[3, 12], "made up"))
    reader.types[_LIST] = Type(
        address=_LIST, name="list", kind="list", plain=True, enum=False, bases=("list", "object"), basicsize=40,
        itemsize=0, flags=1 << 25, dictoffset=0, cached_keys=0, slots={}, fields=(), anchor=b"",
    )  # fmt: skip
    found = read(reader, 64 * 64, limits)
    assert isinstance(found, list)
    assert memory.read_bytes < 8 * min(limits.bytes, 900 * limits.objects)  # each is read, and looked at again
    innermost = found
    while isinstance(innermost, list):
        innermost = innermost[-1]
    assert isinstance(innermost, Unread)
    assert innermost.why == "budget"


@given(st.binary(max_size=400))
def test_parsers_take_anything(raw: bytes) -> None:
    parse_maps(raw)
    line_at(raw, 1, 10)
    line_of_3_10(raw, 1, 10)
    list(elf.notes(raw))
    elf.in_symbol_table(b"\x7fELF\x02\x01" + raw, ["_PyRuntime"])
    with contextlib.suppress(ValueError, struct.error):
        mapped_files(raw)


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_images_take_anything(raw: bytes, at: int) -> None:
    content = bytearray(b"\x7fELF\x02\x01" + bytes(58) + bytes(4000))
    content[at : at + len(raw)] = raw

    def piece(address: int, size: int) -> bytes:
        if address < 0 or address + size > len(content):
            raise Unreadable("beyond")
        return bytes(content[address : address + size])

    elf.build_id(piece, 0)
    with contextlib.suppress(Unreadable):
        elf.exported(piece, 0, ["_PyRuntime"])


def test_a_process_that_is_no_python_is_told() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(InferdbgError, match="no CPython in process"):
            open_process(process.pid)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_there_is_told() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(Gone, match=f"no process {process.pid}"):
        open_process(process.pid)


def test_a_process_that_ends_while_it_is_read_is_told() -> None:
    with held(sys.executable) as target, reading(target.pid) as reader:
        address = local(reader, "changing")
        target.process.kill()
        target.process.wait()
        with pytest.raises(Gone):
            reader.refresh()
        with pytest.raises(Unreadable):
            read(reader, address)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_refused_with_the_cure() -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    code = (
        "import os, sys; sys.path.insert(0, '.'); from inferdbg.probes.pymem.memory import Process\n"
        f"os.setuid({nobody})\n"
        "try: Process(int(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, '|', error, '|', error.hint)"
    )
    with held(sys.executable) as target:
        said = subprocess.run(
            [sys.executable, "-c", code, str(target.pid)], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    assert said.startswith("InferdbgError | ")
    assert "belongs to uid 0" in said
    assert f"sudo inferdbg attach {target.pid}" in said


@pytest.mark.parametrize(
    "scope, expected", [("1", "ptrace_scope is 1"), ("3", "until the next boot"), ("0", "forbids to be read")]
)
def test_a_refusal_names_its_reason(tmp_path: "os.PathLike[str]", scope: str, expected: str) -> None:
    import errno
    from pathlib import Path

    if os.getuid() == 0:
        expected = "no CAP_SYS_PTRACE"
    folder = Path(tmp_path)
    (folder / "7").mkdir()
    (folder / "7" / "status").write_text(f"Name:\tvllm\nUid:\t{os.getuid()} 0 0 0\nNSpid:\t7\n")
    (folder / "sys/kernel/yama").mkdir(parents=True)
    (folder / "sys/kernel/yama/ptrace_scope").write_text(scope)
    refused = refusal(7, errno.EACCES, str(folder))
    assert expected in refused.message


def test_without_the_system_call_the_same_is_read() -> None:
    with held(sys.executable) as target:
        fast, slow = Process(target.pid), Process(target.pid)
        slow._vectors = None
        start = fast.files()[0].base
        ranges = [(start, 64), (1, 8), (start + 128, 16)]
        assert fast.read_many(ranges) == slow.read_many(ranges)
        assert fast.read_many(ranges)[1] == [1]
        fast.close()
        slow.close()


def test_keys_for_which_the_limits_leave_no_room_are_missed_at_every_instance_of_the_class() -> None:
    """At the second one, too: an object without attributes would be a lie."""
    memory = SimpleNamespace(read=lambda address, size: b"\x40".ljust(size, b"\0"))
    reader = SimpleNamespace(memory=memory, layout=None, keys_table=lambda address, most: SimpleNamespace(size=4096))
    kind = SimpleNamespace(address=1, cached_keys=8)
    nodes = NodeReader(reader, Limits(bytes=1000))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(OverBudget):
            nodes._shared(kind)  # type: ignore[arg-type]
    assert nodes.bytes_left == 1000
