"""The black box's file format: where everything lies, checked before it is believed.

      0  header     magic, version, byte order, size, pid, start, boot, exit word; where the table lies and its CRC
    128  intent     generation │ operation │ block │ request                  i64, see writer.BlackBox
    192  steps      planned │ finished │ next entry                           u64, counts since the start
    256  events     head │ tail │ next sequence                               u64, byte offsets since the start
    320  static     slot in force │ bytes, CRC of slot 0 │ bytes, CRC of slot 1
    512  table      JSON: "columns", "rings" and "entries" as [[name, typecode, length, offset], …]; "static": offset
      …  static     two slots of JSON: one is in force while the other is written
      …  columns    the engine's own arrays, one after another, each on a cache line of its own
      …  steps      ring of 112-byte records ┐  a record names its first entry and how many;
      …  entries    four parallel arrays     ┘  numbers u32, kinds u8, tokens u32, contexts u32
      …  events     ring of bytes:  ┊ length │ CRC │ sequence │ time │ step │ kind … text ┊ length │ …
                                    ^ tail: the oldest whole one                    head: the next goes here

Everything is in the byte order of the machine, which the header names; a box of another one is refused.
"""

import zlib

import msgspec
from msgspec import Struct

from inferdbg.blackbox.writer import (
    BYTE_ORDER,
    ENTRY_TYPES,
    EVENT,
    HEADER,
    MAGIC,
    MAX_BOX_BYTES,
    SIZES,
    STATIC_BYTES,
    STEP_BYTES,
    TABLE_OFFSET,
    VERSION,
    Typecode,
)
from inferdbg.errors import InferdbgError

"""Larger ones are refused: a million blocks take some 40 MB."""
MAX_TABLE_BYTES = 1 << 20

Row = tuple[str, Typecode, int, int]


class Table(Struct, frozen=True):
    """As the writer put it: rows are name, typecode, length in items, offset in bytes."""

    static: int
    columns: tuple[Row, ...]
    rings: tuple[Row, ...]
    entries: tuple[Row, ...]


class Place(Struct, frozen=True):
    """Where one array lies."""

    typecode: Typecode
    length: int
    offset: int

    @property
    def size(self) -> int:
        return self.length * SIZES[self.typecode]


class Layout(Struct, frozen=True):
    """A box's header and table after every check: all places lie inside the file and none overlap.

    ``pid`` is the engine's, as seen in its own PID namespace; ``boot`` names the boot of the machine it ran on.
    """

    size: int
    pid: int
    start_ticks: int
    created_wall_ns: int
    created_mono_ns: int
    boot: str
    static: int
    columns: dict[str, Place]
    steps: Place
    entries: dict[str, Place]
    events: Place


def table_place(header: bytes, file_bytes: int, path: str) -> tuple[int, int]:
    """Offset and length of the table that the header names. Raises InferdbgError."""
    if len(header) < HEADER.size or file_bytes < TABLE_OFFSET:
        raise broken(path, f"it has {file_bytes} bytes, the header alone takes {TABLE_OFFSET}")
    magic, version, order, size, *_, offset, length, _ = HEADER.unpack_from(header)
    if magic != MAGIC:
        if not any(header):
            raise broken(path, "its engine died while making it, or is making it now")
        raise broken(path, "it does not begin as one")
    if order != BYTE_ORDER:
        raise broken(path, "it was written on a machine of another byte order")
    if version != VERSION:
        raise InferdbgError(
            f"{path} is a black box of version {version}, this inferdbg reads version {VERSION}",
            "use the inferdbg that came with the engine",
        )
    if size > MAX_BOX_BYTES:
        raise broken(path, f"it claims {size:,} bytes, more than any box has")
    if size > file_bytes:
        raise broken(path, f"it is cut short: {file_bytes:,} of {size:,} bytes")
    if size < file_bytes:
        raise broken(path, f"it is longer than it was made: {file_bytes:,} bytes for {size:,}")
    if offset < HEADER.size or length > MAX_TABLE_BYTES or offset + length > size:
        raise broken(path, "its table lies outside the file")
    return offset, length


def parse_layout(header: bytes, encoded: bytes, path: str) -> Layout:
    """Header and table, believed only after every offset was checked. Raises InferdbgError."""
    _, _, _, size, pid, start, wall, mono, boot, _, _, _, checksum = HEADER.unpack_from(header)
    if zlib.crc32(encoded) != checksum:
        raise broken(path, "its table is damaged")
    try:
        table = msgspec.json.decode(encoded, type=Table)
    except msgspec.DecodeError as error:
        raise broken(path, f"its table makes no sense: {error}") from None
    rings = _places(table.rings)
    entries = _places(table.entries)
    columns = _places(table.columns)
    steps, events = rings.get("steps"), rings.get("events")
    if steps is None or events is None or steps.typecode != "B" or events.typecode != "B":
        raise broken(path, "its table names no rings")
    if {name: place.typecode for name, place in entries.items()} != ENTRY_TYPES:
        raise broken(path, "its table names no entries")
    if len({place.length for place in entries.values()}) != 1:
        raise broken(path, "its entries are of different length")
    if steps.length < STEP_BYTES or steps.length % STEP_BYTES or events.length < EVENT.size or events.length % 8:
        raise broken(path, "its rings are of an odd size")
    static = Place(typecode="B", length=2 * STATIC_BYTES, offset=table.static)
    _check_places([*columns.values(), *rings.values(), *entries.values(), static], size, path)
    if len(columns) + len(rings) + len(entries) != len(table.columns) + len(table.rings) + len(table.entries):
        raise broken(path, "its table has a row twice")
    return Layout(
        size=size,
        pid=pid,
        start_ticks=start,
        created_wall_ns=wall,
        created_mono_ns=mono,
        boot=boot.rstrip(b"\0").decode("ascii", "replace"),
        static=table.static,
        columns=columns,
        steps=steps,
        entries=entries,
        events=events,
    )


def broken(path: str, why: str) -> InferdbgError:
    """The error for a file that is no box, or a damaged one."""
    return InferdbgError(f"{path} is not a readable black box: {why}", "`inferdbg top` lists the boxes found here")


def _places(rows: tuple[Row, ...]) -> dict[str, Place]:
    return {name: Place(typecode=typecode, length=length, offset=offset) for name, typecode, length, offset in rows}


def _check_places(places: list[Place], size: int, path: str) -> None:
    end = TABLE_OFFSET
    for place in sorted(places, key=lambda place: place.offset):
        if place.length < 0 or place.offset < end or place.offset % 8:
            raise broken(path, "parts of it overlap")
        end = place.offset + place.size
    if end > size:
        raise broken(path, "its table points beyond its end")
