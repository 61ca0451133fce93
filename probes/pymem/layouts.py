"""Where CPython keeps what, by version: offsets in bytes, for release builds with the GIL on 64 bit machines.

The table was made by offsetof over each version's headers. From 3.13 the runtime says much of it itself, in the
_Py_DebugOffsets that it begins with, and is believed where it does. What is the same in all versions stands where it
is used (``typeinfo.py``, ``objects.py``).
"""

import struct
from typing import NamedTuple

from inferdbg.errors import InferdbgError

from . import elf
from .memory import Memory, Unreadable

VERSIONS = "CPython 3.10 to 3.14"
_COOKIE = b"xdebugpy"
_WANTED = ("_PyRuntime", "Py_Version")


class Layout(NamedTuple):
    """What differs between versions. None: there is no such thing in that version.

    ``inline_values``: instances may keep their values behind their slots. ``cframe``: the way from thread to frame
    leads over a _PyCFrame, and where in it. ``instruction``: address of the present instruction, or (3.10) its number.
    ``ascii_text``, ``other_text``: where the text of a compact str begins. ``values``: first pointer of a values array.
    ``tagged``: frames hold tagged pointers. ``small_ints``: the interpreter's table of the ints from -5 to 256.
    """

    interpreters: int
    next_interpreter: int
    threads: int
    modules: int
    thread_id: int
    native_id: int | None
    frame: int
    cframe: int | None
    previous: int
    code: int
    locals: int
    instruction: int
    owner: int | None
    code_name: int
    code_qualname: int | None
    code_file: int
    code_line: int
    code_lines: int
    code_start: int | None
    ascii_text: int
    other_text: int
    tuple_items: int
    cached_keys: int
    values: int
    inline_values: bool
    tagged: bool
    small_ints: int | None = None

    @property
    def next_thread(self) -> int:
        return 8


LAYOUTS = {
    (3, 10): Layout(
        interpreters=32,
        next_interpreter=0,
        threads=8,
        modules=856,
        thread_id=176,
        native_id=None,
        frame=24,
        cframe=None,
        previous=24,
        code=32,
        locals=352,
        instruction=96,
        owner=None,
        code_name=112,
        code_qualname=None,
        code_file=104,
        code_line=40,
        code_lines=120,
        code_start=None,
        ascii_text=48,
        other_text=72,
        tuple_items=24,
        cached_keys=872,
        values=0,
        inline_values=False,
        tagged=False,
        small_ints=3512,
    ),
    (3, 11): Layout(
        interpreters=40,
        next_interpreter=0,
        threads=16,
        modules=888,
        thread_id=152,
        native_id=160,
        frame=56,
        cframe=8,
        previous=48,
        code=32,
        locals=72,
        instruction=56,
        owner=69,
        code_name=120,
        code_qualname=128,
        code_file=112,
        code_line=72,
        code_lines=136,
        code_start=184,
        ascii_text=48,
        other_text=72,
        tuple_items=24,
        cached_keys=872,
        values=0,
        inline_values=False,
        tagged=False,
    ),
}
LAYOUTS[3, 12] = LAYOUTS[3, 11]._replace(
    threads=72,
    modules=944,
    thread_id=136,
    native_id=144,
    cframe=0,
    previous=8,
    code=0,
    owner=70,
    code_line=68,
    code_start=192,
    ascii_text=40,
    other_text=56,
    cached_keys=880,
)
LAYOUTS[3, 13] = LAYOUTS[3, 12]._replace(
    interpreters=632,
    next_interpreter=7264,
    threads=7344,
    modules=7656,
    thread_id=152,
    native_id=160,
    frame=72,
    cframe=None,
    code_start=200,
    values=8,
    inline_values=True,
)
LAYOUTS[3, 14] = LAYOUTS[3, 13]._replace(
    interpreters=808,
    next_interpreter=7272,
    modules=7688,
    locals=80,
    owner=74,
    code_start=208,
    tuple_items=32,
    tagged=True,
)

_DEBUG_OFFSETS_3_13 = (
    ("runtime", "size finalizing interpreters"),
    ("interpreter", "size id next threads gc modules sysdict builtins gil gil_state gil_enabled gil_locked gil_holder"),
    ("thread", "size prev next interp frame thread_id native_id datastack status"),
    ("frame", "size previous code instruction locals owner"),
    ("code", "size file name qualname lines line argcount localsplusnames localspluskinds start"),
    ("object", "size ob_type"),
    ("type", "size name repr flags"),
    ("tuple", "size item count"),
    ("list", "size item count"),
    ("dict", "size keys values"),
    ("float", "size value"),
    ("int", "size tag digit"),
    ("bytes", "size count value"),
    ("str", "size state length ascii_text"),
)
_DEBUG_OFFSETS = {
    (3, 13): _DEBUG_OFFSETS_3_13,
    (3, 14): (
        ("runtime", "size finalizing interpreters"),
        (
            "interpreter",
            "size id next threads threads_main gc modules sysdict builtins gil gil_state gil_enabled gil_locked "
            "gil_holder code_generation tlbc_generation",
        ),
        ("thread", "size prev next interp frame thread_id native_id datastack status"),
        ("frame", "size previous code instruction locals owner stackpointer tlbc_index"),
        ("code", "size file name qualname lines line argcount localsplusnames localspluskinds start tlbc"),
        *_DEBUG_OFFSETS_3_13[5:9],
        ("set", "size used table mask"),
        *_DEBUG_OFFSETS_3_13[9:],
    ),
}
_FIXED = {
    ("thread", "next"): 8,
    ("object", "ob_type"): 8,
    ("type", "name"): 24,
    ("type", "flags"): 168,
    ("tuple", "count"): 16,
    ("list", "item"): 24,
    ("list", "count"): 16,
    ("set", "used"): 24,
    ("set", "mask"): 32,
    ("set", "table"): 40,
    ("dict", "keys"): 32,
    ("dict", "values"): 40,
    ("float", "value"): 16,
    ("int", "tag"): 16,
    ("int", "digit"): 24,
    ("bytes", "count"): 16,
    ("bytes", "value"): 32,
    ("str", "length"): 16,
    ("str", "state"): 32,
    ("code", "localsplusnames"): 96,
    ("code", "localspluskinds"): 104,
}
"""What the walker takes as the same everywhere; where the runtime says otherwise, it is not ours."""


