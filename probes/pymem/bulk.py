"""Reads many objects of one class as columns: a pool of 100,000 blocks is a few large reads and some arithmetic.

    addresses ─► pages, each read once ─► type pointers, places of the values ─► pointers of each column ─► values
                                                                                   │ read again at the end:
                                                                                   └ rows that differ are read anew

Objects of one kind stand close together, so whole pages are read and the objects cut out of them. This is the one part
that needs numpy; import it where it is used.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferdbg.errors import InferdbgError

from .memory import Unreadable
from .objects import read_all
from .pages import Pages, Words
from .reader import Reader, parse_keys
from .typeinfo import DICT, INLINE_VALUES, MANAGED_DICT, Type
from .values import USUAL, Limits, Unread, Value

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Column = Literal["integer", "pointer", "value"]
"""``integer``: int64 arithmetic; ``pointer``: the address that stands there, 0 for none; ``value``: Python values."""

_SMALLEST_INT, _LARGEST_INT = -5, 256
_TRIES = 4
_MOST_FORMS = 64
_MOST_ITEMS = 1 << 24
_HEAD_WORDS = 8
_LOW = np.uint64(0xFFFFFFFF)


class Table(NamedTuple):
    """Columns over rows. ``integers``, ``pointers``, ``values``: by name, a row each.

    ``known``: rows of an integer column that hold an int; others are 0. ``changing``: rows that changed each time they
    were read, ``foreign``: rows that are no objects of that class: nothing in either is to be believed.
    """

    type: str
    addresses: Words
    integers: dict[str, NDArray[np.int64]]
    known: dict[str, Mask]
    pointers: dict[str, Words]
    values: dict[str, list[Value]]
    changing: Mask
    foreign: Mask


class _Witness(NamedTuple):
    """Words that must be the same afterwards, and the rows that rest on them."""

    rows: Rows
    addresses: Words
    words: Words


def items(reader: Reader, address: int) -> Words:
    """Pointers to the items of a list or tuple; Unreadable when it is none, or changes each time it is read."""
    kind = reader.type_of(address)
    for _ in range(_TRIES):
        size, pointer, room = reader.words(address + 16, 3)
        if kind.kind == "tuple":
            pointer, room = address + reader.layout.tuple_items, size
        if kind.kind not in ("list", "tuple") or size > min(room, _MOST_ITEMS):
            raise Unreadable(f"no list at {address:#x}: a {kind.name} of {size} items")
        found = np.frombuffer(reader.memory.read(pointer, 8 * size), dtype=np.uint64)
        if kind.kind == "tuple" or reader.words(address + 16, 2) == (size, pointer):
            return found
    raise Unreadable(f"the list at {address:#x} changes each time it is read")


def table(
    reader: Reader, addresses: Words | Sequence[int], columns: Mapping[str, Column], limits: Limits = USUAL
) -> Table:
    """Attributes of objects of one class, that of the first. InferdbgError when it has no such attributes."""
    wanted = np.asarray(addresses, dtype=np.uint64)
    kind = reader.type_of(int(wanted[0])) if len(wanted) else None
    found = Table(
        type=kind.name if kind is not None else "",
        addresses=wanted,
        integers={name: np.zeros(len(wanted), np.int64) for name, what in columns.items() if what == "integer"},
        known={name: np.zeros(len(wanted), np.bool_) for name, what in columns.items() if what == "integer"},
        pointers={name: np.zeros(len(wanted), np.uint64) for name, what in columns.items() if what == "pointer"},
        values={},
        changing=np.zeros(len(wanted), np.bool_),
        foreign=np.zeros(len(wanted), np.bool_),
    )
    objects = {name: np.full(len(wanted), None, object) for name, what in columns.items() if what == "value"}
    rows: Rows = np.arange(len(wanted))
    odd = (wanted & np.uint64(7) != 0) | (wanted < 4096) | (wanted >= 1 << 47)
    found.foreign[odd] = True
    rows = rows[~odd]
    for _ in range(_TRIES):
        if not len(rows) or kind is None:
            break
        rows = _Reading(reader, kind, wanted, limits).fill(found, objects, rows, columns)
    found.changing[rows] = True
    found.values.update({name: column.tolist() for name, column in objects.items()})
    return found


class _Reading:
    """One try at some of the rows."""

    def __init__(self, reader: Reader, kind: Type, addresses: Words, limits: Limits) -> None:
        self.reader = reader
        self.kind = kind
        self.addresses = addresses
        self.limits = limits
        self.witnesses: list[_Witness] = []

    def fill(
        self, found: Table, objects: dict[str, NDArray[np.object_]], rows: Rows, columns: Mapping[str, Column]
    ) -> Rows:
        """Fills in the rows; gives those that changed meanwhile."""
        mine, pages = self._of_the_class(rows)
        found.foreign[rows] = True
        found.foreign[mine] = False
        if not len(mine):
            return mine
        pointers = {name: np.zeros(len(self.addresses), np.uint64) for name in columns}
        attributes = [name for name in columns if name not in self.kind.slots]
        for name in columns:
            if name in self.kind.slots:
                at = self.addresses[mine] + np.uint64(self.kind.slots[name])
                pointers[name][mine] = self._see(mine, at, pages)
        if attributes:
            self._attributes(mine, pages, attributes, pointers)
        decoded = self._values([pointers[name][mine] for name, what in columns.items() if what == "value"])
        for name, what in columns.items():
            if what == "pointer":
                found.pointers[name][mine] = pointers[name][mine]
            elif what == "integer":
                found.integers[name][mine], found.known[name][mine] = self._integers(pointers[name][mine])
            else:
                objects[name][mine] = decoded.pop(0)
        return self._changed(mine)

    def _of_the_class(self, rows: Rows) -> tuple[Rows, Pages]:
        addresses = self.addresses[rows]
        pages = Pages(self.reader.memory, addresses, max(16, self.kind.basicsize + 8))
        types = pages.words(addresses + np.uint64(8))
        mine = rows[types == self.kind.address]
        self._witness(mine, self.addresses[mine] + np.uint64(8), np.full(len(mine), self.kind.address, np.uint64))
        return mine, pages

    def _see(self, rows: Rows, addresses: Words, pages: Pages) -> Words:
        """Words that are checked again at the end."""
        words = pages.words(addresses)
        self._witness(rows, addresses, words)
        return words

    def _witness(self, rows: Rows, addresses: Words, words: Words) -> None:
        self.witnesses.append(_Witness(rows, addresses, words))

    def _changed(self, rows: Rows) -> Rows:
        addresses = np.concatenate([witness.addresses for witness in self.witnesses])
        before = np.concatenate([witness.words for witness in self.witnesses])
        differ = Pages(self.reader.memory, addresses, 8).words(addresses) != before
        if not differ.any():
            return rows[:0]
        return np.unique(np.concatenate([witness.rows for witness in self.witnesses])[differ])

    # -- where the attributes of an instance stand: objects.py draws it

    def _attributes(self, rows: Rows, pages: Pages, names: Sequence[str], pointers: dict[str, Words]) -> None:
        kind, layout, minor = self.kind, self.reader.layout, self.reader.runtime.minor
        here = self.addresses[rows]
        values = np.zeros(len(rows), np.uint64)
        dicts = np.zeros(len(rows), np.uint64)
        if kind.flags & MANAGED_DICT:
            front = Pages(self.reader.memory, here - np.uint64(32), 32)
            second = self._see(rows, here - np.uint64(24), front)
            if layout.inline_values and kind.flags & INLINE_VALUES:
                start = here + np.uint64(kind.basicsize)
                valid = (pages.words(start) >> np.uint64(24) & np.uint64(255)) != 0
                values = np.where(valid, start, 0).astype(np.uint64)
                dicts = np.where(valid, 0, second).astype(np.uint64)
            elif minor == (3, 11):
                values = self._see(rows, here - np.uint64(32), front)
                dicts = np.where(values != 0, 0, second).astype(np.uint64)
            elif minor == (3, 12):
                odd = (second & np.uint64(1)) != 0
                values = np.where(odd, second + np.uint64(1), 0).astype(np.uint64)
                dicts = np.where(odd, 0, second).astype(np.uint64)
            else:
                dicts = second
        elif kind.dictoffset > 0:
            dicts = self._see(rows, here + np.uint64(kind.dictoffset), pages)
        missing = set(names)
        if (values != 0).any():
            chosen = values != 0
            missing -= self._split(rows[chosen], values[chosen], self._shared_keys(), names, pointers)
        if (dicts != 0).any():
            chosen = dicts != 0
            missing -= self._dicts(rows[chosen], dicts[chosen], names, pointers)
        if missing:
            raise InferdbgError(f"{kind.name} has no attribute {', '.join(sorted(missing))}")

    def _shared_keys(self) -> int:
        return self.reader.word(self.kind.cached_keys)

    def _split(
        self, rows: Rows, values: Words, keys: int, names: Sequence[str], pointers: dict[str, Words]
    ) -> set[str]:
        """Values in an array of their own, in the order of the keys."""
        order = self._key_names(keys)
        count = max(order.values(), default=0) + 1
        start = values + np.uint64(self.reader.layout.values)
        pages = Pages(self.reader.memory, start, 8 * count)
        for name in names:
            if name in order:
                pointers[name][rows] = self._see(rows, start + np.uint64(8 * order[name]), pages)
        return set(order).intersection(names)

    def _key_names(self, address: int) -> dict[str, int]:
        keys = self.reader.keys_table(address, 1 << 16)
        words = self.reader.words(keys.start, keys.width * keys.count)[keys.width - 2 :: keys.width]
        return dict(zip(self._texts(words), range(len(words)), strict=True))

    def _texts(self, addresses: Sequence[int]) -> list[str]:
        """Names: short strings, read at once."""
        found = read_all(self.reader, addresses, Limits(depth=0, text=512))
        return [name if isinstance(name, str) else "" for name in found]

    def _dicts(self, rows: Rows, dicts: Words, names: Sequence[str], pointers: dict[str, Words]) -> set[str]:
        """Each row has a dict: split ones as above, others by the form of their tables, which few differ in."""
        reader, found = self.reader, set[str]()
        pages = Pages(reader.memory, dicts, 48)
        types = pages.words(dicts + np.uint64(8))
        for kind in np.unique(types).tolist():
            if not reader.type_at(kind).flags & DICT:
                raise Unreadable(f"the attributes of a {self.kind.name} are in no dict")
        keys = self._see(rows, dicts + np.uint64(32), pages)
        values = self._see(rows, dicts + np.uint64(40), pages)
        for address in np.unique(keys[values != 0])[:_MOST_FORMS].tolist():
            chosen = (values != 0) & (keys == address)
            found |= self._split(rows[chosen], values[chosen], address, names, pointers)
        whole = values == 0
        return found | self._combined(rows[whole], keys[whole], names, pointers)

    def _combined(self, rows: Rows, keys: Words, names: Sequence[str], pointers: dict[str, Words]) -> set[str]:
        found: set[str] = set()
        for _ in range(_MOST_FORMS):
            if not len(rows):
                break
            first = int(keys[0])
            form = parse_keys(first, self.reader.memory.read(first, 40), self.reader.runtime.minor, 1 << 16)
            before, length = form.start - first, form.size
            pages = Pages(self.reader.memory, keys, before + length)
            header = [keys + np.uint64(offset) for offset in (8, 24, 32)[: 3 if form.start - first > 40 else 2]]
            same = np.ones(len(rows), np.bool_)
            for number, place in enumerate(header):
                word = pages.words(place)
                if number == 0:  # sizes and kind; the version beside them moves
                    word = word & _LOW
                if number < 2:
                    same &= word == word[0]
            places = np.arange(form.count, dtype=np.uint64) * np.uint64(8 * form.width) + np.uint64(
                before + 8 * form.width - 16
            )
            table_of_keys = pages.words(keys[:, None] + places[None, :])
            same &= (table_of_keys == table_of_keys[0]).all(axis=1)
            order = dict(zip(self._texts(table_of_keys[0].tolist()), places.tolist(), strict=True))
            for name in names:
                if name in order:
                    at = keys[same] + np.uint64(order[name] + 8)
                    pointers[name][rows[same]] = self._see(rows[same], at, pages)
            found |= set(order).intersection(names)
            rows, keys = rows[~same], keys[~same]
        if len(rows):  # a form each: no class does that on purpose
            self._witness(rows, self.addresses[rows] + np.uint64(8), np.zeros(len(rows), np.uint64))
        return found

    # -- values

    def _integers(self, pointers: Words) -> tuple[NDArray[np.int64], Mask]:
        """(ints, which of them are some). Small ones are known by their address."""
        base = self.reader.small_ints
        known = np.zeros(len(pointers), np.bool_)
        numbers = np.zeros(len(pointers), np.int64)
        if base is not None:
            offset = pointers - np.uint64(base + 32 * _SMALLEST_INT)
            known = offset <= 32 * (_LARGEST_INT - _SMALLEST_INT)
            numbers = np.where(known, (offset >> np.uint64(5)).view(np.int64) + _SMALLEST_INT, 0)
        rest = np.flatnonzero(~known & _plausible(pointers))
        if len(rest):
            at = pointers[rest]
            pages = Pages(self.reader.memory, at, 32)
            types = pages.words(at + np.uint64(8))
            plain = [kind for kind in np.unique(types).tolist() if self._plain_int(kind)]
            sizes, digits = pages.words(at + np.uint64(16)), pages.words(at + np.uint64(24))
            value, fits = self._from_words(sizes, digits)
            good = np.isin(types, plain) & fits
            numbers[rest], known[rest] = np.where(good, value, 0), good
        return numbers, known

    def _plain_int(self, address: int) -> bool:
        try:
            kind = self.reader.type_at(address)
        except Unreadable:
            return False
        return kind.plain and kind.kind in ("int", "bool")

    def _from_words(self, sizes: Words, digits: Words) -> tuple[NDArray[np.int64], Mask]:
        """ints of up to two digits, and which are; objects.py says how they are laid out."""
        if self.reader.runtime.minor >= (3, 12):
            sign = 1 - (sizes & np.uint64(3)).view(np.int64)
            count = (sizes >> np.uint64(3)).view(np.int64)
        else:
            signed = sizes.view(np.int64)
            sign, count = np.sign(signed), np.abs(signed)
        low, high = (digits & _LOW).view(np.int64), (digits >> np.uint64(32)).view(np.int64)
        value = np.where(count > 0, low, 0) + (np.where(count > 1, high, 0) << 30)
        return sign * value, (count >= 0) & (count <= 2)

    def _values(self, columns: Sequence[Words]) -> list[NDArray[np.object_]]:
        """Python values of whole columns: what is the same object is read once."""
        if not columns:
            return []
        distinct, inverse = np.unique(np.concatenate(columns), return_inverse=True)
        values = np.full(len(distinct), None, object)
        good = _plausible(distinct)
        for number in np.flatnonzero(~good).tolist():
            address = int(distinct[number])
            values[number] = Unread("?", address, "unreadable" if address else "absent")
        chosen = np.flatnonzero(good)
        if len(chosen):
            self._decode(distinct[chosen], chosen, values)
        return np.split(values[inverse.reshape(-1)], len(columns))

    def _decode(self, addresses: Words, places: Rows, values: NDArray[np.object_]) -> None:
        pages = Pages(self.reader.memory, addresses, 8 * _HEAD_WORDS)
        at = pages.at(addresses)
        words = np.frombuffer(pages.raw, np.uint64)
        heads = words[(at >> 3)[:, None] + np.arange(5)] if len(words) else words.reshape(0, 5)
        kinds, which = np.unique(heads[:, 1], return_inverse=True)
        general: list[int] = []
        for number, address in enumerate(kinds.tolist()):
            mine = np.flatnonzero(which.reshape(-1) == number)
            try:
                kind = self.reader.type_at(address)
            except Unreadable:
                general += mine.tolist()
                continue
            if kind.plain and kind.kind == "none":
                continue
            if kind.plain and kind.kind in ("int", "bool"):
                ints, fits = self._from_words(heads[mine, 2], heads[mine, 3])
                values[places[mine]] = ints.astype(np.bool_) if kind.kind == "bool" else ints
                general += mine[~fits].tolist()
            elif kind.plain and kind.kind == "float":
                values[places[mine]] = heads[mine, 2].view(np.float64)
            elif kind.plain and kind.kind == "str":
                general += self._short_texts(mine, at, heads, pages.raw, places, values)
            elif kind.enum or kind.kind in ("int", "bool", "float", "str", "bytes"):
                general += mine.tolist()
            else:
                sizes = heads[mine, 3 if kind.kind == "set" else 2].tolist()
                for row, size in zip(mine.tolist(), sizes, strict=True):
                    length = size if kind.kind != "instance" and size < 1 << 40 else None
                    values[places[row]] = Unread(kind.name, int(addresses[row]), "depth", length)
        if general:
            rest = read_all(self.reader, addresses[general].tolist(), self._leaf_limits())
            for row, value in zip(general, rest, strict=True):
                values[places[row]] = value

    def _leaf_limits(self) -> Limits:
        limits = self.limits
        return Limits(depth=0, objects=limits.objects, bytes=limits.bytes, text=limits.text)

    def _short_texts(
        self,
        mine: Rows,
        at: NDArray[np.int64],
        heads: Words,
        raw: bytearray,
        places: Rows,
        values: NDArray[np.object_],
    ) -> list[int]:
        """Compact ASCII texts that end within the head that was read; gives the rows of the others."""
        state = heads[mine, 4] & np.uint64(0xFC)
        lengths = heads[mine, 2]
        start = self.reader.layout.ascii_text
        longest = 8 * _HEAD_WORDS - start
        if self.limits.text is not None:
            longest = min(longest, self.limits.text)
        easy = ((state & np.uint64(0x7C)) == 0x64) & (lengths <= longest)
        rows, begin = mine[easy], at[mine[easy]] + start
        texts: list[Value] = []
        for row, first, length in zip(rows.tolist(), begin.tolist(), lengths[easy].tolist(), strict=True):
            try:
                texts.append(raw[first : first + length].decode("ascii"))
            except UnicodeDecodeError:
                texts.append(Unread("str", int(row), "unreadable"))
        filled = np.empty(len(texts), object)
        filled[:] = texts
        values[places[rows]] = filled
        return [int(row) for row in mine[~easy]]


def _plausible(pointers: Words) -> Mask:
    found: Mask = (pointers & np.uint64(7) == 0) & (pointers >= 4096) & (pointers < 1 << 47)
    return found
