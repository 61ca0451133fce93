"""The block columns as bytes of JSON: only the entries that changed, found by numpy at memory speed.

{"at": [12, 1, 1, 40], "to": [0, 0, 0, 2]}      entries 12, 13, 14 and 54 changed (positions as differences)
{"size": 2048, "at": …, "to": …}                the same, on top of a column of 2048 zero bytes
{"raw": "AAEC…"}                                the whole column, base64: where that is shorter
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from inferdbg.facts.sections.kvcache import COLUMN_TYPES, KVCache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DTYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "Q": "<u8", "i": "<i4", "q": "<i8"}
COLUMNS = frozenset(COLUMN_TYPES)


class ColumnChange(Struct, omit_defaults=True):
    at: list[int] = []
    to: list[int] = []
    size: int | None = None
    raw: bytes | None = None


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
    to = new[at]
    digits = len(str(int(to.max(initial=0))))
    if len(at) * (digits + 3) > len(after) * 4 // 3:
        return ColumnChange(raw=after)
    gaps = at[1:] - at[:-1]
    return ColumnChange([*at[:1].tolist(), *gaps.tolist()], to.tolist(), len(after) if fresh else None)


class Columns:
    """Columns that many changes can be applied to before anybody wants them as bytes."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.generic] | bytes | None] = dict.fromkeys(COLUMN_TYPES)

    def apply(self, changes: Mapping[str, ColumnChange | None]) -> None:
        """Columns with a name that is not known here are passed over."""
        import numpy as np

        for name, change in changes.items():
            if name not in self._arrays:
                continue
            if change is None or change.raw is not None:
                self._arrays[name] = None if change is None else change.raw
                continue
            dtype = _DTYPES[COLUMN_TYPES[name]]
            if change.size is not None:
                array: NDArray[np.generic] = np.zeros(change.size // int(dtype[2]), dtype)
            else:
                held = self._arrays[name]
                array = np.frombuffer(held or b"", dtype).copy() if not isinstance(held, np.ndarray) else held
            array[np.cumsum(np.asarray(change.at, np.int64))] = np.asarray(change.to, dtype)
            self._arrays[name] = array

    def values(self) -> dict[str, bytes | None]:
        return {
            name: held if held is None or isinstance(held, bytes) else held.tobytes()
            for name, held in self._arrays.items()
        }
