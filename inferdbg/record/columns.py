"""The block columns as bytes of JSON: only the entries that changed, found by numpy at memory speed.

{"at": "DAEBKA==", "to": "AAAAAg=="}       u8 12, 1, 1, 40: entries 12, 13, 14 and 54 changed; to these, in the column's
                                           own type; little-endian, in base64
{"wide": 2, "at": …, "to": …}              positions as u16 (u32: 4), where a difference takes that many bytes
{"size": 2048, "at": …, "to": …}           the same, on top of a column of 2048 zero bytes
{"raw": "AAEC…"}                           the whole column: where that is shorter

In recordings of version 1 ``at`` and ``to`` are lists of numbers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import DecodeError, Struct

from inferdbg.facts.sections.kvcache import COLUMN_TYPES, KVCache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DTYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "Q": "<u8", "i": "<i4", "q": "<i8"}
COLUMNS = frozenset(COLUMN_TYPES)


class ColumnChange(Struct, omit_defaults=True):
    at: bytes | list[int] = b""
    to: bytes | list[int] = b""
    wide: Literal[1, 2, 4] = 1
    size: int | None = None
    raw: bytes | None = None

    def positions(self) -> "NDArray[np.integer[Any]]":
        return _numbers(self.at, f"<u{self.wide}").cumsum(dtype="<i8")

    def values(self, dtype: str) -> "NDArray[np.integer[Any]]":
        return _numbers(self.to, dtype)


def _numbers(told: bytes | list[int], dtype: str) -> "NDArray[np.integer[Any]]":
    import numpy as np

    return np.frombuffer(told, dtype) if isinstance(told, bytes) else np.asarray(told, "<i8")


def columns_of(kvcache: KVCache | None) -> dict[str, bytes | None]:
    return {name: None if kvcache is None else getattr(kvcache, name) for name in COLUMN_TYPES}


def column_changes(old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]) -> dict[str, ColumnChange | None]:
    """Names of the columns that differ, each with its change (None: no longer known)."""
    found: dict[str, ColumnChange | None] = {}
    for name, after in new.items():
        before = old[name]
        if after is before:
            continue
        change = None if after is None else _change(before, after, _DTYPES[COLUMN_TYPES[name]])
        if after is None or change is not None:
            found[name] = change
    return found


def _change(before: bytes | None, after: bytes, dtype: str) -> ColumnChange | None:
    """None when they are equal: comparing first whether they are would read both twice."""
    import numpy as np

    width = int(dtype[2])
    if not after or len(after) % width:
        return None if after == before else ColumnChange(raw=after)
    new = np.frombuffer(after, dtype)
    fresh = before is None or len(before) != len(after)
    at = np.flatnonzero(new if fresh or before is None else new != np.frombuffer(before, dtype))
    if not fresh and not len(at):
        return None
    gaps = at.copy()
    gaps[1:] -= at[:-1]
    largest = int(gaps.max()) if len(at) else 0
    wide: Literal[1, 2, 4] = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
    if len(at) * (wide + width) > len(after):
        return ColumnChange(raw=after)
    return ColumnChange(gaps.astype(f"<u{wide}").tobytes(), new[at].tobytes(), wide, len(after) if fresh else None)


class Columns:
    """Columns that many changes can be applied to before anybody wants them as bytes."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.generic] | bytes | None] = dict.fromkeys(COLUMN_TYPES)

    def apply(self, changes: Mapping[str, ColumnChange | None]) -> None:
        """Columns with a name that is not known here are passed over. DecodeError for a change that fits none."""
        for name, change in changes.items():
            if name not in self._arrays:
                continue
            if change is None or change.raw is not None:
                self._arrays[name] = None if change is None else change.raw
                continue
            try:
                self._arrays[name] = self._changed(name, change, _DTYPES[COLUMN_TYPES[name]])
            except (ValueError, IndexError, OverflowError, MemoryError) as error:
                raise DecodeError(f"a change of the column {name} makes no sense: {error}") from error

    def _changed(self, name: str, change: ColumnChange, dtype: str) -> "NDArray[np.generic]":
        import numpy as np

        held = self._arrays[name]
        if change.size is not None:
            held = np.zeros(change.size // int(dtype[2]), dtype)
        elif not isinstance(held, np.ndarray):
            held = np.frombuffer(held or b"", dtype).copy()
        held[change.positions()] = change.values(dtype)
        return held

    def values(self) -> dict[str, bytes | None]:
        return {
            name: held if held is None or isinstance(held, bytes) else held.tobytes()
            for name, held in self._arrays.items()
        }
