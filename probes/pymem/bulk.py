"""Reads many objects of one class as columns: a pool of 100,000 blocks is a few large reads and some arithmetic.

    addresses ─► pages, each read once ─► type pointers, places of the values ─► pointers of each column ─► values
                                                                                   │ read again at the end:
                                                                                   └ rows that differ are read anew

Objects of one kind stand close together, so whole pages are read and the objects cut out of them. This is the one part
that needs numpy; import it where it is used.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferdbg.errors import InferdbgError

from .memory import Unreadable
from .objects import read_all
from .pages import Mask, Pages, Words, distinct, distinct_and_places
from .reader import Reader, parse_keys
from .typeinfo import DICT, INLINE_VALUES, MANAGED_DICT, Type
from .values import USUAL, Limits, Member, Unread, Value

Rows = NDArray[np.intp]
Column = Literal["integer", "pointer", "value", "digest"]
"""``integer``: int64 arithmetic; ``pointer``: the address that stands there, 0 for none; ``value``: Python values;
``digest``: the first 8 bytes of bytes, 0 for None; of another object its address. Bytes do not change, and are not
looked at again: only that they still are what stands there."""

_SMALLEST_INT, _LARGEST_INT = -5, 256
_TRIES = 4
_CHUNK = 8192  # rows that are read, and read again, together
_MOST_FORMS = 64
_MOST_ITEMS = 1 << 24
_HEAD = 128  # of an object that is a value: a number, or a text that is not long
_LOW = np.uint64(0xFFFFFFFF)
_WORDS = ("pointer", "digest")
_FIRST = slice(0, 1)
_LEAF = (8, 16, 24)  # of a number or text: type, size, digits or value


class Table(NamedTuple):
    """Columns over rows. ``integers``, ``pointers`` (also digests), ``values``: by name, a row each.

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
    """Words that must be the same afterwards: those at ``offsets`` behind the addresses of ``pages``, a row each."""

    rows: Rows
    pages: Pages
    offsets: tuple[int, ...]


class _Leaves(NamedTuple):
    """Numbers and texts that must be the same afterwards: ``known`` of the objects on ``pages``, at ``places`` among
    all ``pointers``. ``users``: which pointer each row of each column holds, column by column."""

    pages: Pages
    known: Mask
    places: Rows
    pointers: int
    users: NDArray[np.intp]


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


def items_of_many(reader: Reader, addresses: Sequence[int], *, again: bool = True) -> tuple[Words, list[int]]:
    """The items of many lists, one behind the other, and how many each has; in three reads, or two without ``again``
    (see ``table``). Unreadable when one of them is no list, or keeps changing."""
    heads_at = [(address + 8, 32) for address in addresses]
    for _ in range(_TRIES):
        heads, missing = reader.memory.read_many(heads_at)
        words = np.frombuffer(heads, np.uint64).reshape(-1, 4)
        if missing or not all(reader.type_at(kind).kind == "list" for kind in set(words[:, 0].tolist())):
            raise Unreadable("what should be a list is none")
        _, counts, starts, room = words.T
        if (counts > np.minimum(room, _MOST_ITEMS)).any():
            continue
        sizes = counts.tolist()
        ranges = [(start, 8 * size) for start, size in zip(starts.tolist(), sizes, strict=True) if size]
        raw, missing = reader.memory.read_many([*ranges, *heads_at] if again else ranges)
        held = 8 * sum(sizes)
        if not missing and (not again or raw[held:] == heads):
            return np.frombuffer(raw, np.uint64, held >> 3), sizes
    raise Unreadable("these lists change each time they are read")


