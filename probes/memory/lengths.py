"""How long lists, arrays and tensors of one dimension are, without reading what they hold."""

from collections.abc import Sequence

from inferdbg.errors import InferdbgError

from ..pymem.reader import Reader

_SIZED = ("list", "tuple", "deque", "array")
_IMPL_WORDS = 40
_SHAPE_FROM = 3


def lengths(reader: Reader, addresses: Sequence[int]) -> list[int | None]:
    """None where that cannot be told."""
    known: dict[int, int | None] = {}
    for address in addresses:
        if address and address not in known:
            try:
                known[address] = _length(reader, address)
            except InferdbgError:
                reader.memory.check()
                known[address] = None
    return [known.get(address) for address in addresses]


def _length(reader: Reader, address: int) -> int | None:
    """Lists and the like have it at +16. A torch.Tensor has a pointer to its implementation
    there, or in older versions behind a word that says whether it is borrowed."""
    kind = reader.type_of(address)
    if kind.kind in _SIZED or kind.name.rpartition(".")[2] in _SIZED:
        return reader.word(address + 16)
    if kind.name.rpartition(".")[2] != "Tensor":
        return None
    first, second = reader.words(address + 16, 2)
    implementation = second if first < 2 else first
    return shape_in(reader.words(implementation, _IMPL_WORDS)) if implementation else None


def shape_in(words: Sequence[int]) -> int | None:
    """The only size of a tensor of one dimension and stride 1, from its c10::TensorImpl.

        … | dimensions = 1 | size 0 0 0 0 | stride 0 0 0 0 | offset | number of elements | …

    Where that stands differs between versions of torch; that the number of elements is said again behind it tells.
    None where nothing, or more than one place, looks like this.
    """
    found = {
        words[at + 1]
        for at in range(_SHAPE_FROM, len(words) - 12)
        if words[at] == 1 and words[at + 6] == 1 and words[at + 1] == words[at + 12] and words[at + 1] < 1 << 40
    }
    return found.pop() if len(found) == 1 else None
