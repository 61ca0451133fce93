"""Reads single objects into nodes: what an object is itself, and where its children are.

What every kind of object looks like in memory is drawn at the function that reads it. The objects of one level are read
together: each asks for what it needs, in rounds, and all that was asked for in a round is one read.
"""

import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .memory import Range, Unreadable
from .reader import KEYS_HEAD, KeysTable, Reader, decode, parse_keys
from .typeinfo import DICT, INLINE_VALUES, INT, MANAGED_DICT, Type
from .values import Limits, Member, Plain, Why

_HEAD = 64
_DEQUE_BLOCK = 64
_REMOVED = (1 << 64) - 1  # the hash of an entry that was removed from a set

Steps = Generator[list[Range], list[bytes], None]
"""Reads of one object: it yields what it wants and is sent it."""


class OverBudget(Unreadable):
    """The limits of this reading allow no more."""


@dataclass(slots=True)
class Node:
    """An object as it was read: its own value, if it is a leaf, or the pointers to its children.

    ``fixed``: (address, bytes) that must be the same afterwards, or all of it is in doubt. ``links``: the same for the
    words that hold its children: where one differs, only that child is in doubt. ``shared``: what is ``fixed`` for all
    objects of its class. ``places``: where the pointer of each attribute stands.
    """

    type: Type | None
    leaf: bool = False
    value: Plain | Member = None
    size: int | None = None
    why: Why | None = None
    items: list[int] | None = None
    pairs: list[tuple[int, int]] | None = None
    attributes: list[tuple[str, int]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    fixed: list[tuple[int, bytes]] = field(default_factory=list)
    links: list[tuple[int, bytes]] = field(default_factory=list)
    shared: tuple[tuple[int, bytes], ...] = ()
    doubtful: frozenset[int] = frozenset()

    def children(self, hidden: frozenset[str]) -> Iterable[int]:
        yield from self.items or ()
        for key, value in self.pairs or ():
            yield key
            yield value
        for name, value in self.attributes:
            if name not in hidden:
                yield value


class NodeReader:
    """Reads objects within the limits of one reading."""

    def __init__(self, reader: Reader, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits
        self.layout = reader.layout
        self.nodes: dict[int, Node] = {}
        self.bytes_left = limits.bytes
        self.shared_keys: dict[int, tuple[KeysTable, list[str], tuple[tuple[int, bytes], ...]] | None] = {}

    def read_many(self, ranges: list[Range]) -> tuple[bytearray, list[int]]:
        wanted = sum(size for _, size in ranges)
        self.bytes_left -= wanted
        if self.bytes_left < 0:
            raise OverBudget(f"more than {self.limits.bytes} bytes")
        return self.reader.memory.read_many(ranges)

    def read(self, wanted: Mapping[int, int]) -> dict[int, Node]:
        """Reads objects (address: level): the heads of all, then what each asks for, all of them at once. Those at the
        deepest level are not opened."""
        self.nodes = {}
        addresses = list(wanted)
        try:
            heads, missing = self.read_many([(address, _HEAD) for address in addresses])
        except OverBudget:
            return {address: Node(None, leaf=True, why="budget") for address in addresses}
        lost = set(missing)
        running: list[tuple[int, Steps, list[Range]]] = []
        for number, address in enumerate(addresses):
            node = self.nodes[address] = Node(None)
            try:
                head = bytes(heads[_HEAD * number : _HEAD * (number + 1)])
                if number in lost:
                    head = self._last_of_page(address)
                node.type = kind = self.reader.type_at(int.from_bytes(head[8:16], "little"))
                if self._simple(kind, head, node):
                    if not self.reader.lasts(kind, address):
                        node.fixed.append((address + 8, head[8:]))
                    continue
                steps = self._steps(kind, address, head, node, unfold=wanted[address] < self.limits.depth)
                running.append((address, steps, next(steps)))
            except StopIteration:
                continue
            except (Unreadable, struct.error) as error:
                self.nodes[address] = _failed(node, error)
        while running:
            running = self._round(running)
        return self.nodes

    def leaf(self, address: int, head: bytes) -> Node:
        """The object of which the first 64 bytes are known, if it is a plain number or short text."""
        node = Node(self.reader.type_at(int.from_bytes(head[8:16], "little")))
        assert node.type is not None
        if not self._simple(node.type, head, node):
            node.why = "depth"
        return node

    def _last_of_page(self, address: int) -> bytes:
        """The head of an object that ends where its page does, filled up with zeros."""
        there = 4096 - address % 4096
        if there >= _HEAD or there < 16:
            raise Unreadable(f"there is no object at {address:#x}")
        return self.reader.memory.read(address, there).ljust(_HEAD, b"\0")

    def _round(self, running: list[tuple[int, Steps, list[Range]]]) -> list[tuple[int, Steps, list[Range]]]:
        """One read for all objects under way."""
        accepted, ranges = [], []
        left = self.bytes_left
        for address, steps, asked in running:
            size = sum(length for _, length in asked)
            if size > left or any(length < 0 for _, length in asked):
                self.nodes[address] = _failed(self.nodes[address], OverBudget("too large"))
                steps.close()
                continue
            left -= size
            accepted.append((address, steps, asked))
            ranges += asked
        raw, missing = self.read_many(ranges)
        lost = set(missing)
        following = []
        offset = number = 0
        for address, steps, asked in accepted:
            parts, whole = [], True
            for _, length in asked:
                parts.append(bytes(raw[offset : offset + length]))
                whole = whole and number not in lost
                offset += length
                number += 1
            try:
                if not whole:
                    raise Unreadable(f"the object at {address:#x} leads to nowhere")
                following.append((address, steps, steps.send(parts)))
            except StopIteration:
                continue
            except (Unreadable, struct.error) as error:
                steps.close()
                self.nodes[address] = _failed(self.nodes[address], error)
        return following

    def _simple(self, kind: Type, head: bytes, node: Node) -> bool:
        """Whether the head was all there is to read."""
        if not kind.plain:
            return False
        if kind.kind == "float":
            (node.value,) = struct.unpack_from("<d", head, 16)
        elif kind.kind == "none":
            node.value = None
        elif kind.kind in ("int", "bool"):
            sign, count = self._int_size(head)
            if count > 10:
                return False
            number = _from_digits(head[24 : 24 + 4 * count]) * sign
            node.value = bool(number) if kind.kind == "bool" else number
        elif kind.kind == "str":
            length, start, size, codec = self.reader.text_place(0, head)
            if start < 0 or start + size > _HEAD or self._too_long(length):
                return False
            node.value, node.size = decode(head[start : start + size], codec), length
        else:
            return False
        node.leaf = True
        return True

    def _too_long(self, length: int) -> bool:
        return self.limits.text is not None and length > self.limits.text

    def _int_size(self, head: bytes) -> tuple[int, int]:
        """(sign, digits of 30 bits). Up to 3.11 the size says both; then lv_tag: two bits of sign, one reserved."""
        (size,) = struct.unpack_from("<q", head, 16)
        if self.reader.runtime.minor >= (3, 12):
            return (1, 0, -1, 0)[size & 3], size >> 3 & (1 << 60) - 1
        return (size > 0) - (size < 0), abs(size)

    # -- one object

    def _steps(self, kind: Type, address: int, head: bytes, node: Node, *, unfold: bool) -> Steps:
        """Fills a node. The value that its class descends from first, then its attributes."""
        if kind.enum:
            yield from self._member(kind, address, head, node)
            return
        if kind.kind in ("int", "bool", "float", "str", "bytes", "none"):
            yield from self._scalar(kind, address, head, node)
            if kind.plain or node.why:
                node.leaf = True
                return
        elif kind.kind == "type":
            node.leaf, node.why = True, "depth"
            return
        elif kind.kind != "instance":
            node.size = self._length(kind, head)
        if not unfold:
            node.leaf, node.why = True, "depth"
            return
        if kind.kind in ("list", "tuple"):
            yield from self._sequence(kind, address, head, node)
        elif kind.kind == "set":
            yield from self._set(address, head, node)
        elif kind.kind == "deque":
            yield from self._deque(address, head, node)
        elif kind.kind == "dict":
            node.pairs = [(key, value) for key, value, _ in (yield from self._dict(address, head, node))]
        if not kind.plain:
            node.fixed.append((address + 8, head[8:16]))
            yield from self._attributes(kind, address, head, node)

    def _length(self, kind: Type, head: bytes) -> int:
        """Of a container: ob_size, or where a set and a dict keep theirs."""
        (size,) = struct.unpack_from("<q", head, 24 if kind.kind == "set" else 16)
        if not 0 <= size <= 1 << 40:
            raise Unreadable(f"a {kind.name} of {size} items")
        return int(size)

    def _affordable(self, entries: int, each: int) -> None:
        if entries > each * self.limits.objects:
            raise OverBudget(f"{entries} entries are more than these limits allow")

    def _scalar(self, kind: Type, address: int, head: bytes, node: Node) -> Steps:
        if kind.kind == "none":
            node.value = None
        elif kind.kind == "float":
            (node.value,) = struct.unpack_from("<d", head, 16)
        elif kind.kind in ("int", "bool"):
            sign, count = self._int_size(head)
            (digits,) = yield [(address + 24, 4 * count)]
            node.value = _from_digits(digits) * sign
            node.fixed += [(address + 8, head[8:24]), (address + 24, digits)]
        elif kind.kind == "bytes":
            node.fixed.append((address + 8, head[8:24]))
            node.size = self._length(kind, head)
            if self._too_long(node.size):
                node.why = "hidden"
                return
            (node.value,) = yield [(address + 32, node.size)]
            node.fixed.append((address + 32, node.value))
        else:
            node.size, start, size, codec = self.reader.text_place(address, head)
            if self._too_long(node.size):
                node.why = "hidden"
                return
            if start < 0:
                (pointer,) = yield [(-start, 8)]
                start = int.from_bytes(pointer, "little")
            (text,) = yield [(start, size)]
            node.value = decode(text, codec)
            node.fixed += [(address + 8, head[8:24]), (start, text)]  # a str may grow where it stands

    def _sequence(self, kind: Type, address: int, head: bytes, node: Node) -> Steps:
        """list: +16 size, +24 pointer to the items, +32 room. tuple: +16 size, then the items."""
        (size,) = struct.unpack_from("<q", head, 16)
        if kind.kind == "tuple":
            start = address + self.layout.tuple_items
        else:
            start, room = struct.unpack_from("<Qq", head, 24)
            if size > room:
                raise Unreadable(f"the list at {address:#x} has {size} items and room for {room}")
            node.fixed.append((address + 8, head[8:32]))
        self._affordable(size, 4)
        (raw,) = yield [(start, 8 * size)]
        node.links.append((start, raw))  # of a tuple too: one that was freed may be another now, at the same place
        node.items = list(struct.unpack(f"<{size}Q", raw))

    def _set(self, address: int, head: bytes, node: Node) -> Steps:
        """+16 filled, +24 used, +32 mask, +40 table of (key, hash)."""
        _, used, mask, table = struct.unpack_from("<qqqQ", head, 16)
        if not 0 <= mask <= 1 << 40 or mask & mask + 1 or used > mask + 1:
            raise Unreadable(f"no set at {address:#x}")
        node.fixed.append((address + 8, head[8:48]))
        self._affordable(mask + 1, 32)
        (raw,) = yield [(table, 16 * (mask + 1))]
        node.links.append((table, raw))
        words = struct.unpack(f"<{2 * mask + 2}Q", raw)
        node.items = [key for key, hashed in zip(words[::2], words[1::2], strict=True) if key and hashed != _REMOVED]
        if len(node.items) != used:
            node.leaf, node.why = True, "changing"

    def _deque(self, address: int, head: bytes, node: Node) -> Steps:
        """+16 size, +24 left block, +32 right, +40 left index, +48 right; block: left link, 64 items, right link."""
        size, block, _, index = struct.unpack_from("<qQQq", head, 16)
        if not 0 <= index < _DEQUE_BLOCK:
            raise Unreadable(f"no deque at {address:#x}")
        node.fixed.append((address + 8, head[8:56]))
        self._affordable(size, 4)
        found: list[int] = []
        while len(found) < size:
            (raw,) = yield [(block, 8 * (_DEQUE_BLOCK + 2))]
            node.links.append((block, raw))
            words = struct.unpack(f"<{_DEQUE_BLOCK + 2}Q", raw)
            found += words[1 + index : min(_DEQUE_BLOCK + 1, 1 + index + size - len(found))]
            block, index = words[-1], 0
        node.items = found

    def _dict(
        self, address: int, head: bytes, node: Node
    ) -> Generator[list[Range], list[bytes], list[tuple[int, int, int]]]:
        """(key, value, where the value's pointer stands) of a dict.

        +16 used, +32 keys, +40 values: the pointers of a split one, else 0. (+24 changes with each store.)
        """
        used, _, keys_at, values = struct.unpack_from("<qqQQ", head, 16)
        node.fixed += [(address + 8, head[8:24]), (address + 32, head[32:48])]
        (raw,) = yield [(keys_at, KEYS_HEAD)]
        table = parse_keys(keys_at, raw, self.reader.runtime.minor)
        node.fixed.append((keys_at + 8, raw[8:12]))
        node.fixed.append((keys_at + 24, raw[24:32]) if self.layout.code_qualname else (keys_at + 32, raw[32:40]))
        self._affordable(table.count, 4)
        (entries,) = yield [(table.start, table.size)]
        words = struct.unpack(f"<{table.width * table.count}Q", entries)
        node.links.append((table.start, entries))
        keys, own = words[table.width - 2 :: table.width], words[table.width - 1 :: table.width]
        first, step = table.start + 8 * (table.width - 1), 8 * table.width
        if values:
            first, step = values + self.layout.values, 8
            (raw,) = yield [(first, 8 * table.count)]
            node.links.append((first, raw))
            own = struct.unpack(f"<{table.count}Q", raw)
        places = range(first, first + step * table.count, step)
        pairs = [entry for entry in zip(keys, own, places, strict=True) if entry[0] and entry[1]]
        if len(pairs) != used:
            node.leaf, node.why = True, "changing"
        return pairs

    def _member(self, kind: Type, address: int, head: bytes, node: Node) -> Steps:
        """A member of an Enum: its attributes ``_name_`` and ``_value_``."""
        yield from self._attributes(kind, address, head, node)
        attributes = dict(node.attributes)
        name = attributes.get("_name_")
        node.attributes = []
        node.items = [attributes[key] for key in ("_name_", "_value_") if key in attributes]
        if name is None or len(node.items) != 2:
            raise Unreadable(f"no member of {kind.name} at {address:#x}")

    def _attributes(self, kind: Type, address: int, head: bytes, node: Node) -> Steps:
        """Slots, then what stands in the instance's values or dict.

        3.10    dict pointer at +dictoffset
        3.11    values pointer at -32, else dict pointer at -24
        3.12    at -24: values pointer minus one (odd), or dict pointer
        3.13+   values behind the instance, if the byte +3 there says that they are valid; else dict pointer at -24
        """
        before = 32 if kind.flags & MANAGED_DICT else 0
        inline = bool(kind.flags & INLINE_VALUES) and self.layout.inline_values
        (raw,) = yield [(address - before, before + kind.basicsize + (8 if inline else 0))]
        if kind.slots:
            first, last = min(kind.slots.values()), max(kind.slots.values()) + 8
            node.links.append((address + first, raw[before + first : before + last]))
        if before:
            node.fixed.append((address - 24, raw[8:16]) if inline else (address - 32, raw[:16]))
        for name, offset in kind.slots.items():
            (pointer,) = struct.unpack_from("<Q", raw, before + offset)
            if pointer:
                node.attributes.append((name, pointer))
                node.places[name] = address + offset
        where, values = self._dict_place(kind, address, head, raw, before, inline=inline)
        if values:
            yield from self._values(kind, values, node)
        elif where:
            yield from self._dict_at(where, node)
        if kind.fields and node.items is not None:
            node.attributes += list(zip(kind.fields, node.items, strict=False))

    def _dict_at(self, where: int, node: Node) -> Steps:
        """The attributes in the dict to which the pointer at ``where`` leads, if any."""
        (raw,) = yield [(where, 8)]
        node.fixed.append((where, raw))
        pointer = int.from_bytes(raw, "little")
        if not pointer:
            return
        (dict_head,) = yield [(pointer, 48)]
        if not self.reader.type_at(int.from_bytes(dict_head[8:16], "little")).flags & DICT:
            raise Unreadable(f"the attributes at {where:#x} are in no dict")
        entries = yield from self._dict(pointer, dict_head, node)
        names = yield from self._names([key for key, _, _ in entries])
        for name, (_, value, place) in zip(names, entries, strict=True):
            if name:
                node.attributes.append((name, value))
                node.places[name] = place

    def _dict_place(
        self, kind: Type, address: int, head: bytes, raw: bytes, before: int, *, inline: bool
    ) -> tuple[int, int]:
        """(address of the pointer to the dict, address of the values): one of them, or neither."""
        if before:
            first, second = struct.unpack_from("<QQ", raw)
            if inline:
                return (address - 24, 0) if not raw[32 + kind.basicsize + 3] else (0, address + kind.basicsize)
            if self.reader.runtime.minor == (3, 11):
                return (0, first) if first else (address - 24, 0)
            if self.reader.runtime.minor == (3, 12) and second & 1:
                return 0, second + 1
            return address - 24, 0
        offset = kind.dictoffset
        if offset < 0:  # counted from the end of an object of variable size
            (count,) = struct.unpack_from("<q", head, 16)
            if kind.flags & INT and self.reader.runtime.minor >= (3, 12):
                count >>= 3
            offset += kind.basicsize + abs(count) * kind.itemsize + 7 & ~7
            if offset <= 0 or abs(count) > 1 << 32:
                raise Unreadable(f"no {kind.name} at {address:#x}")
        return (address + offset, 0) if offset else (0, 0)

    def _values(self, kind: Type, values: int, node: Node) -> Steps:
        """Pointers that stand in the order of the keys which all instances of the class share."""
        shared = self._shared(kind)
        if shared is None:
            return
        table, names, fixed = shared
        start = values + self.layout.values
        (raw,) = yield [(start, 8 * table.count)]
        node.shared = fixed
        node.links.append((start, raw))
        pointers = struct.unpack(f"<{table.count}Q", raw)
        for number, (name, pointer) in enumerate(zip(names, pointers, strict=True)):
            if pointer and name:
                node.attributes.append((name, pointer))
                node.places[name] = start + 8 * number

    def _shared(self, kind: Type) -> tuple[KeysTable, list[str], tuple[tuple[int, bytes], ...]] | None:
        """The shared keys of a class, their names, and what must stay the same for them to be true."""
        if kind.address not in self.shared_keys:
            found = None
            memory = self.reader.memory
            pointer = memory.read(kind.cached_keys, 8)
            if any(pointer):
                address = int.from_bytes(pointer, "little")
                table = self.reader.keys_table(address, 1 << 16)
                if table.size > self.bytes_left:
                    raise OverBudget(f"more than {self.limits.bytes} bytes")
                self.bytes_left -= table.size
                entries = memory.read(table.start, table.size)
                words = struct.unpack(f"<{table.width * table.count}Q", entries)
                keys = words[table.width - 2 :: table.width]
                names = [self.reader.string(key) for key in keys]
                fixed = (kind.cached_keys, pointer), (table.start, entries)
                found = table, names, fixed
            self.shared_keys[kind.address] = found  # of what could not be read the next one says so, too
        return self.shared_keys[kind.address]

    def _names(self, keys: Sequence[int]) -> Generator[list[Range], list[bytes], list[str]]:
        """Texts of the keys of an instance's dict: attribute names, so short."""
        heads = yield [(key, _HEAD) for key in keys]
        names = []
        for key, head in zip(keys, heads, strict=True):
            length, start, size, codec = self.reader.text_place(key, head)
            if length > 512 or start < 0:
                names.append("")
            elif start + size <= key + _HEAD:
                names.append(decode(head[start - key : start - key + size], codec))
            else:
                (text,) = yield [(start, size)]
                names.append(decode(text, codec))
        return names


def _failed(node: Node, error: Exception) -> Node:
    return Node(node.type, leaf=True, why="budget" if isinstance(error, OverBudget) else "unreadable")


def _from_digits(raw: bytes) -> int:
    """Digits of 30 bits, the lowest first."""
    value = 0
    for digit in reversed(struct.unpack(f"<{len(raw) // 4}I", raw)):
        value = value << 30 | digit
    return value
