"""Reads whole object trees, level by level: each level is a few large reads, whatever the number of objects.

Nothing is locked, so everything is checked. Where children hang on an object (the items of a list, the values of an
instance) is read before them and again after them; what changed meanwhile is read anew, a few times, and then called
``changing``. So an int that was freed while it was read, whose memory holds another's number by then, is not believed.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .memory import Unreadable
from .nodes import Node, NodeReader
from .reader import Reader
from .typeinfo import Type
from .values import USUAL, Limits, Member, Obj, Plain, Unread, Value

_TRIES = 5
_DEEPEST = 64
_MOST_ITEMS = 1 << 20
_LEAF_BYTES = 56
_MOST_BYTES = 1 << 28


def read(reader: Reader, address: int, limits: Limits = USUAL) -> Value:
    """What stands at an address, down to ``limits.depth`` levels below it. Unreadable when no object is there."""
    (found,) = read_all(reader, [address], limits)
    if isinstance(found, Unread) and found.why == "unreadable":
        raise Unreadable(f"there is no object at {address:#x} of {reader.memory.name}")
    return found


def read_all(reader: Reader, addresses: Sequence[int], limits: Limits = USUAL) -> list[Value]:
    """The same for several objects in one go, which share the limits; what is no object is Unread."""
    walk = _Walk(reader, limits)
    walk.explore(addresses)
    return [walk.value(address, min(limits.depth, _DEEPEST), ()) for address in addresses]


class Contents(NamedTuple):
    """What one object holds, by address. ``attributes``: of an instance; ``items``: of a list and the like; ``keys``:
    those of a dict, read, in the order of ``items``."""

    type: Type
    attributes: dict[str, int]
    items: list[int] | None
    keys: list[Value] | None


def contents(reader: Reader, address: int) -> Contents:
    """Opens one object without what is below it. Unreadable when no object is there, or it keeps changing."""
    limits = Limits(depth=1, objects=_MOST_ITEMS, bytes=_MOST_BYTES)
    for _ in range(_TRIES):
        walk = _Walk(reader, limits)
        node = walk.nodes[address] = walk.source.read({address: 0})[address]
        if node.type is None or node.why not in (None, "depth", "hidden"):
            continue
        items, keys = node.items, None
        if node.pairs is not None:
            items = [value for _, value in node.pairs]
            names = [key for key, _ in node.pairs]
            walk.explore(names)
            keys = [walk.value(key, 1, ()) for key in names]
        if not walk.changed([address]):
            return Contents(node.type, dict(node.attributes), items, keys)
    raise Unreadable(f"the object at {address:#x} of {reader.memory.name} is {node.why or 'changing'}")


def read_attribute(reader: Reader, address: int, name: str, tries: int = 50) -> Value:
    """One number or text that hangs on an instance, with nothing around it: a counter that moves all the time.

    Pointer, value and pointer are read in one go. Unreadable when there is no such attribute, when it is no number or
    text, or when it changed in every try.
    """
    source = NodeReader(reader, Limits(depth=1))
    node = source.read({address: 0})[address]
    where, pointer = node.places.get(name), dict(node.attributes).get(name)
    if where is None or pointer is None:
        what = node.type.name if node.type is not None else "object"
        raise Unreadable(f"the {what} at {address:#x} has no attribute {name!r}")
    ranges = [(address + 8, 8), (where, 8)]
    owner = reader.memory.read(address + 8, 8)
    for _ in range(tries):
        found, missing = reader.memory.read_many([*ranges, (pointer + 8, _LEAF_BYTES), *ranges])
        before, leaf, after = found[:16], found[16:-16], found[-16:]
        if before == after and not missing and int.from_bytes(before[8:], "little") == pointer and before[:8] == owner:
            value = source.leaf(pointer, bytes(8) + leaf)
            if value.leaf and not value.why:
                assert not isinstance(value.value, list)
                return value.value
            raise Unreadable(f"{name} is a {value.type.name if value.type else 'thing'}, which is not read alone")
        pointer = int.from_bytes(after[8:], "little")
    raise Unreadable(f"{name} of the object at {address:#x} changes each time it is read")


_LEAVE_POINTERS = ("list", "deque")
"""What leaves a pointer where it was when its object goes: only the length and the ends, looked at last, tell."""


class _Check(NamedTuple):
    """Bytes that a node was read from. ``links``: they are the pointers to its children."""

    node: int
    at: int
    before: bytes
    links: bool = False


class _Walk:
    """One reading. ``nodes``: objects by address, each read at the level where it was met first."""

    def __init__(self, reader: Reader, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits
        self.source = NodeReader(reader, limits)
        self.nodes: dict[int, Node] = {}
        self.level_of: dict[int, int] = {}
        self.objects_left = limits.objects
        self.values_left = 4 * limits.objects

    # -- levels

    def explore(self, roots: Sequence[int]) -> None:
        fresh = self._descend(dict.fromkeys(roots, 0), set())
        for attempt in range(_TRIES):
            changed = self.changed(fresh)
            if not changed:
                return
            if attempt == _TRIES - 1:
                break
            self.objects_left, self.source.bytes_left = self.limits.objects, self.limits.bytes
            fresh = self._again(changed)
        for address, words in changed.items():
            node = self.nodes[address]
            if words is None:
                self.nodes[address] = Node(node.type, leaf=True, why=node.why or "changing", size=None)
            else:
                node.doubtful = words

    def _descend(self, wanted: dict[int, int], trusted: set[int]) -> list[int]:
        """Reads objects (address: level) and all below them but the ``trusted``, which grow by what it reads, and
        which it gives too. What was known before is not enough: its memory may be another object's now."""
        fresh: list[int] = []
        deepest = min(self.limits.depth, _DEEPEST)
        while wanted:
            if len(wanted) > self.objects_left:
                wanted = dict(list(wanted.items())[: self.objects_left])
            self.objects_left -= len(wanted)
            self.nodes.update(self.source.read(wanted))
            trusted.update(wanted)
            fresh += wanted
            following: dict[int, int] = {}
            for address, level in wanted.items():
                self.level_of[address] = min(level, self.level_of.get(address, level))
                for child in self.nodes[address].children(self.limits.hidden):
                    if child not in trusted or (self.nodes[child].why == "depth" and level + 1 < deepest):
                        following[child] = min(level + 1, following.get(child, level + 1))
            wanted = following
        return fresh

    def changed(self, addresses: Iterable[int]) -> dict[int, frozenset[int] | None]:
        """Which of them are not as they were read: None, or those of their pointers that lead elsewhere now.

        Memory is used again within microseconds, often by the same kind of object: that a pointer is the same as before
        does not tell that its object lived all the time. So each child is read between two looks at the pointers to it,
        neighbours in one read, which are done within a fraction of a microsecond.
        """
        checks: list[_Check] = []
        changed: dict[int, frozenset[int] | None] = {}
        sharing: dict[tuple[tuple[int, bytes], ...], list[int]] = {}
        walked = list(addresses)
        for address in walked:
            node = self.nodes[address]
            if node.why in ("unreadable", "changing"):
                changed[address] = None
            if node.shared:
                sharing.setdefault(node.shared, []).append(address)
            checks += [_Check(address, at, raw) for at, raw in node.fixed]
            checks += [_Check(address, at, raw, links=True) for at, raw in node.links]
        checks += self._edges(walked)
        for address in walked:
            node = self.nodes[address]
            if node.type is not None and node.type.kind in _LEAVE_POINTERS:
                checks += [_Check(address, at, raw) for at, raw in node.fixed]
        for shared, users in sharing.items():
            now, missing = self.reader.memory.read_many([(at, len(raw)) for at, raw in shared])
            if missing or now != b"".join(raw for _, raw in shared):
                changed.update(dict.fromkeys(users))
                self.source.shared_keys.clear()  # to be read anew
        if not checks:
            return changed
        now, missing = self.reader.memory.read_many([(check.at, len(check.before)) for check in checks])
        lost = set(missing)
        offset = 0
        for number, check in enumerate(checks):
            size = len(check.before)
            after = now[offset : offset + size]
            offset += size
            if after == check.before and number not in lost:
                continue
            if not check.links or number in lost:
                changed[check.node] = None
            elif (known := changed.get(check.node, frozenset())) is not None:
                olds, news = (struct.unpack_from(f"<{size // 8}Q", raw) for raw in (check.before, after))
                changed[check.node] = known | {old for old, new in zip(olds, news, strict=True) if old != new}
        return changed

    def _edges(self, addresses: Iterable[int]) -> Iterator[_Check]:
        """Pointers, child, pointers; for each child that is not there for good. However many hold it, it is read once:
        a large one that hangs at many places would be read for ever."""
        holding: dict[int, list[_Check]] = {}
        for address in addresses:
            node = self.nodes[address]
            wanted = set(node.children(self.limits.hidden))
            for start, raw in node.links:
                for number, pointer in enumerate(struct.unpack(f"<{len(raw) // 8}Q", raw)):
                    child = self.nodes.get(pointer) if pointer in wanted else None
                    if child is not None and (child.fixed or child.links):
                        link = _Check(address, start + 8 * number, raw[8 * number : 8 * number + 8], links=True)
                        holding.setdefault(pointer, []).append(link)
        for pointer, links in holding.items():
            child = self.nodes[pointer]
            yield from links
            yield from (_Check(pointer, at, before) for at, before in child.fixed)
            yield from (_Check(pointer, at, before, links=True) for at, before in child.links)
            yield from links

    def _again(self, doubtful: dict[int, frozenset[int] | None]) -> list[int]:
        """Reads what changed once more, and those of its children that may be others now; gives what is to be checked.

        What holds a number or text that changed has not the one that it had: it is read again too, with all that it
        holds of the kind. Containers that hang where they hung are kept: they were checked on their own.
        """
        hidden, known = self.limits.hidden, self.nodes.copy()
        changed = dict(doubtful)
        leaves = {address for address in doubtful if known[address].leaf}
        for address in self._holders(leaves):
            if changed.get(address, frozenset()) is not None:
                changed[address] = (changed.get(address) or frozenset()) | leaves
        levels = {address: self.level_of.get(address, 0) for address in changed}
        self.nodes.update(self.source.read(levels))
        trusted, below = set(changed), dict[int, int]()
        for address, words in changed.items():
            old = known[address]
            held = set() if words is None or old.why else set(old.children(hidden)) - words
            for child in self.nodes[address].children(hidden):
                if child in held and child in known and not known[child].leaf:
                    trusted.add(child)
                else:
                    below[child] = levels[address] + 1
        fresh = self._descend({child: level for child, level in below.items() if child not in trusted}, trusted)
        others = {at for at in fresh if at in known and not _same(known[at], self.nodes[at])}
        return list(dict.fromkeys([*changed, *fresh, *self._holders({*changed, *others})]))

    def _holders(self, children: set[int]) -> list[int]:
        if not children:
            return []
        hidden = self.limits.hidden
        return [at for at, node in self.nodes.items() if not children.isdisjoint(node.children(hidden))]

    # -- values

    def value(self, address: int, depth: int, above: tuple[int, ...]) -> Value:
        """Puts the tree together. ``above``: the objects that hold this one."""
        node = self.nodes.get(address)
        self.values_left -= 1
        if node is None:
            return Unread("?", address, "budget")
        kind = node.type
        name = kind.name if kind is not None else "?"
        if kind is None or node.why:
            return Unread(name, address, node.why or "unreadable", node.size)
        if node.leaf:
            return node.value
        if kind.enum:
            return self._member_value(kind, node, address)
        if address in above:
            return Unread(name, address, "cycle", node.size)
        if depth <= 0:
            return Unread(name, address, "depth", node.size)
        if len(node.items or ()) + 2 * len(node.pairs or ()) + len(node.attributes) > self.values_left:
            return Unread(name, address, "budget", node.size)
        above = (*above, address)

        def child(pointer: int) -> Value:
            if pointer in node.doubtful:
                known = self.nodes.get(pointer)
                return Unread(known.type.name if known and known.type else "?", pointer, "changing")
            return self.value(pointer, depth - 1, above)

        value: Plain = self._base_value(kind, node, child)
        if kind.plain:
            return value
        hidden = self.limits.hidden
        attributes = {
            name: Unread("?", pointer, "hidden") if name in hidden else child(pointer)
            for name, pointer in node.attributes
        }
        return Obj(kind.name, address, attributes, value)

    def _base_value(self, kind: Type, node: Node, child: Callable[[int], Value]) -> Plain:
        if node.pairs is not None:
            return {_hashable(child(key), key): child(value) for key, value in node.pairs}
        if node.items is None:
            return node.value if not isinstance(node.value, Member) else None
        if kind.kind == "set":
            members = [_hashable(child(item), item) for item in node.items]
            return frozenset(members) if kind.frozen else set(members)
        items = [child(item) for item in node.items]
        return tuple(items) if kind.kind == "tuple" else deque(items) if kind.kind == "deque" else items

    def _member_value(self, kind: Type, node: Node, address: int) -> Value:
        name_at, value_at = node.items or (0, 0)
        name = self.nodes.get(name_at)
        value = self.nodes.get(value_at)
        if name is None or not isinstance(name.value, str) or node.doubtful:
            return Unread(kind.name, address, "changing")
        if value is None or value.why or not value.leaf:
            known = value.type if value is not None else None
            return Member(kind.name, name.value, Unread(known.name if known else "?", value_at, "depth"))
        return Member(kind.name, name.value, value.value)


def _same(old: Node, new: Node) -> bool:
    """Whether a leaf still is what it was: then what else points at it need not be looked at again."""
    return old.leaf and new.leaf and old.type is new.type and old.why == new.why and old.value == new.value


def _hashable(value: Value, address: int) -> Value:
    """Keys of a dict are hashable where they stand; what is read of them may not be."""
    try:
        hash(value)
    except TypeError:
        return Unread(type(value).__name__, address, "changing")
    return value
