"""What the object reader gives back: plain Python values where it can, and a few of its own where it cannot."""

from collections import deque
from typing import Literal

from msgspec import Struct

Why = Literal["absent", "depth", "budget", "hidden", "changing", "unreadable", "cycle"]


class Unread(Struct, frozen=True, gc=False):
    """An object that was not read, and why.

    ``absent``: the attribute is not set; ``depth``: below the depth asked for; ``budget``: there were more than the
    limits allow; ``hidden``: text of users, not asked for; ``changing``: it changed each time it was read;
    ``unreadable``: no object stands there; ``cycle``: it is one of those that hold it. ``size``: its length, where it
    has one and that was seen.
    """

    type: str
    address: int
    why: Why
    size: int | None = None


class Member(Struct, frozen=True):
    """A member of an Enum."""

    type: str
    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.type}.{self.name}"


class Obj(Struct, frozen=True, eq=False):
    """An instance of a class: equal to nothing but itself.

    ``type``: as its class is called. ``value``: what it is besides, when its class descends from int, str, list, dict
    and the like. The fields of a namedtuple are attributes.
    """

    type: str
    address: int
    attributes: dict[str, "Value"]
    value: "Plain" = None


Plain = (
    None
    | bool
    | int
    | float
    | str
    | bytes
    | tuple["Value", ...]
    | list["Value"]
    | set["Value"]
    | frozenset["Value"]
    | dict["Value", "Value"]
    | deque["Value"]
)
Value = Plain | Obj | Member | Unread


class Limits(Struct, frozen=True):
    """How much one reading may take, whatever it finds.

    ``depth``: levels below the object. ``objects``, ``bytes``: in all. ``text``: longest str or bytes that is read;
    longer ones may be what users wrote, and are hidden with their length; None: all are read. ``hidden``: attributes
    that are not looked at, by name.
    """

    depth: int = 3
    objects: int = 50_000
    bytes: int = 64 << 20
    text: int | None = 200
    hidden: frozenset[str] = frozenset()


USUAL = Limits()