def table(
    reader: Reader,
    addresses: Words | Sequence[int],
    columns: Mapping[str, Column],
    limits: Limits = USUAL,
    *,
    again: bool = True,
) -> Table:
    """Attributes of objects of one class, that of the first. InferdbgError when it has no such attributes.

    ``again``: reads all once more and tries rows anew that differ. Without, in half the time, what changes meanwhile
    may be torn and in no row: for readings that are thrown away unless reading.take calls them consistent.
    """
    wanted = np.asarray(addresses, dtype=np.uint64)
    kind = reader.type_of(int(wanted[0])) if len(wanted) else None
    found = Table(
        type=kind.name if kind is not None else "",
        addresses=wanted,
        integers={name: np.zeros(len(wanted), np.int64) for name, what in columns.items() if what == "integer"},
        known={name: np.zeros(len(wanted), np.bool_) for name, what in columns.items() if what == "integer"},
        pointers={name: np.zeros(len(wanted), np.uint64) for name, what in columns.items() if what in _WORDS},
        values={},
        changing=np.zeros(len(wanted), np.bool_),
        foreign=np.zeros(len(wanted), np.bool_),
    )
    objects = {name: np.full(len(wanted), None, object) for name, what in columns.items() if what == "value"}
    odd = ~_plausible(wanted)
    found.foreign[odd] = True
    for start in range(0, len(wanted) if kind is not None else 0, _CHUNK):
        rows: Rows = np.arange(start, min(start + _CHUNK, len(wanted)))
        rows = rows[~odd[rows]]
        for _ in range(_TRIES):
            if len(rows) and kind is not None:
                rows = _Reading(reader, kind, wanted, limits, again).fill(found, objects, rows, columns)
                reader.buffers.take_back()
        found.changing[rows] = True
    found.values.update({name: column.tolist() for name, column in objects.items()})
    return found


