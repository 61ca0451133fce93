"""The interface between scheduling and arithmetic: a Batch of tokens in, logits out.

    scheduler ──StepPlan──► Engine ──Batch──► Backend.forward ──logits──► Sampler ──tokens──► scheduler

Backends: ``reference`` (plain torch, the truth). Scheduling imports no torch; nothing in this file does either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .state import Column

if TYPE_CHECKING:
    from array import array

    import torch


@dataclass(frozen=True, slots=True)
class Batch:
    """The tokens of one step, the requests one after another.

    Request i computes ``query_lengths[i]`` tokens on top of ``context_lengths[i]`` that are in the cache already; its
    blocks are row ``rows[i]`` of the block tables, with room for both. ``token_ids``: int64, sum(query_lengths) long.
    ``sampled``: indices i, ascending, of the requests whose last token gets logits.
    """

    token_ids: array[int]
    query_lengths: list[int]
    context_lengths: list[int]
    rows: list[int]
    sampled: list[int]


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The columns that a backend reads and writes: views of whatever memory the Observer gave.

    ``tables``: int32 [rows × blocks_per_row], flat. ``pulse``: see state.Pulse; the backend stores LAYER, KERNEL,
    LAUNCHED and COMPLETED. ``kernel_*``: see state.KERNELS; added to once a step.
    """

    tables: Column
    blocks_per_row: int
    pulse: Column
    kernel_calls: Column
    kernel_busy_ns: Column
    kernel_flops: Column
    kernel_moved_bytes: Column


class Backend(Protocol):
    """One model on one device with its paged KV cache, [layers][k, v][num_blocks, block_size, kv_heads, head_size]."""

    name: str
    kernels: tuple[str, ...]

    def attach(self, memory: EngineMemory, *, num_blocks: int, block_size: int) -> None:
        """Allocates the cache; raises ConfigError when it does not fit into memory. Called once, before ``forward``."""

    def forward(self, batch: Batch) -> torch.Tensor:
        """Runs the batch, writes its K and V into the cache, returns fp32 logits [len(batch.sampled), vocabulary]."""

    def copy_block(self, source: int, target: int) -> None:
        """Copies K and V of a block, in every layer (copy on write)."""
