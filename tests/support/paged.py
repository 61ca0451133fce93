"""Drives a backend by hand, without a scheduler: tables in any order, chunks of any size, decodes beside prefill."""

import random
from array import array
from collections.abc import Sequence

import torch

from inferdbg.engine.backend import Batch, EngineMemory
from inferdbg.engine.loading import LoadedModel
from inferdbg.engine.reference_backend import LayerFaults, ReferenceBackend
from inferdbg.engine.state import Column, column_specs, plain_memory


class Paged:
    """A reference backend with ``rows`` block tables that share no block. ``shuffled``: blocks lie anywhere; else each
    table is a run of blocks in a row."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        rows: int = 4,
        longest: int = 128,
        block_size: int = 16,
        shuffled: bool = True,
        faults: LayerFaults | None = None,
    ) -> None:
        self.blocks_per_row = -(-longest // block_size)
        num_blocks = rows * self.blocks_per_row
        specs = column_specs(num_blocks=num_blocks, slots=rows, rows=rows, blocks_per_row=self.blocks_per_row)
        self.columns: dict[str, Column] = plain_memory(specs)
        blocks = list(range(num_blocks))
        if shuffled:
            random.Random(num_blocks).shuffle(blocks)
        self.columns["tables"][:] = array("i", blocks)
        self.backend = ReferenceBackend(model, faults=faults)
        self.backend.attach(
            EngineMemory(
                tables=self.columns["tables"],
                blocks_per_row=self.blocks_per_row,
                pulse=self.columns["pulse"],
                kernel_calls=self.columns["kernels.calls"],
                kernel_busy_ns=self.columns["kernels.busy_ns"],
                kernel_flops=self.columns["kernels.flops"],
                kernel_moved_bytes=self.columns["kernels.moved_bytes"],
            ),
            num_blocks=num_blocks,
            block_size=block_size,
        )

    def forward(
        self, work: Sequence[tuple[int, Sequence[int], int]], sampled: Sequence[int] | None = None
    ) -> torch.Tensor:
        """One step; ``work``: row, tokens to compute, tokens of context. ``sampled``: all, unless given."""
        return self.backend.forward(
            Batch(
                array("q", [token for _, tokens, _ in work for token in tokens]),
                [len(tokens) for _, tokens, _ in work],
                [context for _, _, context in work],
                [row for row, _, _ in work],
                list(range(len(work)) if sampled is None else sampled),
            )
        )

    def generate(self, prompts: Sequence[Sequence[int]], count: int, *, chunk: int = 1024) -> list[list[int]]:
        """Greedy continuations of ``count`` tokens, all in one batch; prompt i begins in step i, in chunks."""
        known = [list(prompt) for prompt in prompts]
        computed = [0] * len(prompts)
        for step in range(sum(map(len, prompts)) + len(prompts) + count):
            due = [row for row in range(min(step + 1, len(prompts))) if len(known[row]) < len(prompts[row]) + count]
            if not due:
                break
            work = [(row, known[row][computed[row] : computed[row] + chunk], computed[row]) for row in due]
            for row, tokens, _ in work:
                computed[row] += len(tokens)
            ready = [place for place, (row, _, _) in enumerate(work) if computed[row] == len(known[row])]
            best = self.forward(work, ready).argmax(-1).tolist()
            for place, token in zip(ready, best, strict=True):
                known[work[place][0]].append(token)
        return [tokens[len(prompt) :] for tokens, prompt in zip(known, prompts, strict=True)]
