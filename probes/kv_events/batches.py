"""What one KV-event message says: msgpack bytes in, changes of the cache out. Tokens are counted, never decoded.

A batch is an array ``[seconds, [event, ...], rank]``. vLLM writes each event as a map with ``type`` (older ones as an
array that begins with it), SGLang as an array. Field names and order: ``vllm/distributed/kv_events.py`` of vLLM 0.32.0
(run) and ``sglang/srt/disaggregation/kv_events.py`` (read). Prompts (``token_ids``) and what is mixed into a hash
(``extra_keys``: salts, names of images) are private: the decoder steps over them without making objects of them.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct, ValidationError

from inferdbg import text

_U64 = (1 << 64) - 1
_LATEST_S = 1e11
_LONGEST_NAME = 24
_MOST_TOKENS = 1 << 20
_MOST_NUMBER = 1 << 16
"""Of ranks and groups."""


class PoolName(NamedTuple):
    """Whose blocks: of which data-parallel rank, in which memory (``GPU``, ``CPU``), of which KV cache group."""

    rank: int
    medium: str | None
    group: int | None


class Stored(NamedTuple):
    """Blocks that can be reused from now on, each the continuation of the one before. ``parent``: what the first one
    continues (None: nothing). ``skipped``: between them lie blocks that are not kept (sliding windows, state spaces).
    ``kind``: what the group caches, as the server calls it."""

    pool: PoolName
    hashes: Sequence[int]
    parent: int | None
    block_size: int
    tokens: int
    skipped: bool
    kind: str | None


class Removed(NamedTuple):
    pool: PoolName
    hashes: Sequence[int]


class Cleared(NamedTuple):
    """All blocks of the rank are gone."""

    rank: int


Change = Stored | Removed | Cleared


class Batch(NamedTuple):
    """``wall_ns``: the server's clock. ``unknown``: events of types that are not known here. Not ``readable``: what it
    said is not known, only that it took its place in the order."""

    wall_ns: int
    rank: int
    changes: tuple[Change, ...]
    unknown: int = 0
    readable: bool = True


class _Batch(Struct, array_like=True, gc=False):
    ts: float
    events: list[Raw]
    rank: int | None = None


class _StoredMap(Struct, tag="BlockStored", gc=False):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    block_size: int
    token_ids: Raw
    medium: str | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class _RemovedMap(Struct, tag="BlockRemoved", gc=False):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class _ClearedMap(Struct, tag="AllBlocksCleared", gc=False):
    pass


class _StoredArray(Struct, tag="BlockStored", array_like=True, gc=False):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: Raw
    block_size: int
    lora_id: Raw = Raw()
    medium: str | None = None
    lora_name: Raw = Raw()  # in SGLang a map of what the request brought
    extra_keys: Raw = Raw()
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class _RemovedArray(Struct, tag="BlockRemoved", array_like=True, gc=False):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class _ClearedArray(Struct, tag="AllBlocksCleared", array_like=True, gc=False):
    pass


class _MapType(Struct, gc=False):
    type: str


class _ArrayType(Struct, array_like=True, gc=False):
    type: str


_batch = msgspec.msgpack.Decoder(_Batch)
_map = msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap)
_array = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)
_map_type = msgspec.msgpack.Decoder(_MapType)
_array_type = msgspec.msgpack.Decoder(_ArrayType)
_KNOWN = ("BlockStored", "BlockRemoved", "AllBlocksCleared")


def parse(payload: bytes) -> Batch:
    """The third frame of a message. Raises ValueError when it is no batch of events."""
    try:
        batch = _batch.decode(payload)
        found = [_change(raw, batch.rank or 0) for raw in batch.events]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"no batch of KV events: {error}") from None
    if not isfinite(batch.ts) or not 0 <= batch.ts < _LATEST_S:
        raise ValueError(f"a batch of KV events at {batch.ts}")
    if not 0 <= (batch.rank or 0) < _MOST_NUMBER:
        raise ValueError(f"a batch of KV events of rank {batch.rank}")
    known = tuple(change for change in found if change is not None)
    return Batch(int(batch.ts * 1e9), batch.rank or 0, known, len(found) - len(known))


def _change(raw: Raw, rank: int) -> Change | None:
    """None for an event of another type."""
    first = memoryview(raw)[0]
    is_map = first >> 4 == 0x8 or first in (0xDE, 0xDF)
    try:
        event = (_map if is_map else _array).decode(raw)
    except ValidationError:
        if (_map_type if is_map else _array_type).decode(raw).type in _KNOWN:
            raise
        return None
    if isinstance(event, (_ClearedMap, _ClearedArray)):
        return Cleared(rank)
    if not 0 <= (event.group_idx or 0) < _MOST_NUMBER:
        raise ValidationError(f"blocks of group {event.group_idx}")
    pool = PoolName(rank, None if event.medium is None else text.safe(event.medium, _LONGEST_NAME), event.group_idx)
    hashes = _hashes(event.block_hashes)
    if isinstance(event, (_RemovedMap, _RemovedArray)):
        return Removed(pool, hashes)
    if not 0 < event.block_size <= _MOST_TOKENS:
        raise ValidationError(f"blocks of {event.block_size} tokens")
    tokens = _length(memoryview(event.token_ids))
    (parent,) = _hashes([event.parent_block_hash]) if event.parent_block_hash is not None else (None,)
    kind = event.kv_cache_spec_kind
    return Stored(
        pool,
        hashes,
        parent,
        event.block_size,
        tokens if tokens is not None else len(hashes) * event.block_size,
        tokens is not None and tokens > len(hashes) * event.block_size,
        None if kind is None else text.safe(kind, _LONGEST_NAME),
    )


def _hashes(found: list[int | bytes]) -> list[int]:
    """Unsigned 64 bits each: vLLM sends these, or all bytes of which they are the last eight; SGLang sends them
    signed."""
    return list(_whole(found))


def _whole(found: list[int | bytes]) -> Iterator[int]:
    for one in found:
        yield one & _U64 if isinstance(one, int) else int.from_bytes(one[-8:], "big")


def _length(raw: memoryview) -> int | None:
    """How many items a msgpack array has, by its first bytes; None when it is no array."""
    first = raw[0] if raw else 0
    if first >> 4 == 0x9:
        return first & 0xF
    if first == 0xDC:
        return int.from_bytes(raw[1:3], "big")
    return int.from_bytes(raw[1:5], "big") if first == 0xDD else None
