"""Opens a process or a core file for reading, after its layout was tried on objects whose values are known."""

from collections.abc import Callable
from pathlib import Path

from inferdbg.errors import InferdbgError

from .core import Core
from .layouts import find_runtime
from .memory import Memory, Process, Unreadable
from .objects import read, read_all
from .reader import Reader
from .values import Limits, Obj, Value

_SMALL_INTS = 262  # from -5 to 256


def open_process(pid: int) -> Reader:
    """A reader of a live, stopped or hung process. InferdbgError says why not, and what would help."""
    return _opened(Process(pid))


def open_core(path: str | Path, sysroot: str = "") -> Reader:
    """A reader of a core file."""
    return _opened(Core(str(path), sysroot))


def _opened(memory: Memory) -> Reader:
    try:
        reader = Reader(memory, find_runtime(memory))
        verify(reader)
    except InferdbgError as error:
        memory.close()
        if isinstance(memory, Core) and (complaint := memory.complaint()):
            raise complaint from error
        raise
    return reader


def verify(reader: Reader) -> None:
    """Reads objects whose values are known, and refuses a layout that gets one of them wrong: never guess."""
    version = reader.runtime.version
    what = f"CPython {version[0]}.{version[1]} in {reader.memory.name}"
    everything = Limits(depth=1, text=None)
    tested = "sys.modules"

    def known(name: str, test: Callable[[Value], bool], found: Value) -> None:
        if not test(found):
            raise InferdbgError(
                f"{what} is laid out otherwise than known: {name} reads as {found!r}",
                "an altered or debug build; its version and how it was built would help to add it",
            )

    try:
        names = reader.module_dict(reader.modules()["sys"])

        def value(name: str) -> Value:
            nonlocal tested
            tested = f"sys.{name}"
            return read(reader, names[name], everything)

        head = version[0] << 24 | version[1] << 16
        known("sys.hexversion", lambda found: isinstance(found, int) and found >> 16 == head >> 16, value("hexversion"))
        known("sys.maxsize", lambda found: found == 2**63 - 1, value("maxsize"))
        known("sys.byteorder", lambda found: found == "little", value("byteorder"))
        start = f"{version[0]}.{version[1]}."
        known("sys.version", lambda found: isinstance(found, str) and found.startswith(start), value("version"))
        info = value("version_info")
        known(
            "sys.version_info",
            lambda found: isinstance(found, Obj) and isinstance(found.value, tuple) and found.value[:2] == version[:2],
            info,
        )
        limits = value("float_info")
        known(
            "sys.float_info",
            lambda found: isinstance(found, Obj) and isinstance(found.value, tuple) and 2.0**-1022 in found.value,
            limits,
        )
        spec = value("__spec__")
        known(
            "sys.__spec__",
            lambda found: isinstance(found, Obj) and found.attributes.get("name") == "sys",
            spec,
        )
    except (Unreadable, KeyError) as error:
        raise InferdbgError(f"{what} is laid out otherwise than known: {tested} cannot be read ({error})") from error
    _find_small_ints(reader, names["version_info"])


def _find_small_ints(reader: Reader, version_info: int) -> None:
    """From 3.11 they are static, one behind the other: two of them tell where all are. 3.10 has a table of them."""
    version = reader.runtime.version
    try:
        if reader.layout.small_ints is not None:
            table = reader.words(reader.interpreters()[-1] + reader.layout.small_ints, _SMALL_INTS)
        else:
            major, minor = reader.words(version_info + reader.layout.tuple_items, 2)
            if minor - major == 32 * (version[1] - version[0]):
                reader.small_ints = major - 32 * version[0]
            table = tuple((reader.small_ints or 0) + 32 * number for number in range(-5, _SMALL_INTS - 5))
        if read_all(reader, table) != list(range(-5, _SMALL_INTS - 5)):
            raise Unreadable("they are no such ints")
        reader.small_int_table = table
        reader.small_int_set = frozenset(table)
    except Unreadable as error:
        raise InferdbgError(f"the small ints of {reader.memory.name} are not where they should be: {error}") from error
