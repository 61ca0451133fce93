"""What a type object says of its instances: their kind, size, slots, and where their attributes are.

    type object:  +8 metatype │ +24 tp_name │ +32 tp_basicsize │ +40 tp_itemsize │ +168 tp_flags │ +264 tp_dict
                  +288 tp_dictoffset │ +344 tp_mro │ ht_cached_keys by version
    member_descriptor: +40 d_member ─► +0 name │ +8 type (u32) │ +16 offset in the instance

Builtins are known by the flags that CPython itself goes by (Include/object.h), or by name along the mro: vLLM's waiting
queue is a subclass of deque, its request status one of int.
"""

import struct
from typing import Literal, NamedTuple

from .memory import Unreadable

INT, LIST, TUPLE, BYTES, STR, DICT, TYPE = (1 << bit for bit in (24, 25, 26, 27, 28, 29, 31))
HEAP_TYPE = 1 << 9
MANAGED_DICT = 1 << 4
INLINE_VALUES = 1 << 2

Kind = Literal[
    "none", "bool", "int", "float", "str", "bytes", "tuple", "list", "dict", "set", "deque", "type", "instance"
]
_BY_FLAG: tuple[tuple[int, Kind], ...] = (
    (LIST, "list"),
    (TUPLE, "tuple"),
    (BYTES, "bytes"),
    (STR, "str"),
    (DICT, "dict"),
    (TYPE, "type"),
)
_BY_NAME: dict[str, Kind] = {
    "NoneType": "none",
    "bool": "bool",
    "float": "float",
    "set": "set",
    "frozenset": "set",
    "collections.deque": "deque",
}
_PLAIN = {*_BY_NAME, "int", "str", "bytes", "tuple", "list", "dict"}
_ENUMS = {"EnumMeta", "EnumType"}
_HEAD = 352
_OBJECT_MEMBERS = (6, 16)  # T_OBJECT, T_OBJECT_EX of structmember.h
MOST_BASES = 256
LONGEST_NAME = 512
LARGEST_INSTANCE = 1 << 20


class Head(NamedTuple):
    """The words of a type object that are believed, once its metatype was seen to be one."""

    meta: int
    name: int
    basicsize: int
    itemsize: int
    flags: int
    dict: int
    dictoffset: int
    mro: int


class Type(NamedTuple):
    """A class of the target. ``bases``: names along its mro, itself first. ``slots``: offset of each object slot.

    ``plain``: the builtin itself and not a subclass. ``fields``: names of a namedtuple's items.
    ``cached_keys``: address of the pointer to the keys that its instances share; 0 for static types.
    """

    address: int
    name: str
    kind: Kind
    plain: bool
    enum: bool
    bases: tuple[str, ...]
    basicsize: int
    itemsize: int
    flags: int
    dictoffset: int
    cached_keys: int
    slots: dict[str, int]
    fields: tuple[str, ...]
    anchor: bytes

    @property
    def frozen(self) -> bool:
        return "frozenset" in self.bases


def parse_head(raw: bytes) -> Head:
    """Of the first 352 bytes of a type object."""
    (meta,) = struct.unpack_from("<Q", raw, 8)
    name, basicsize, itemsize = struct.unpack_from("<Qqq", raw, 24)
    (flags,) = struct.unpack_from("<Q", raw, 168)
    (space,) = struct.unpack_from("<Q", raw, 264)
    (dictoffset,) = struct.unpack_from("<q", raw, 288)
    (mro,) = struct.unpack_from("<Q", raw, 344)
    if not (16 <= basicsize <= LARGEST_INSTANCE and 0 <= itemsize <= 1 << 16 and abs(dictoffset) <= LARGEST_INSTANCE):
        raise Unreadable("what should be a type has sizes that none has")
    return Head(meta, name, basicsize, itemsize, flags, space, dictoffset, mro)


def anchor(raw: bytes) -> bytes:
    """What stays the same while a type lives: metatype, name, sizes and mro."""
    return raw[8:16] + raw[24:48] + raw[344:352]


def kind_of(flags: int, bases: tuple[tuple[str, int], ...]) -> Kind:
    """``bases``: (name, flags) along the mro. Only static types can be builtins, or those whose name has a dot."""
    for flag, kind in _BY_FLAG:
        if flags & flag:
            return kind
    for name, base_flags in bases:
        if name in _BY_NAME and (not base_flags & HEAP_TYPE or "." in name):
            return _BY_NAME[name]
    return "int" if flags & INT else "instance"
