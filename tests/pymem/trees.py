"""Random object trees, and what they must be read as. ``target.py`` builds them in another interpreter."""

from collections import deque
from typing import Any

from hypothesis import strategies as st

from inferdbg.probes.pymem.values import Member, Obj, Unread

Tree = list[Any]
"""[kind, content…], as JSON carries it."""

ENUMS = {
    "Color": {"RED": 1, "GREEN": "green", "BLUE": 2.5},
    "Status": {"WAITING": 1, "RUNNING": 1000, "FINISHED": -7},
    "Reason": {"STOP": "stop", "LENGTH": "length"},
}
FIELDS = ("first", "second", "third")


def texts() -> st.SearchStrategy[Tree]:
    """As code points: half a surrogate pair cannot go through JSON otherwise."""
    plain = st.text(max_size=60) | st.text("ab01-_", max_size=300) | st.text(st.characters(max_codepoint=255))
    return (plain.map(lambda text: [ord(letter) for letter in text]) | st.just([0xD800, 65])).map(
        lambda it: ["str", it]
    )


def leaves() -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.just(["none", None]),
        st.booleans().map(lambda value: ["bool", value]),
        (st.integers(-10, 300) | st.integers() | st.integers(-(2**400), 2**400)).map(lambda it: ["int", str(it)]),
        st.floats().map(lambda value: ["float", value.hex()]),
        texts(),
        st.binary(max_size=100).map(lambda value: ["bytes", value.hex()]),
        st.sampled_from([["enum", kind, name] for kind, members in ENUMS.items() for name in members]),
    )


def keys() -> st.SearchStrategy[Tree]:
    """Hashable things."""
    colors = [["enum", "Color", name] for name in ENUMS["Color"]]
    numbers = st.integers(-(2**70), 2**70).map(lambda it: ["int", str(it)])
    ends = numbers | texts() | st.just(["none", None]) | st.sampled_from(colors)
    return st.recursive(
        ends,
        lambda deeper: (
            st.lists(deeper, max_size=3).map(lambda items: ["tuple", items])
            | st.lists(deeper, max_size=3).map(lambda items: ["frozenset", items])
        ),
        max_leaves=4,
    )


def names() -> st.SearchStrategy[str]:
    return st.text("abcdefgh_é", min_size=1, max_size=8).filter(str.isidentifier).map(lambda name: f"x{name}")


def trees(*, msgspec: bool) -> st.SearchStrategy[Tree]:
    return st.recursive(leaves(), lambda deeper: _branches(deeper, msgspec=msgspec), max_leaves=30)


def _branches(deeper: st.SearchStrategy[Tree], *, msgspec: bool) -> st.SearchStrategy[Tree]:
    several = st.lists(deeper, max_size=8)
    three = st.fixed_dictionaries(dict.fromkeys(FIELDS, deeper))
    some = st.dictionaries(st.sampled_from(FIELDS), deeper)
    free = st.dictionaries(names(), deeper, max_size=6)
    many = st.tuples(st.integers(25, 45), deeper).map(lambda it: {f"attribute_{n}": it[1] for n in range(it[0])})
    pairs = st.lists(st.tuples(keys(), deeper).map(list), max_size=8)
    treatments = st.sampled_from(["", "dict taken", "dict replaced", "attribute deleted"])
    fixed = ["Data", "SlotsData", "Named", *(["Struct"] if msgspec else [])]
    number = st.integers(-(2**80), 2**80).map(lambda it: ["int", str(it)])
    instances = [
        (fixed, three, st.just("")),
        (["Slots", "MoreSlots"], some, st.just("")),
        (["SlotsAndDict"], some | free, st.just("")),
        (["Plain", "Derived", "Failure"], free | many, treatments),
    ]
    lists = several.map(lambda it: ["list", it])
    based = [
        (["Int"], number, free),
        (["Str"], texts(), free),
        (["Float"], st.floats().map(lambda it: ["float", it.hex()]), free),
        (["Bytes"], st.binary().map(lambda it: ["bytes", it.hex()]), free),
        (["Dict"], pairs.map(lambda it: ["dict", it]), free),
        (["List", "Tuple", "Deque"], lists, free),
        (["SlotsList"], lists, some),
        (["Set"], st.lists(keys()).map(lambda it: ["list", it]), free),
    ]
    return st.one_of(
        _tree(["list", "tuple", "deque"], several),
        _tree(["set", "frozenset"], st.lists(keys(), max_size=8)),
        _tree(["dict", "OrderedDict"], pairs),
        _tree(["removed"], st.sampled_from(["dict", "set", "deque"]), several),
        *(_tree(["instance"], st.sampled_from(names), *rest) for names, *rest in instances),
        *(_tree(["based"], st.sampled_from(names), *rest) for names, *rest in based),
    )


