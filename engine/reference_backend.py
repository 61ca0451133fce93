"""The backend ``reference``: a Llama in plain torch over a paged KV cache, on the CPU, in fp32 or bf16."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from .backend import Batch, EngineMemory
from .errors import ConfigError
from .kernels import reference as kernels
from .memory import available_memory, gibibytes
from .model_config import ModelConfig
from .state import KERNELS, Pulse
from .step_layout import StepLayout, lay_out

if TYPE_CHECKING:
    from .loading import LoadedModel

EMBED, ATTENTION, MLP, LM_HEAD = range(4)  # indices into KERNELS
_LAYER, _KERNEL, _LAUNCHED, _COMPLETED = (int(Pulse[name]) for name in ("LAYER", "KERNEL", "LAUNCHED", "COMPLETED"))


class LayerFaults(Protocol):
    """Harm done on purpose between layers; see faults.py. ``hidden``: [tokens, hidden_size]."""

    def before_layer(self, layer: int) -> None: ...

    def after_layer(self, layer: int, hidden: torch.Tensor) -> torch.Tensor: ...


class LayerWeights(NamedTuple):
    """One layer's part of Weights, by the names there."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


class ReferenceBackend:
    """Implements backend.Backend. ``faults``: called around every layer; None costs nothing.

    Work is counted from the sums of a batch, once a step, by these formulas. T tokens, C tokens of context read in all
    (each request's context and chunk), P pairs of a token and a token that it sees, S sampled rows, s bytes an item,
    Q = heads·head_size, W = kv_heads·head_size:

        embed      FLOPs 0                                        bytes 2·T·H·s
        attention  FLOPs layers·(2·T·H·(2·Q + 2·W) + 4·P·Q)       bytes layers·s·(2·H·(Q + W) + 2·W·(C + T) + 2·T·H)
        mlp        FLOPs layers·6·T·H·I                           bytes layers·s·(3·H·I + 2·T·H)
        lm head    FLOPs 2·S·H·V                                  bytes s·(H·V + S·H) + 4·S·V

    The bytes are the least that must move: weights and cache read once, hidden states in and out. The kernel ``sample``
    belongs to whoever calls the sampler.
    """

    name = "reference"
    kernels = KERNELS

    def __init__(
        self,
        model: LoadedModel,
        *,
        faults: LayerFaults | None = None,
        available: Callable[[], int | None] = available_memory,
    ) -> None:
        """``available``: tells how many bytes the cache may take, None for any number."""
        config, tensors = model.config, model.weights.tensors
        self._config = config
        self._dtype = model.weights.dtype
        self._faults = faults
        self._available = available
        self._embedding = tensors["embedding"]
        self._head = tensors.get("head", self._embedding)
        self._norm = tensors["norm"]
        self._layers = [
            LayerWeights(*(tensors.get(f"layers.{layer}.{name}") for name in LayerWeights._fields))  # type: ignore[arg-type]
            for layer in range(config.layers)
        ]
        self._frequencies = _frequencies(config, tensors.get("rope_divisors"))

    def attach(self, memory: EngineMemory, *, num_blocks: int, block_size: int) -> None:
        """Allocates the cache; raises ConfigError when it does not fit into memory. Called once, before ``forward``."""
        self.refuse_what_does_not_fit(num_blocks, block_size)
        config = self._config
        self._block_size = block_size
        self._cache = torch.zeros(
            config.layers, 2, num_blocks, block_size, config.kv_heads, config.head_size, dtype=self._dtype
        )
        slots = self._cache.view(config.layers, 2, num_blocks * block_size, config.kv_heads, config.head_size)
        self._cache_of_layer = [(*self._cache[layer], *slots[layer]) for layer in range(config.layers)]
        self._tables = torch.frombuffer(memory.tables, dtype=torch.int32).view(-1, memory.blocks_per_row)
        self._memory = memory

    def refuse_what_does_not_fit(self, num_blocks: int, block_size: int) -> None:
        """Raises ConfigError when such a cache does not fit into memory: to be asked before anything is allocated."""
        need = num_blocks * block_size * self._config.kv_bytes_per_token(self._dtype.itemsize)
        available = self._available()
        if available is not None and need > available:
            raise ConfigError(
                f"a KV cache of {num_blocks} blocks needs {gibibytes(need)}, {gibibytes(available)} are available",
                "set fewer blocks (--num-blocks)",
            )

    def copy_block(self, source: int, target: int) -> None:
        """Copies K and V of a block, in every layer (copy on write)."""
        self._cache[:, :, target] = self._cache[:, :, source]

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Runs the batch, writes its K and V into the cache, returns fp32 logits [len(batch.sampled), vocabulary]."""
        config, faults, pulse, clock = self._config, self._faults, self._memory.pulse, time.perf_counter_ns
        layout = lay_out(batch, self._tables, self._block_size, self._dtype)
        if len(layout.fresh_blocks):  # padded attention reads past a sequence's end: NaN there would spread to it
            self._cache.index_fill_(2, layout.fresh_blocks, 0)
        launched = pulse[_LAUNCHED]  # goes on counting after a pass that failed half-way
        began = clock()
        pulse[_KERNEL] = EMBED + 1
        pulse[_LAUNCHED] = launched = launched + 1
        hidden = kernels.embed(torch.frombuffer(batch.token_ids, dtype=torch.int64), self._embedding)
        cosine, sine = _rotation(layout.positions, self._frequencies, self._dtype)
        pulse[_COMPLETED] = launched
        before = clock()
        embed_ns, attention_ns, mlp_ns, head_ns = before - began, 0, 0, 0
        for layer, weights in enumerate(self._layers):
            pulse[_LAYER] = layer + 1
            pulse[_KERNEL] = ATTENTION + 1
            pulse[_LAUNCHED] = launched = launched + 1
            if faults is not None:
                faults.before_layer(layer)
            hidden = hidden + self._attention(hidden, weights, layout, layer, cosine, sine)
            pulse[_COMPLETED] = launched
            now = clock()
            attention_ns += now - before
            pulse[_KERNEL] = MLP + 1
            pulse[_LAUNCHED] = launched = launched + 1
            normed = kernels.rms_norm(hidden, weights.mlp_norm, config.rms_eps)
            hidden += kernels.swiglu(normed, weights.gate_up, weights.gate_up_bias, weights.down, weights.down_bias)
            if faults is not None:
                hidden = faults.after_layer(layer, hidden)
            pulse[_COMPLETED] = launched
            before = clock()
            mlp_ns += before - now
        pulse[_LAYER] = 0
        if batch.sampled:
            pulse[_KERNEL] = LM_HEAD + 1
            pulse[_LAUNCHED] = launched = launched + 1
            last = hidden if layout.last_tokens is None else hidden.index_select(0, layout.last_tokens)
            logits = kernels.lm_head(kernels.rms_norm(last, self._norm, config.rms_eps), self._head)
            pulse[_COMPLETED] = launched
            head_ns = clock() - before
        else:
            logits = torch.empty(0, config.vocabulary)
        pulse[_KERNEL] = 0
        self._count(batch, (embed_ns, attention_ns, mlp_ns, head_ns))
        return logits

    def _attention(
        self,
        hidden: torch.Tensor,
        weights: LayerWeights,
        layout: StepLayout,
        layer: int,
        cosine: torch.Tensor,
        sine: torch.Tensor,
    ) -> torch.Tensor:
        config = self._config
        turned = config.heads + config.kv_heads
        normed = kernels.rms_norm(hidden, weights.attention_norm, config.rms_eps)
        qkv = kernels.linear(normed, weights.qkv, weights.qkv_bias).view(len(hidden), -1, config.head_size)
        rotated = kernels.rotate(qkv[:, :turned], cosine, sine)
        queries, keys, values = rotated[:, : config.heads], rotated[:, config.heads :], qkv[:, turned:]
        key_cache, value_cache, key_slots, value_slots = self._cache_of_layer[layer]
        kernels.write_kv(keys, values, key_slots, value_slots, layout.slots)
        mixed = queries if _one_group(layout) else torch.empty_like(queries)
        for group in layout.decodes:
            group_keys = kernels.gather_blocks(key_cache, group.blocks, group.requests, group.length)
            group_values = kernels.gather_blocks(value_cache, group.blocks, group.requests, group.length)
            mixed_group = kernels.attend_decode(queries[group.tokens], group_keys, group_values, group.mask)
            if mixed is queries:
                mixed = mixed_group
            else:
                mixed[group.tokens] = mixed_group
        for chunk in layout.prefills:
            if chunk.mask is None:
                seen_keys, seen_values = keys[chunk.tokens], values[chunk.tokens]
            else:
                seen_keys = kernels.gather_blocks(key_cache, chunk.blocks, 1, chunk.length)[0]
                seen_values = kernels.gather_blocks(value_cache, chunk.blocks, 1, chunk.length)[0]
            mixed[chunk.tokens] = kernels.attend_prefill(queries[chunk.tokens], seen_keys, seen_values, chunk.mask)
        return kernels.linear(mixed.reshape(len(hidden), -1), weights.output, weights.output_bias)

    def _count(self, batch: Batch, busy_ns: tuple[int, int, int, int]) -> None:
        """Adds one step to the columns ``kernels.*``, by the formulas above."""
        config, memory, item = self._config, self._memory, self._dtype.itemsize
        tokens, seen = len(batch.token_ids), sum(batch.context_lengths)
        squares = sum(map(mul, batch.query_lengths, batch.query_lengths))
        pairs = sum(map(mul, batch.query_lengths, batch.context_lengths)) + (squares + tokens) // 2
        sampled, hidden, layers = len(batch.sampled), config.hidden_size, config.layers
        query, key = config.heads * config.head_size, config.kv_heads * config.head_size
        mlp, vocabulary = 3 * hidden * config.intermediate_size, config.vocabulary
        flops = (
            0,
            layers * (4 * tokens * hidden * (query + key) + 4 * pairs * query),
            layers * 2 * tokens * mlp,
            2 * sampled * hidden * vocabulary,
        )
        moved = (
            2 * tokens * hidden * item,
            layers * item * (2 * hidden * (query + key) + 2 * key * (seen + 2 * tokens) + 2 * tokens * hidden),
            layers * item * (mlp + 2 * tokens * hidden),
            item * (hidden * vocabulary + sampled * hidden) + 4 * sampled * vocabulary if sampled else 0,
        )
        for kernel, calls in enumerate((1, layers, layers, int(sampled > 0))):
            memory.kernel_calls[kernel] += calls
            memory.kernel_busy_ns[kernel] += busy_ns[kernel]
            memory.kernel_flops[kernel] += flops[kernel]
            memory.kernel_moved_bytes[kernel] += moved[kernel]


def _one_group(layout: StepLayout) -> bool:
    """Every token of the batch is a decode of one group, in order: its result needs no place of its own."""
    return not layout.prefills and len(layout.decodes) == 1 and isinstance(layout.decodes[0].tokens, slice)


def _rotation(
    positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine for kernels.rotate, [tokens, 1, head_size] each; angles are worked out in fp32."""
    angles = positions[:, None].float() * frequencies
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((cosine, cosine), 1).to(dtype).unsqueeze(1), torch.cat((-sine, sine), 1).to(dtype).unsqueeze(1)


def _frequencies(config: ModelConfig, divisors: torch.Tensor | None) -> torch.Tensor:
    """Radians a position, scaled as the model asks; ``divisors`` come from a GGUF file and have the last word."""
    scaling = config.rope_scaling
    if scaling is None:
        return kernels.rope_frequencies(config.head_size, config.rope_theta, divisors=divisors)
    if scaling.kind == "linear":
        return kernels.rope_frequencies(config.head_size, config.rope_theta, factor=scaling.factor, divisors=divisors)
    plain = kernels.rope_frequencies(config.head_size, config.rope_theta)
    return plain / kernels.llama3_divisors(
        plain,
        scaling.factor,
        scaling.low_frequency_factor,
        scaling.high_frequency_factor,
        scaling.original_max_positions,
    )