class Runtime(NamedTuple):
    """The interpreter found in a target. ``address``: of its _PyRuntime. ``version``: such as (3, 11, 7)."""

    address: int
    version: tuple[int, int, int]
    layout: Layout
    path: str

    @property
    def minor(self) -> tuple[int, int]:
        return self.version[:2]


def find_runtime(memory: Memory) -> Runtime:
    """The CPython in a target; InferdbgError when there is none, or one of which no layout is known.

    Whether its layout fits is not known before objects were read: ``objects.Reader`` does that.
    """
    files = sorted(memory.files(), key=_unlikely)
    changed = None
    for base, path in files:
        try:
            found = elf.exported(memory.read, base, _WANTED)
        except Unreadable as error:
            if "python" in path and error.hint:
                changed = error  # a core whose library is not the one on disk
            continue
        if "_PyRuntime" in found:
            return _runtime(memory, found, path)
    for file in files:
        if _unlikely(file) < 2 and (content := memory.open_file(file)) is not None:
            found = elf.in_symbol_table(content, _WANTED)
            if "_PyRuntime" in found:
                bias = elf.read_image(memory.read, file.base).bias
                return _runtime(memory, {name: value + bias for name, value in found.items()}, file.path)
    if changed is not None:
        raise changed
    raise InferdbgError(
        f"no CPython in {memory.name}: none of its {len(files)} mapped files has the symbol _PyRuntime",
        "inferdbg top lists the processes of an engine; its core is the one to name",
    )


def _unlikely(file: tuple[int, str]) -> int:
    name = file[1].rpartition("/")[2]
    return 0 if name.startswith("libpython") else 1 if name.startswith("python") else 2 if ".so" not in name else 3


def _runtime(memory: Memory, found: dict[str, int], path: str) -> Runtime:
    address = found["_PyRuntime"]
    head = memory.read(address, 24)
    if "Py_Version" in found:
        (number,) = struct.unpack("<I", memory.read(found["Py_Version"], 4))
    elif head[:8] == _COOKIE:
        (number,) = struct.unpack_from("<I", head, 8)
    else:
        number = 0x030A0000  # the symbol came with 3.11; an older one will not fit
    version = (number >> 24 & 255, number >> 16 & 255, number >> 8 & 255)
    layout = LAYOUTS.get(version[:2])
    if layout is None:
        raise InferdbgError(
            f"{memory.name} runs CPython {version[0]}.{version[1]} ({path}), whose layout is not known: {VERSIONS} is"
        )
    if version[:2] in _DEBUG_OFFSETS:
        layout = _described(memory, address, version[:2], layout)
    return Runtime(address, version, layout, path)


def _described(memory: Memory, address: int, minor: tuple[int, int], layout: Layout) -> Layout:
    """The layout as _Py_DebugOffsets tells it (Include/internal/pycore_runtime.h, from 3.14 pycore_debug_offsets.h)."""
    schema = [(group, name) for group, names in _DEBUG_OFFSETS[minor] for name in names.split()]
    raw = memory.read(address, 24 + 8 * len(schema))
    if raw[:8] != _COOKIE:
        raise InferdbgError(f"{memory.name}: _PyRuntime at {address:#x} does not begin with its own description")
    (free_threaded,) = struct.unpack_from("<Q", raw, 16)
    if free_threaded:
        raise InferdbgError(f"{memory.name} runs a free-threaded CPython, whose objects are laid out otherwise")
    told = dict(zip(schema, struct.unpack_from(f"<{len(schema)}Q", raw, 24), strict=True))
    for (group, name), expected in _FIXED.items():
        if told.get((group, name), expected) != expected:
            raise InferdbgError(
                f"{memory.name}: {group}.{name} is at {told[group, name]}, not at {expected}: an altered CPython"
            )
    return layout._replace(
        interpreters=told["runtime", "interpreters"],
        next_interpreter=told["interpreter", "next"],
        threads=told["interpreter", "threads"],
        modules=told["interpreter", "modules"],
        thread_id=told["thread", "thread_id"],
        native_id=told["thread", "native_id"],
        frame=told["thread", "frame"],
        previous=told["frame", "previous"],
        code=told["frame", "code"],
        locals=told["frame", "locals"],
        instruction=told["frame", "instruction"],
        owner=told["frame", "owner"],
        code_name=told["code", "name"],
        code_qualname=told["code", "qualname"],
        code_file=told["code", "file"],
        code_line=told["code", "line"],
        code_lines=told["code", "lines"],
        code_start=told["code", "start"],
        ascii_text=told["str", "ascii_text"],
        tuple_items=told["tuple", "item"],
    )
