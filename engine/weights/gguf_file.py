"""What a GGUF file says of itself: metadata and table of tensors, read without trusting any length in it.

    magic "GGUF" | version u32 | tensors u64 | pairs u64 | pairs: key, type u32, value | tensor infos | padding | data
    string: length u64, bytes     array: type u32, length u64, items     info: name, dims u32, dim u64 each, kind u32,
                                                                               offset u64 from the start of data

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The reader in the package ``gguf`` makes an array of
each of the 100,000 strings of a vocabulary (2.3 s for SmolLM2; this one 0.1 s) and follows damaged lengths without
end. The package is used for what it does well: the formats of quantised weights.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import gguf
import numpy
import numpy.typing

from ..errors import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_AGAIN = "the file is damaged: fetch it again, and compare its size"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """``shape``: slowest dimension first, as in torch. ``start``, ``size``: bytes in the file."""

    name: str
    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    start: int
    size: int


class GgufFile:
    """``metadata``: values by key, arrays as lists. ``tensors``: by name. The file stays mapped while this lives."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError when the file is missing, no GGUF, damaged, truncated or of an unknown version or kind."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ModelError(f"{path} does not exist", "give a GGUF file or a Hugging Face folder") from error
        except ValueError as error:
            raise ModelError(f"{path} is empty", _AGAIN) from error
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        self._at = 0
        if self._bytes[:4] != b"GGUF":
            raise ModelError(f"{path} is no GGUF file: it begins with {self._bytes[:4]!r}", _AGAIN)
        try:
            self._parse()
        except (struct.error, UnicodeDecodeError) as error:
            raise ModelError(f"{path} is damaged or truncated at byte {self._at:,} of its header", _AGAIN) from error

    def data(self, tensor: TensorInfo) -> numpy.typing.NDArray[numpy.uint8]:
        """The raw bytes of a tensor [rows, bytes a row], a view of the file."""
        flat = numpy.frombuffer(self._bytes, numpy.uint8, tensor.size, tensor.start)
        return flat.reshape(prod(tensor.shape[:-1]), -1)

    def _parse(self) -> None:
        self._at = 4
        version = self._number(_U32)
        if version not in (2, 3):
            raise ModelError(f"{self.path} is of GGUF version {version}", "versions 2 and 3 (little endian) are read")
        tensors, pairs = self._number(_U64), self._number(_U64)
        self.metadata: dict[str, object] = {}
        for _ in range(self._count(pairs, 12)):
            key = self._string()
            self.metadata[key] = self._value(self._number(_U32))
        infos = [self._tensor_header() for _ in range(self._count(tensors, 24))]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ModelError(f"{self.path}: alignment {alignment!r} is no power of two", _AGAIN)
        start_of_data = -(-self._at // alignment) * alignment
        self.tensors = {name: self._info(name, shape, kind, start_of_data + at) for name, shape, kind, at in infos}

    def _tensor_header(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._number(_U32)
        shape = tuple(self._number(_U64) for _ in range(self._count(dimensions, 8)))
        return name, shape[::-1], self._number(_U32), self._number(_U64)

    def _info(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> TensorInfo:
        try:
            quantisation = gguf.GGMLQuantizationType(kind)
        except ValueError as error:
            raise ModelError(
                f"{self.path}: {name} is quantised in an unknown way (kind {kind})", "a newer gguf may know it"
            ) from error
        items_a_block, bytes_a_block = gguf.GGML_QUANT_SIZES[quantisation]
        if not shape or prod(shape) == 0 or shape[-1] % items_a_block:
            raise ModelError(f"{self.path}: {name} has the impossible shape {list(shape)}", _AGAIN)
        size = prod(shape) // items_a_block * bytes_a_block
        if start + size > len(self._bytes):
            raise ModelError(
                f"{self.path} is truncated: {name} ends at byte {start + size:,}, the file at {len(self._bytes):,}",
                _AGAIN,
            )
        return TensorInfo(name, shape, quantisation, start, size)

    def _number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._bytes, self._at)
        self._at += layout.size
        assert isinstance(value, int)
        return value

    def _count(self, count: int, least_bytes: int) -> int:
        """``count``, once the rest of the file could hold that many things of ``least_bytes`` each."""
        if count * least_bytes > len(self._bytes) - self._at:
            raise ModelError(f"{self.path} is damaged: {count:,} entries at byte {self._at:,} do not fit", _AGAIN)
        return count

    def _string(self) -> str:
        length = self._count(self._number(_U64), 1)
        self._at += length
        return self._bytes[self._at - length : self._at].decode("utf-8")

    def _value(self, kind: int) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item, length = self._number(_U32), self._number(_U64)
            if item in _SCALARS:
                return self._scalars(_SCALARS[item], length)
            if item != _STRING:  # arrays of arrays are allowed, but no Llama has them
                raise ModelError(f"{self.path} is damaged: array of type {item} at byte {self._at:,}", _AGAIN)
            return [self._string() for _ in range(self._count(length, 8))]
        if kind not in _SCALARS:
            raise ModelError(f"{self.path} is damaged: value of unknown type {kind} at byte {self._at:,}", _AGAIN)
        return self._scalars(_SCALARS[kind], 1)[0]

    def _scalars(self, code: str, length: int) -> list[object]:
        size = self._count(length, struct.calcsize(code)) * struct.calcsize(code)
        values = list(struct.unpack_from(f"<{length}{code}", self._bytes, self._at))
        self._at += size
        return values
