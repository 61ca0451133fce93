"""A target whose Python is understood: its memory, its layout, its types. Everything else reads through it."""

import struct
from collections.abc import Sequence

from .layouts import Runtime
from .memory import Buffers, Memory, Unreadable, in_user_space
from .typeinfo import (
    _ENUMS,
    _HEAD,
    _OBJECT_MEMBERS,
    _PLAIN,
    HEAP_TYPE,
    LONGEST_NAME,
    MOST_BASES,
    TUPLE,
    TYPE,
    Type,
    anchor,
    kind_of,
    parse_head,
)
from .values import Member

_MOST_ENTRIES = 1 << 24
_LARGEST_TYPE_DICT = 1 << 16
_MOST_INTERPRETERS = 256


class Reader:
    """Python objects as the interpreter laid them out. ``opening.py`` makes one.

    Types are remembered by address; ``refresh`` forgets those that are no longer there.
    """

    def __init__(self, memory: Memory, runtime: Runtime) -> None:
        self.memory = memory
        self.runtime = runtime
        self.layout = runtime.layout
        self.types: dict[int, Type] = {}
        self.buffers = Buffers()
        self.codes: dict[int, tuple[bytes, str, str, bytes, dict[int, int | None]]] = {}
        """Of code objects, by address: what they looked like, their name, file, table of lines, and lines that were
        looked up in it, by instruction."""
        self.names: dict[bytes, list[str]] = {}
        self.members: dict[int, Member] = {}
        """Of attributes, by the addresses of their names, and of enums, by their own: as long as no type is freed."""
        self.small_ints: int | None = None
        """Address of the int 0, where those from -5 to 256 stand 32 bytes apart (3.11 on)."""
        self.small_int_table: tuple[int, ...] = ()
        self.small_int_set: frozenset[int] = frozenset()
        """Addresses of those ints where they stand anywhere (3.10)."""

    def close(self) -> None:
        self.memory.close()

    def refresh(self) -> None:
        """To be called now and then while a target lives: Gone if it does not, and types that were freed forgotten."""
        self.memory.check()
        known = list(self.types.values())
        raw, missing = self.memory.read_many([(kind.address, _HEAD) for kind in known])
        for number, kind in enumerate(known):
            if number in missing or anchor(bytes(raw[_HEAD * number : _HEAD * (number + 1)])) != kind.anchor:
                del self.types[kind.address]
        if len(self.types) < len(known):
            self.names.clear()
            self.members.clear()

    # -- words and texts

    def word(self, address: int) -> int:
        return int.from_bytes(self.memory.read(address, 8), "little")

    def words(self, address: int, count: int) -> tuple[int, ...]:
        if not 0 <= count <= _MOST_ENTRIES:
            raise Unreadable(f"{count} words at {address:#x} are not believed")
        return struct.unpack(f"<{count}Q", self.memory.read(address, 8 * count)) if count else ()

    def c_string(self, address: int) -> str:
        """Text of C up to its zero: a type's name."""
        raw = b""
        while len(raw) < LONGEST_NAME:
            step = min(64, 4096 - (address + len(raw)) % 4096)
            part, zero, _ = self.memory.read(address + len(raw), step).partition(b"\0")
            raw += part
            if zero:
                break
        text = raw.decode("utf-8", "replace")
        if not text or not text.isprintable():
            raise Unreadable(f"no name at {address:#x}")
        return text

    def string(self, address: int, longest: int = LONGEST_NAME) -> str:
        """An exact str."""
        length, start, size, codec = self.text_place(address, self.memory.read(address, 64))
        if length > longest:
            raise Unreadable(f"the name at {address:#x} has {length} characters")
        if start < 0:
            start = self.word(-start)
        return decode(self.memory.read(start, size), codec) if size else ""

    def strings(self, address: int, most: int) -> list[str]:
        """A tuple of names."""
        return [self.string(item) for item in self._tuple(address, most)]

    def text_place(self, address: int, head: bytes) -> tuple[int, int, int, str]:
        """(characters, address of the text, bytes, codec) of a str; the address is negative where it is that of a
        pointer to the text, as in instances of subclasses. ``head``: its first 40 bytes at least.

        Drawn in Include/cpython/unicodeobject.h: length +16, hash +24, state +32: bits 2-4 bytes a character, 5
        compact, 6 ASCII.
        """
        length, _, state = struct.unpack_from("<qqI", head, 16)
        width, compact, ascii_only = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if width not in (1, 2, 4) or not 0 <= length <= 1 << 40 or (ascii_only and width != 1):
            raise Unreadable(f"no str at {address:#x}")
        codec = "ascii" if ascii_only else ("latin-1", "utf-16-le", "", "utf-32-le")[width - 1]
        if not compact:
            return length, -(address + self.layout.other_text), length * width, codec
        start = self.layout.ascii_text if ascii_only else self.layout.other_text
        return length, address + start, length * width, codec

    # -- types

    def type_at(self, address: int) -> Type:
        """The type object at an address; Unreadable when what is there is none."""
        known = self.types.get(address)
        if known is None:
            known = self.types[address] = self._read_type(address)
        return known

    def type_of(self, address: int) -> Type:
        return self.type_at(self.word(address + 8))

    def _read_type(self, address: int) -> Type:
        if not in_user_space(address, _HEAD) or address % 8:
            raise Unreadable(f"no type at {address:#x}")
        raw = self.memory.read(address, _HEAD)
        head = parse_head(raw)
        if not struct.unpack("<Q", self.memory.read(head.meta + 168, 8))[0] & TYPE:
            raise Unreadable(f"what stands at {address:#x} is no type: its own type is not a metatype")
        name = self.c_string(head.name)
        bases = []
        slots: dict[str, int] = {}
        fields: tuple[str, ...] = ()
        for base in reversed(self._tuple(head.mro, MOST_BASES)):
            base_head = parse_head(self.memory.read(base, _HEAD))
            bases.append((self.c_string(base_head.name), base_head.flags))
            # Static types have no dict of their own from 3.12 on, and need none.
            if base_head.dict and base_head.flags & HEAP_TYPE:
                entries = self.dict_pairs(base_head.dict, _LARGEST_TYPE_DICT)
                slots.update(self._slots(entries, head.basicsize))
                if head.flags & TUPLE:
                    fields = self._fields(entries) or fields
        bases.reverse()
        if not bases or bases[0][0] != name:
            raise Unreadable(f"the type {name} at {address:#x} is not the first of its own mro")
        metas = [self.c_string(self.word(meta + 24)) for meta in self._tuple(self.word(head.meta + 344), MOST_BASES)]
        return Type(
            address=address,
            name=name.rpartition(".")[2],
            kind=kind_of(head.flags, tuple(bases)),
            plain=name in _PLAIN and (not head.flags & HEAP_TYPE or "." in name),
            enum=not _ENUMS.isdisjoint(metas),
            bases=tuple(base.rpartition(".")[2] for base, _ in bases),
            basicsize=head.basicsize,
            itemsize=head.itemsize,
            flags=head.flags,
            dictoffset=head.dictoffset,
            cached_keys=address + self.layout.cached_keys if head.flags & HEAP_TYPE else 0,
            slots=slots,
            fields=fields,
            anchor=anchor(raw),
        )

    def _tuple(self, address: int, most: int) -> tuple[int, ...]:
        count = self.word(address + 16)
        if count > most:
            raise Unreadable(f"the tuple at {address:#x} has {count} items")
        return self.words(address + self.layout.tuple_items, count)

    def _slots(self, entries: Sequence[tuple[int, int]], basicsize: int) -> dict[str, int]:
        """Offsets of the entries of ``__slots__``, and of the fields of a msgspec.Struct."""
        found = {}
        raw, missing = self.memory.read_many([(value, 48) for _, value in entries])
        for number, (key, _) in enumerate(entries):
            kind, member = struct.unpack_from("<Q24xQ", raw, 48 * number + 8)
            if number in missing or not self._is_member_descriptor(kind):
                continue
            variety, offset = struct.unpack("<I4xq", self.memory.read(member + 8, 16))
            if variety in _OBJECT_MEMBERS and 16 <= offset <= basicsize - 8:
                found[self.string(key)] = offset
        return found

    def _is_member_descriptor(self, kind: int) -> bool:
        try:
            return self.c_string(self.word(kind + 24)) == "member_descriptor"
        except Unreadable:
            return False

    def _fields(self, entries: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        for key, value in entries:
            try:
                if self.string(key) == "_fields" and self.type_of(value).kind == "tuple":
                    return tuple(self.strings(value, 4096))
            except Unreadable:
                continue
        return ()

    def lasts(self, kind: Type, address: int) -> bool:
        """Whether a leaf is there for good: None, True, False and the small ints, to which most pointers lead."""
        if kind.kind in ("none", "bool"):
            return True
        if self.small_ints is not None:
            return -5 * 32 <= address - self.small_ints <= 256 * 32
        return address in self.small_int_set

    # -- dicts: also those of types and modules

    def dict_pairs(self, address: int, most: int = _MOST_ENTRIES) -> list[tuple[int, int]]:
        """(key, value) pointers of a dict that hardly changes, as that of a module."""
        for _ in range(5):
            head = self.memory.read(address + 8, 40)
            _, _, _, keys, values = struct.unpack("<5Q", head)
            table = self.keys_table(keys, most)
            entries = struct.unpack(f"<{table.size // 8}Q", self.memory.read(table.start, table.size))
            width = table.width
            pairs = list(zip(entries[width - 2 :: width], entries[width - 1 :: width], strict=True))
            if values:
                own = self.words(values + self.layout.values, len(pairs))
                pairs = [(key, value) for (key, _), value in zip(pairs, own, strict=True)]
            if self.memory.read(address + 8, 40) == head:
                return [pair for pair in pairs if pair[0] and pair[1]]
        raise Unreadable(f"the dict at {address:#x} changes each time it is read")

    def keys_table(self, address: int, most: int = _MOST_ENTRIES) -> "KeysTable":
        return parse_keys(address, self.memory.read(address, KEYS_HEAD), self.runtime.minor, most)

    # -- modules

    def modules(self) -> dict[str, int]:
        """sys.modules of the main interpreter: of a large program thousands, so their names are read together."""
        pairs = self.dict_pairs(self.word(self._main_interpreter() + self.layout.modules))
        heads, missing = self.memory.read_many([(key, _NAME_HEAD) for key, _ in pairs])
        gone, found = set(missing), {}
        for number, (key, value) in enumerate(pairs):
            head = bytes(heads[number * _NAME_HEAD : (number + 1) * _NAME_HEAD])
            try:
                if number in gone:  # the last of a page, before one that is not there
                    found[self.string(key)] = value
                    continue
                length, start, size, codec = self.text_place(key, head)
                offset = start - key
                whole = length <= LONGEST_NAME and 0 < offset <= _NAME_HEAD - size
                name = decode(head[offset : offset + size], codec) if whole else self.string(key)
            except Unreadable:
                continue
            found[name] = value
        return found

    def module_dict(self, module: int) -> dict[str, int]:
        """Globals of a module object, whose dict is at +16."""
        return {self.string(key): value for key, value in self.dict_pairs(self.word(module + 16))}

    def interpreters(self) -> list[int]:
        found: list[int] = []
        interpreter = self.word(self.runtime.address + self.layout.interpreters)
        while interpreter and interpreter not in found and len(found) < _MOST_INTERPRETERS:
            found.append(interpreter)
            interpreter = self.word(interpreter + self.layout.next_interpreter)
        return found

    def _main_interpreter(self) -> int:
        """New ones are put in front."""
        found = self.interpreters()
        if not found:
            raise Unreadable(f"{self.memory.name} has no interpreter: it is starting or has ended")
        return found[-1]


class KeysTable:
    """The entries of a dict: ``count`` of them, ``width`` words each, of which the last two are key and value.

    3.10:    +8 size │ +32 entries used │ +40 indices, 1 2 4 or 8 bytes each │ (hash, key, value)…
    3.11 on: +9 log2 bytes of indices │ +10 kind │ +24 entries used │ +32 indices │ (hash, key, value)… if kind is 0,
             else (key, value)…
    """

    __slots__ = ("address", "count", "start", "width")

    def __init__(self, address: int, count: int, start: int, width: int) -> None:
        self.address = address
        self.count = count
        self.start = start
        self.width = width

    @property
    def size(self) -> int:
        return 8 * self.width * self.count


KEYS_HEAD = 40
_NAME_HEAD = 96  # of a str: 40 bytes or so, and a name of usual length


def parse_keys(address: int, head: bytes, minor: tuple[int, int], most: int = _MOST_ENTRIES) -> KeysTable:
    """``head``: its first 40 bytes."""
    if minor >= (3, 11):
        log_index, kind, count = struct.unpack_from("<9xBB13xq", head)
        if log_index > 40 or kind > 2 or not 0 <= count <= most:
            raise Unreadable(f"no table of keys at {address:#x}")
        return KeysTable(address, count, address + 32 + (1 << log_index), 3 if kind == 0 else 2)
    size, count = struct.unpack_from("<8xq16xq", head)
    if not 0 < size <= 1 << 40 or size & size - 1 or not 0 <= count <= min(most, size):
        raise Unreadable(f"no table of keys at {address:#x}")
    each = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
    return KeysTable(address, count, address + 40 + each * size, 3)


def decode(text: bytes, codec: str) -> str:
    """The text of a str; Unreadable where it cannot be one, as in memory that was freed."""
    try:
        return text.decode(codec, "surrogatepass" if codec.startswith("utf") else "strict")
    except UnicodeDecodeError as error:
        raise Unreadable(f"what should be a text is none: {error}") from error
