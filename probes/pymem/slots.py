"""Reads some attributes of one long-lived object again and again: where their pointers stand is found once."""

from collections.abc import Iterable

from .memory import Unreadable
from .nodes import NodeReader
from .reader import Reader
from .values import Limits, Value

_TRIES = 50
_LEAF_BYTES = 24  # type, size or value, two digits: what a number up to 2**60 takes
_HEAD = 64


class Slots:
    """Of the object at ``address``, those of ``names`` that it has; ``missing`` are the others.

    An instance whose attributes are laid out anew (one was added) is looked at again. Unreadable when no instance is
    there.
    """

    def __init__(self, reader: Reader, address: int, names: Iterable[str]) -> None:
        self.reader = reader
        self.address = address
        self.names = tuple(names)
        self.missing: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._guard: list[tuple[int, bytes]] = []
        self._locate()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def pointers(self) -> dict[str, int]:
        """Address of the value of each attribute."""
        for _ in range(_TRIES):
            places = [(place, 8) for place in self._places.values()]
            guard = [(at, len(raw)) for at, raw in self._guard]
            raw, missing = self.reader.memory.read_many([*places, *guard])
            if not missing and raw[8 * len(places) :] == b"".join(raw for _, raw in self._guard):
                words = memoryview(raw)[: 8 * len(places)].cast("Q")
                return dict(zip(self._places, words, strict=True))
            self._locate()
        raise Unreadable(f"the object at {self.address:#x} changes each time it is read")

    def number(self, name: str) -> int:
        """An int: pointer, value and pointer are read in one go. Unreadable when it is none, or never stood still."""
        found = self.value(name)
        if not isinstance(found, int):
            raise Unreadable(f"{name} of the object at {self.address:#x} is no number")
        return found

    def value(self, name: str) -> Value:
        """A number, a bool or None."""
        place = self._places.get(name)
        if place is None:
            raise Unreadable(f"the object at {self.address:#x} has no attribute {name!r}")
        pointer = self.reader.word(place)
        guard = [(at, len(raw)) for at, raw in self._guard]
        expected = b"".join(raw for _, raw in self._guard)
        for _ in range(_TRIES):
            raw, missing = self.reader.memory.read_many([(place, 8), (pointer + 8, _LEAF_BYTES), (place, 8), *guard])
            after = int.from_bytes(raw[8 + _LEAF_BYTES : 16 + _LEAF_BYTES], "little")
            if raw[16 + _LEAF_BYTES :] != expected:
                self._locate()
                return self.value(name)
            if not missing and raw[:8] == raw[8 + _LEAF_BYTES : 16 + _LEAF_BYTES] and after == pointer:
                head = (bytes(8) + raw[8 : 8 + _LEAF_BYTES]).ljust(_HEAD, b"\0")
                node = NodeReader(self.reader, _ALONE).leaf(pointer, bytes(head))
                if not node.leaf or node.why or isinstance(node.value, list):
                    raise Unreadable(f"{name} of the object at {self.address:#x} is no plain value")
                return node.value
            pointer = after
        raise Unreadable(f"{name} of the object at {self.address:#x} changes each time it is read")

    def _locate(self) -> None:
        for _ in range(_TRIES):
            node = NodeReader(self.reader, Limits(depth=1)).read({self.address: 0})[self.address]
            if node.type is None or node.why not in (None, "depth"):
                continue
            self._places = {name: node.places[name] for name in self.names if name in node.places}
            self.missing = tuple(name for name in self.names if name not in node.places)
            self._guard = [*node.fixed, *node.shared]
            return
        raise Unreadable(f"no instance at {self.address:#x} of {self.reader.memory.name}")


_ALONE = Limits(depth=1)
