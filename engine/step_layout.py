"""Where the tokens of one step lie: their positions, their slots in the cache, and what each request attends to.

Worked out once a step from the block tables, used by every layer.

    tokens of the batch   | r0 | r1 | r2 r2 r2 r2 | r3 |      decodes (one token) and prefill chunks, mixed
    decodes               r0, r1, r3, in groups of similar length, so that padding to the longest wastes little
    prefills              r2, each by itself
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .backend import Batch

SHORT = 256
"""Sequences up to this many tokens share a group whatever their lengths: another group costs more than padding."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """``tokens``: their rows in the batch. ``blocks``: see kernels.gather_blocks; a row that is shorter than the
    longest repeats its own last block, never another's. ``mask``: see kernels.attend_decode."""

    tokens: slice | torch.Tensor
    requests: int
    length: int
    blocks: slice | torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """``length``: context and chunk. ``mask``: see kernels.attend_prefill; None without context."""

    tokens: slice
    length: int
    blocks: slice | torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class StepLayout:
    """``positions``, ``slots``: int64 [tokens]. ``fresh_blocks``: blocks begun and not filled in this step: what lies
    behind their tokens is a former owner's. ``last_tokens``: rows whose hidden states get logits; None for all."""

    positions: torch.Tensor
    slots: torch.Tensor
    fresh_blocks: torch.Tensor
    decodes: list[DecodeGroup]
    prefills: list[PrefillChunk]
    last_tokens: torch.Tensor | None


def lay_out(batch: Batch, tables: torch.Tensor, block_size: int, dtype: torch.dtype) -> StepLayout:
    """``tables``: int32 [rows, blocks_per_row]. ``dtype``: of the masks."""
    contexts = torch.tensor(batch.context_lengths)
    chunks = torch.tensor(batch.query_lengths)
    rows = torch.tensor(batch.rows)
    ends = contexts + chunks
    after = chunks.cumsum(0)
    if len(batch.token_ids) == len(batch.rows):
        positions, rows_of_tokens = contexts, rows
    else:
        positions = torch.arange(len(batch.token_ids)) + (ends - after).repeat_interleave(chunks)
        rows_of_tokens = rows.repeat_interleave(chunks)
    slots = tables[rows_of_tokens, positions // block_size].long() * block_size + positions % block_size
    last_blocks = (ends - 1) // block_size
    begun = (last_blocks * block_size >= contexts) & (ends % block_size != 0)
    layout = StepLayout(
        positions,
        slots,
        tables[rows[begun], last_blocks[begun]].long(),
        decodes=[],
        prefills=[],
        last_tokens=None if len(batch.sampled) == len(batch.token_ids) else (after - 1)[batch.sampled],
    )
    decodes = [index for index, chunk in enumerate(batch.query_lengths) if chunk == 1]
    for group in _groups(decodes, batch.context_lengths):
        layout.decodes.append(_decode_group(group, after, ends, rows, tables, block_size, dtype))
    if len(decodes) < len(batch.rows):
        for index, chunk in enumerate(batch.query_lengths):
            if chunk > 1:
                layout.prefills.append(_prefill_chunk(batch, index, int(after[index]), tables, block_size, dtype))
    return layout


def _groups(decodes: list[int], contexts: list[int]) -> list[list[int]]:
    """Requests whose lengths lie within a factor of two, or below SHORT; in the order of the batch inside a group."""
    if not decodes or max(contexts[index] for index in decodes) <= SHORT:
        return [decodes] if decodes else []
    groups: list[list[int]] = []
    least = 0.0
    for index in sorted(decodes, key=lambda index: -contexts[index]):
        if not groups or contexts[index] < least:
            groups.append([])
            least = contexts[index] / 2 if contexts[index] > SHORT else 0
        groups[-1].append(index)
    return [sorted(group) for group in groups]


def _decode_group(
    group: list[int],
    after: torch.Tensor,
    ends: torch.Tensor,
    rows: torch.Tensor,
    tables: torch.Tensor,
    block_size: int,
    dtype: torch.dtype,
) -> DecodeGroup:
    members = torch.tensor(group)
    lengths = ends[members]
    length = int(lengths.max())
    last_blocks = (lengths - 1) // block_size
    columns = torch.minimum(torch.arange(-(-length // block_size)), last_blocks[:, None])
    blocks = tables[rows[members, None], columns]
    mask = None
    if int(lengths.min()) < length:
        mask = torch.zeros(len(group), 1, 1, length, dtype=dtype)
        mask.masked_fill_((torch.arange(length) >= lengths[:, None])[:, None, None], float("-inf"))
    tokens = after[members] - 1
    return DecodeGroup(_run_or(tokens), len(group), length, _run_or(blocks.flatten()), mask)


def _prefill_chunk(
    batch: Batch, index: int, after: int, tables: torch.Tensor, block_size: int, dtype: torch.dtype
) -> PrefillChunk:
    chunk, context = batch.query_lengths[index], batch.context_lengths[index]
    length = context + chunk
    mask = None
    if context:
        mask = torch.full((chunk, length), float("-inf"), dtype=dtype).triu_(context + 1)
    blocks = tables[batch.rows[index], : -(-length // block_size)]
    return PrefillChunk(slice(after - chunk, after), length, _run_or(blocks), mask)


def _run_or(numbers: torch.Tensor) -> slice | torch.Tensor:
    """A slice when each number is one more than the one before it: then a view does instead of a copy."""
    first = int(numbers[0])
    if int(numbers[-1]) == first + len(numbers) - 1 and bool((numbers[1:] > numbers[:-1]).all()):
        return slice(first, first + len(numbers))
    return numbers