def _tree(kinds: list[str], *content: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.tuples(st.sampled_from(kinds), *content).map(list)


def canonical(tree: Tree) -> object:
    """What a tree stands for, in a form that compares: NaN equals NaN, 1 is not True, order counts where it should."""
    kind = tree[0]
    if kind == "none":
        return None
    if kind == "bool":
        return ("bool", tree[1])
    if kind == "int":
        return ("int", int(tree[1]))
    if kind == "float":
        return ("float", repr(float.fromhex(tree[1])))
    if kind == "str":
        return ("str", "".join(map(chr, tree[1])))
    if kind == "bytes":
        return ("bytes", bytes.fromhex(tree[1]))
    if kind == "enum":
        return ("enum", tree[1], tree[2], plain(ENUMS[tree[1]][tree[2]]))
    if kind in ("list", "tuple", "deque"):
        return (kind, [canonical(item) for item in tree[1]])
    if kind in ("set", "frozenset"):
        return (kind, unordered([canonical(item) for item in tree[1]]))
    if kind == "dict":
        return ("dict", last_of_each([(canonical(key), canonical(value)) for key, value in tree[1]]))
    if kind == "OrderedDict":
        return ("object", "OrderedDict", {}, canonical(["dict", tree[1]]))
    if kind == "removed":
        return _removed(tree[1], tree[2])
    if kind == "based":
        base = canonical(tree[2])
        containers = {"Tuple": "tuple", "Deque": "deque", "Set": "set", "List": "list", "SlotsList": "list"}
        if tree[1] in containers:
            base = canonical([containers[tree[1]], tree[2][1]])
        return ("object", tree[1], attributes(tree[3]), base)
    _, name, given, treatment = tree
    found = attributes(given)
    if treatment == "dict taken":
        found["taken"] = ("int", 1)
    elif treatment == "dict replaced":
        found = {"replaced": ("int", 2)}
    base = ("tuple", [found[field] for field in FIELDS]) if name == "Named" else None
    return ("object", name, found, base)


def _removed(kind: str, items: list[Tree]) -> object:
    if kind == "dict":
        kept = [(("int", number), canonical(item)) for number, item in enumerate(items) if number % 2]
        return ("dict", last_of_each(kept))
    if kind == "deque":
        return ("deque", [canonical(item) for item in items])
    return ("set", unordered([("int", number) for number in range(len(items)) if number % 2]))


def attributes(given: dict[str, Tree]) -> dict[str, object]:
    return {name: canonical(value) for name, value in given.items()}


def unordered(items: list[object]) -> list[str]:
    return sorted({repr(item) for item in items})


def last_of_each(pairs: list[tuple[object, object]]) -> list[tuple[str, object]]:
    """As a dict keeps them: the place of the first, the value of the last."""
    found: dict[str, object] = {}
    for key, value in pairs:
        found[repr(key)] = value
    return list(found.items())


def plain(value: object) -> object:
    """The same form of what was read."""
    if value is None:
        return None
    if isinstance(value, float):
        return ("float", repr(value))
    if isinstance(value, bool | int | str | bytes):
        return (type(value).__name__, value)
    if isinstance(value, list | tuple | deque):
        return (type(value).__name__, [plain(item) for item in value])
    if isinstance(value, set | frozenset):
        return (type(value).__name__, unordered([plain(item) for item in value]))
    if isinstance(value, dict):
        return ("dict", last_of_each([(plain(key), plain(item)) for key, item in value.items()]))
    if isinstance(value, Member):
        return ("enum", value.type, value.name, plain(value.value))
    if isinstance(value, Obj):
        found = {name: plain(item) for name, item in value.attributes.items()}
        return ("object", value.type, found, plain(value.value))
    assert isinstance(value, Unread)
    return ("unread", value.type, value.why)
