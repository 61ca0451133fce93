"""Symbols and build ids of ELF images as they lie in memory, of which nothing is believed unchecked.

The dynamic symbol table is part of what is loaded, so a stripped, deleted or replaced library, and one in another
container, is read like any other. See elf(5); GNU_HASH is drawn at https://flapenguin.me/elf-dt-gnu-hash.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from .memory import Read, Unreadable

_LOAD, _DYNAMIC, _NOTE = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_SHT_SYMTAB = 2
_MOST_HEADERS = 512
_MOST_SYMBOLS = 1_000_000
_LONGEST_CHAIN = 256
_PAGE = 4096


class Header(NamedTuple):
    """A program header: p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


class Image(NamedTuple):
    """An ELF file in memory. ``bias``: what is added to addresses of the file."""

    base: int
    bias: int
    headers: tuple[Header, ...]


def read_image(read: Read, base: int) -> Image:
    """The program headers of the image that begins at ``base``; Unreadable when there is none of our kind."""
    head = read(base, 64)
    if head[:4] != b"\x7fELF":
        raise Unreadable(f"no ELF image at {base:#x}")
    if head[4:6] != b"\x02\x01":
        raise Unreadable(f"the image at {base:#x} is not 64 bit, little endian")
    table, size, count = struct.unpack_from("<Q14xHH", head, 32)
    if size != 56 or not 0 < count <= _MOST_HEADERS or table > 1 << 20:
        raise Unreadable(f"the image at {base:#x} has {count} program headers of {size} bytes at {table}")
    raw = read(base + table, 56 * count)
    headers = tuple(Header(*struct.unpack_from("<IIQQQQQQ", raw, 56 * number)) for number in range(count))
    first = next((header for header in headers if header.type == _LOAD), None)
    if first is None or first.vaddr < first.offset:
        raise Unreadable(f"the image at {base:#x} has no segment")
    return Image(base, base - (first.vaddr - first.offset), headers)


def build_id(read: Read, base: int) -> bytes | None:
    """What tells builds of a file apart: its GNU build id; None when it has none or it is not in memory."""
    try:
        image = read_image(read, base)
        for header in image.headers:
            if header.type == _NOTE and header.filesz <= 1 << 16:
                for name, kind, content in notes(read(image.bias + header.vaddr, header.filesz)):
                    if name == b"GNU" and kind == 3:
                        return content
    except Unreadable:
        pass
    return None


def notes(raw: bytes) -> Iterable[tuple[bytes, int, bytes]]:
    """(owner, type, content) of each note of a segment; ends where the segment is cut."""
    offset = 0
    while offset + 12 <= len(raw):
        name_size, size, kind = struct.unpack_from("<III", raw, offset)
        name_at = offset + 12
        at = name_at + (name_size + 3 & ~3)
        if at + size > len(raw):
            return
        yield raw[name_at : name_at + name_size].rstrip(b"\0"), kind, raw[at : at + size]
        offset = at + (size + 3 & ~3)


def exported(read: Read, base: int, names: Iterable[str]) -> dict[str, int]:
    """Addresses of those names that the image at ``base`` exports."""
    image = read_image(read, base)
    dynamic = next((header for header in image.headers if header.type == _DYNAMIC), None)
    if dynamic is None:
        return {}
    raw = read(image.bias + dynamic.vaddr, min(dynamic.filesz, 1 << 16) & ~15)
    tags: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<QQ", raw):
        if tag == 0:
            break
        # Some loaders put the real address into the table, others leave that of the file.
        tags.setdefault(tag, value if value >= image.base else value + image.bias)
    if _DT_SYMTAB not in tags or _DT_STRTAB not in tags:
        return {}
    find = _by_gnu_hash if _DT_GNU_HASH in tags else _by_scan if _DT_HASH in tags else None
    found = {}
    if find is not None:
        for name in names:
            value = find(read, tags, name.encode())
            if value:
                found[name] = value + image.bias
    return found


def _by_gnu_hash(read: Read, tags: dict[int, int], name: bytes) -> int:
    table = tags[_DT_GNU_HASH]
    buckets, first, bloom, _ = struct.unpack("<IIII", read(table, 16))
    if not buckets or bloom > _MOST_SYMBOLS:
        return 0
    wanted = gnu_hash(name)
    bucket_at = table + 16 + 8 * bloom
    (symbol,) = struct.unpack("<I", read(bucket_at + 4 * (wanted % buckets), 4))
    if not first <= symbol <= _MOST_SYMBOLS:
        return 0
    chain_at = bucket_at + 4 * buckets
    for number in range(symbol, symbol + _LONGEST_CHAIN):
        (hashed,) = struct.unpack("<I", read(chain_at + 4 * (number - first), 4))
        if hashed | 1 == wanted | 1 and (value := _value(read, tags, number, name)):
            return value
        if hashed & 1:
            break
    return 0


def _by_scan(read: Read, tags: dict[int, int], name: bytes) -> int:
    (count,) = struct.unpack("<4xI", read(tags[_DT_HASH], 8))
    for number in range(min(count, _MOST_SYMBOLS)):
        if value := _value(read, tags, number, name):
            return value
    return 0


def _value(read: Read, tags: dict[int, int], number: int, name: bytes) -> int:
    """st_value of a symbol that is defined here and bears the name."""
    at, section, value = struct.unpack("<IxxHQ8x", read(tags[_DT_SYMTAB] + 24 * number, 24))
    if not section or read(tags[_DT_STRTAB] + at, len(name) + 1) != name + b"\0":
        return 0
    return int(value)


def gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def in_symbol_table(elf: bytes, names: Iterable[str]) -> dict[str, int]:
    """st_value of names in the .symtab of a whole file, as completely static programs have; {} where it is stripped.

    A section named ``.PyRuntime`` stands for the symbol ``_PyRuntime``: it survives stripping.
    """
    try:
        return _in_symbol_table(elf, set(names))
    except (struct.error, ValueError, IndexError, OverflowError):
        return {}


def _in_symbol_table(elf: bytes, names: set[str]) -> dict[str, int]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, strings = struct.unpack_from("<HHH", elf, 58)
    if elf[:6] != b"\x7fELF\x02\x01" or size != 64:
        return {}
    # name, type, flags, address, offset, size, link, info, align, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * number) for number in range(count)]
    found: dict[str, int] = {}
    for section in sections:
        if "_PyRuntime" in names and _text(elf, sections[strings][4] + section[0]) == b".PyRuntime":
            found["_PyRuntime"] = section[3]
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        at = sections[section[6]][4]
        for number in range(min(section[5] // 24, _MOST_SYMBOLS)):
            name, value = struct.unpack_from("<I4xQ8x", elf, section[4] + 24 * number)
            if value and name and (text := _text(elf, at + name).decode("ascii", "replace")) in names:
                found[text] = value
    return found


def _text(elf: bytes, at: int) -> bytes:
    return elf[at : elf.index(b"\0", at, at + 512)]


def first_page(read: Read, base: int) -> bytes | None:
    """The ELF header and what follows it: stands for a file that has no build id."""
    try:
        return read(base, _PAGE)
    except Unreadable:
        return None