class _Reading:
    """One try at some of the rows."""

    def __init__(self, reader: Reader, kind: Type, addresses: Words, limits: Limits, again: bool) -> None:
        self.reader = reader
        self.again = again
        self.kind = kind
        self.addresses = addresses
        self.limits = limits
        self.witnesses: list[_Witness] = []
        self.leaves: list[_Leaves] = []

    def _pages(self, addresses: Words, size: int, before: int = 0) -> Pages:
        return Pages(self.reader.memory, self.reader.buffers, addresses, size, before)

    def fill(
        self, found: Table, objects: dict[str, NDArray[np.object_]], rows: Rows, columns: Mapping[str, Column]
    ) -> Rows:
        """Fills in the rows; gives those that changed meanwhile."""
        size, before = self.kind.basicsize + 8, 32 if self.kind.flags & MANAGED_DICT else 0
        pages = self._pages(self.addresses[_span(rows)], size, before)
        mine = pages.words(8) == self.kind.address
        found.foreign[_span(rows)] = ~mine
        if not mine.all():
            rows, pages = rows[mine], pages.only(mine)
        if not len(rows):
            return rows
        slots = {name: self.kind.slots[name] for name in columns if name in self.kind.slots}
        pointers = {name: pages.words(offset) for name, offset in slots.items()}
        self.witnesses.append(_Witness(np.arange(len(rows)), pages, (8, *slots.values())))
        attributes = [name for name in columns if name not in slots]
        if attributes:
            pointers.update((name, np.zeros(len(rows), np.uint64)) for name in attributes)
            self._attributes(rows, pages, attributes, pointers)
        decoded = iter(self._values([pointers[name] for name, what in columns.items() if what == "value"]))
        span = _span(rows)
        for name, what in columns.items():
            if what == "pointer":
                found.pointers[name][span] = pointers[name]
            elif what == "digest":
                found.pointers[name][span] = self._digests(pointers[name])
            elif what == "integer":
                found.integers[name][span], found.known[name][span] = self._integers(pointers[name])
            else:
                objects[name][span] = next(decoded)
        return rows[self._changed(len(rows))] if self.again else rows[:0]

    def _changed(self, count: int) -> Mask:
        changed = np.zeros(count, np.bool_)
        for witness in self.witnesses:
            if witness.pages.read_again():
                for offset in witness.offsets:
                    changed[witness.rows[witness.pages.differ(offset)]] = True
        for leaves in self.leaves:
            if leaves.pages.read_again():
                differ = np.zeros(leaves.pointers, np.bool_)
                for offset in _LEAF:
                    differ[leaves.places] |= leaves.pages.differ(offset) & leaves.known
                changed |= differ[leaves.users].reshape(-1, count).any(axis=0)
        return changed

    # -- where the attributes of an instance stand: objects.py draws it. Rows are numbered from here on.

    def _attributes(self, rows: Rows, pages: Pages, names: Sequence[str], pointers: dict[str, Words]) -> None:
        kind, layout, minor = self.kind, self.reader.layout, self.reader.runtime.minor
        values = dicts = np.zeros(len(rows), np.uint64)
        places: tuple[int, ...] = ()
        if kind.flags & MANAGED_DICT:
            dicts = pages.words(-24)
            places = (-24,)
            if layout.inline_values and kind.flags & INLINE_VALUES:
                valid = (pages.words(kind.basicsize) >> np.uint64(24) & np.uint64(255)) != 0
                values = np.where(valid, self.addresses[rows] + np.uint64(kind.basicsize), np.uint64(0))
            elif minor == (3, 11):
                values = pages.words(-32)
                places = (-24, -32)
            elif minor == (3, 12):
                values = np.where(dicts & np.uint64(1), dicts + np.uint64(1), np.uint64(0))
        elif kind.dictoffset > 0:
            dicts = pages.words(kind.dictoffset)
            places = (kind.dictoffset,)
        self.witnesses.append(_Witness(np.arange(len(rows)), pages, places))
        missing = set(names)
        split = np.flatnonzero(values)
        if len(split):
            missing -= self._split(split, values[split], self.reader.word(kind.cached_keys), names, pointers)
        whole = np.flatnonzero((values == 0) & (dicts != 0))
        if len(whole):
            missing -= self._dicts(whole, dicts[whole], names, pointers)
        if missing:
            raise InferdbgError(f"{kind.name} has no attribute {', '.join(sorted(missing))}")

    def _split(
        self, rows: Rows, values: Words, keys: int, names: Sequence[str], pointers: dict[str, Words]
    ) -> set[str]:
        """Values in an array of their own, in the order of the keys."""
        table = self.reader.keys_table(keys, 1 << 16)
        words = np.array(self.reader.words(table.start, table.width * table.count), np.uint64)
        start = self.reader.layout.values
        order = {
            name: start + 8 * number for number, name in enumerate(self._texts(words[table.width - 2 :: table.width]))
        }
        found = [order[name] for name in names if name in order]
        if not found:
            return set()
        return self._columns(rows, self._pages(values, max(found) + 8), order, names, pointers)

    def _columns(
        self, rows: Rows, pages: Pages, order: Mapping[str, int], names: Sequence[str], pointers: dict[str, Words]
    ) -> set[str]:
        """Takes each name's pointer, ``order[name]`` bytes behind the row's start."""
        found = [name for name in names if name in order]
        offsets = tuple(order[name] for name in found)
        span = _span(rows)
        for name, column in zip(found, pages.rows(offsets).T, strict=True):
            pointers[name][span] = column
        self.witnesses.append(_Witness(rows, pages, offsets))
        return set(found)

    def _texts(self, addresses: Words) -> list[str]:
        """Names: short strings, the same at each reading while they stand at the same addresses."""
        known = self.reader.names.get(key := addresses.tobytes())
        if known is None:
            found = np.full(len(addresses), "", object)
            chosen = np.flatnonzero(_plausible(addresses))
            self._decode(addresses[chosen], chosen, found)
            known = self.reader.names[key] = [name if isinstance(name, str) else "" for name in found.tolist()]
        return known

    def _dicts(self, rows: Rows, dicts: Words, names: Sequence[str], pointers: dict[str, Words]) -> set[str]:
        """Each row has a dict: split ones as above, others by the form of their tables, which few differ in."""
        found: set[str] = set()
        pages = self._pages(dicts, 48)
        for kind in distinct(pages.words(8)).tolist():
            if not self.reader.type_at(kind).flags & DICT:
                raise Unreadable(f"the attributes of a {self.kind.name} are in no dict")
        keys, values = pages.words(32), pages.words(40)
        self.witnesses.append(_Witness(rows, pages, (8, 32, 40)))
        for address in distinct(keys[values != 0])[:_MOST_FORMS].tolist():
            chosen = (values != 0) & (keys == address)
            found |= self._split(rows[chosen], values[chosen], address, names, pointers)
        whole = values == 0
        return found | self._combined(rows[whole], keys[whole], names, pointers)

    def _combined(self, rows: Rows, keys: Words, names: Sequence[str], pointers: dict[str, Words]) -> set[str]:
        found: set[str] = set()
        pages, reach = None, 0
        for _ in range(_MOST_FORMS):
            if not len(rows):
                break
            first = int(keys[0])
            form = parse_keys(first, self.reader.memory.read(first, 40), self.reader.runtime.minor, 1 << 16)
            before = form.start - first
            if pages is None or before + form.size > reach:
                reach = before + form.size
                pages = self._pages(keys, reach)
            # The first word has sizes and kind in its first three bytes; then there is one that nobody sets, or a lock.
            header = pages.rows((8, 24)) & np.array([0xFFFFFF, -1], np.int64).view(np.uint64)
            offsets = before + 8 * form.width * np.arange(form.count) + 8 * form.width - 16
            texts = self._texts(pages.only(_FIRST).rows(offsets)[0])
            order = dict(zip(texts, (offsets + 8).tolist(), strict=True))
            if order.keys() >= set(names):  # where these stand tells enough
                offsets = np.array([order[name] for name in names]) - 8
            names_at = pages.rows(offsets)
            alike, named_alike = header == header[0], names_at == names_at[0]
            if alike.all() and named_alike.all():
                return found | self._columns(rows, pages, order, names, pointers)
            same = alike.all(axis=1) & named_alike.all(axis=1)
            found |= self._columns(rows[same], pages.only(same), order, names, pointers)
            rows, keys, pages = rows[~same], keys[~same], pages.only(~same)
        return found

    # -- values

    def _integers(self, pointers: Words) -> tuple[NDArray[np.int64], Mask]:
        """(ints, which of them are some). Small ones are known by their address."""
        base = self.reader.small_ints
        known = np.zeros(len(pointers), np.bool_)
        numbers = np.zeros(len(pointers), np.int64)
        if base is None:
            known, numbers = self._small_ints(pointers)
        else:
            offset = pointers - np.uint64(base + 32 * _SMALLEST_INT)
            known = offset <= 32 * (_LARGEST_INT - _SMALLEST_INT)
            numbers = np.where(known, (offset >> np.uint64(5)).view(np.int64) + _SMALLEST_INT, 0)
        rest = np.flatnonzero(~known & _plausible(pointers))
        if len(rest):
            at = pointers[rest]
            pages = self._pages(at, 32)
            types = pages.words(8)
            plain = [kind for kind in distinct(types).tolist() if self._plain_kind(kind, "int", "bool")]
            value, fits = self._from_words(pages.words(16), pages.words(24))
            good = _is_any(types, plain) & fits
            self.witnesses.append(_Witness(rest, pages, _LEAF))
            numbers[rest], known[rest] = np.where(good, value, 0), good
        return numbers, known

    def _digests(self, pointers: Words) -> Words:
        """bytes: +16 size, +24 hash, +32 the bytes."""
        found = pointers.copy()
        rest = np.flatnonzero(_plausible(pointers))
        if len(rest):
            pages = self._pages(pointers[rest], 40)
            types = pages.words(8)
            kinds = distinct(types).tolist()
            texts = [kind for kind in kinds if self._plain_kind(kind, "bytes")]
            nothing = [kind for kind in kinds if self._plain_kind(kind, "none")]
            good = _is_any(types, texts) & (pages.words(16) >= 8)
            found[rest] = np.where(good, pages.words(32), np.where(_is_any(types, nothing), 0, found[rest]))
        return found

    def _small_ints(self, pointers: Words) -> tuple[Mask, NDArray[np.int64]]:
        """3.10 keeps them wherever there was room, and a table of them."""
        table = np.array(self.reader.small_int_table, np.uint64)
        order = np.argsort(table)
        at = np.minimum(np.searchsorted(table, pointers, sorter=order), len(table) - 1)
        known: Mask = table[order[at]] == pointers
        return known, np.where(known, order[at] + _SMALLEST_INT, 0)

    def _plain_kind(self, address: int, *kinds: str) -> bool:
        try:
            kind = self.reader.type_at(address)
        except Unreadable:
            return False
        return kind.plain and kind.kind in kinds

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

    def _values(self, columns: Sequence[Words]) -> Iterable[NDArray[np.object_]]:
        """Python values of whole columns: what is the same object is read once."""
        if not columns:
            return ()
        pointers, users = distinct_and_places(np.concatenate(columns))
        values = np.full(len(pointers), None, object)
        good = _plausible(pointers)
        for number in np.flatnonzero(~good).tolist():
            address = int(pointers[number])
            values[number] = Unread("?", address, "unreadable" if address else "absent")
        chosen = np.flatnonzero(good)
        if len(chosen):
            pages, leaf = self._decode(pointers[chosen], chosen, values)
            self.leaves.append(_Leaves(pages, leaf, chosen, len(pointers), users))
        found: NDArray[np.object_] = values[users].reshape(len(columns), -1)
        return found

    def _decode(self, addresses: Words, places: Rows, values: NDArray[np.object_]) -> tuple[Pages, Mask]:
        """Fills in the values; gives what they were read from, and which are leaves."""
        pages = self._pages(addresses, _HEAD)
        types, first, second, third = pages.rows((8, 16, 24, 32)).T.copy()
        general: list[int] = []
        leaf = np.zeros(len(addresses), np.bool_)
        for address in distinct(types).tolist():
            mine = np.flatnonzero(types == address)
            try:
                kind = self.reader.type_at(address)
            except Unreadable:
                general += mine.tolist()
                continue
            leaf[mine] = kind.kind in ("int", "float", "str", "bytes") and not kind.enum
            if kind.plain and kind.kind == "none":
                continue
            if kind.plain and kind.kind in ("int", "bool"):
                ints, fits = self._from_words(first[mine], second[mine])
                values[places[mine]] = ints.astype(np.bool_) if kind.kind == "bool" else ints
                general += mine[~fits].tolist()
            elif kind.plain and kind.kind == "float":
                values[places[mine]] = first[mine].view(np.float64)
            elif kind.plain and kind.kind == "str":
                general += self._short_texts(mine, first[mine], third[mine], pages, places, values)
            elif kind.enum:
                for row in mine.tolist():
                    values[places[row]] = self._member(kind, int(addresses[row]))
            elif kind.kind in ("int", "bool", "float", "str", "bytes"):
                general += mine.tolist()
            else:
                sizes = (second if kind.kind == "set" else first)[mine].tolist()
                counted = kind.kind != "instance"
                values[places[mine]] = _objects(
                    [
                        Unread(kind.name, where, "depth", size if counted and size < 1 << 40 else None)
                        for where, size in zip(addresses[mine].tolist(), sizes, strict=True)
                    ]
                )
        if general:
            rest = read_all(self.reader, addresses[general].tolist(), self._leaf_limits())
            for row, value in zip(general, rest, strict=True):
                values[places[row]] = value
        return pages, leaf

    def _member(self, kind: Type, address: int) -> Value:
        """Members of an Enum live as long as their class."""
        known = self.reader.members.get(address)
        if known is None or known.type != kind.name:
            (found,) = read_all(self.reader, [address], self._leaf_limits())
            if not isinstance(found, Member):
                return found
            known = self.reader.members[address] = found
        return known

    def _leaf_limits(self) -> Limits:
        limits = self.limits
        return Limits(depth=0, objects=limits.objects, bytes=limits.bytes, text=limits.text)

    def _short_texts(
        self, mine: Rows, lengths: Words, states: Words, pages: Pages, places: Rows, values: NDArray[np.object_]
    ) -> list[int]:
        """Compact ASCII texts that end within the head that was read; gives the rows of the others."""
        start = self.reader.layout.ascii_text
        longest = _HEAD - start
        if self.limits.text is not None:
            longest = min(longest, self.limits.text)
        easy = ((states & np.uint64(0x7C)) == 0x64) & (lengths <= longest) & pages.whole
        sizes = lengths[easy].tolist()
        words = pages.only(mine[easy]).rows(range(start, start + max(sizes, default=0), 8))
        together, width = words.tobytes().decode("latin-1"), 8 * words.shape[1]
        found = [together[at : at + size] for at, size in zip(count(0, width), sizes)]
        if not all(map(str.isascii, found)):
            easy[:] = False
            found = []
        values[places[mine[easy]]] = _objects(found)
        rest: list[int] = mine[~easy].tolist()
        return rest


def _span(rows: Rows) -> slice | Rows:
    """The same rows, as a slice where they are neighbours: in a tenth of the time."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _is_any(words: Words, few: Sequence[int]) -> Mask:
    """np.isin for a handful of values, which takes ten times as long."""
    found = np.zeros(len(words), np.bool_)
    for value in few:
        found |= words == value
    return found


def _objects(found: Sequence[Value]) -> NDArray[np.object_]:
    """An array of just these, whatever they are."""
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _plausible(pointers: Words) -> Mask:
    found: Mask = (pointers & np.uint64(7) == 0) & (pointers >= 4096) & (pointers < 1 << 47)
    return found
