"""The names and shapes that weights have inside the engine, and how a file's tensors fall into them.

    embedding                [vocabulary, hidden]
    layers.N.attention_norm  [hidden]
    layers.N.qkv             [(heads + 2 * kv_heads) * head_size, hidden]     rows of Q, then K, then V
    layers.N.output          [hidden, heads * head_size]
    layers.N.mlp_norm        [hidden]
    layers.N.gate_up         [2 * intermediate, hidden]                       rows of gate, then up
    layers.N.down            [hidden, intermediate]
    norm                     [hidden]
    head                     [vocabulary, hidden]                             absent when tied to the embedding
    rope_divisors            [head_size / 2] fp32                             only when the file brings them

Each projection may have its bias beside it: ``layers.N.qkv_bias`` and so on, one entry a row. Fused, a layer takes four
products instead of seven. A file's tensors are copied straight into their rows, so no second copy is ever held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch

from ..errors import ModelError
from ..memory import gibibytes
from ..model_config import ModelConfig

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What weights, hidden states and the KV cache can be kept in."""

WORKING_BYTES = 128 * 2**20
"""Held beside the weights while loading: one tensor's rows, dequantised."""


@dataclass(frozen=True, slots=True)
class Weights:
    """``tensors`` by the names above; all of ``dtype``, but for rope_divisors."""

    tensors: dict[str, torch.Tensor]
    dtype: torch.dtype

    @property
    def parameters(self) -> int:
        return sum(tensor.numel() for name, tensor in self.tensors.items() if name != "rope_divisors")

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def item_size(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    @property
    def dtype_name(self) -> str:
        """``fp32`` or ``bf16``."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)


@dataclass(frozen=True, slots=True)
class Part:
    """A file's tensor fills ``shape[0]`` rows of ``target`` from ``first_row``."""

    target: str
    first_row: int
    shape: tuple[int, ...]


def parts(config: ModelConfig) -> dict[str, Part]:
    """Every tensor a Hugging Face file of that shape must have, by its name there."""
    hidden, query, key = config.hidden_size, config.heads * config.head_size, config.kv_heads * config.head_size
    found = {
        "model.embed_tokens.weight": Part("embedding", 0, (config.vocabulary, hidden)),
        "model.norm.weight": Part("norm", 0, (hidden,)),
    }
    if not config.tied:
        found["lm_head.weight"] = Part("head", 0, (config.vocabulary, hidden))
    for layer in range(config.layers):
        theirs, ours = f"model.layers.{layer}.", f"layers.{layer}."
        found[theirs + "input_layernorm.weight"] = Part(ours + "attention_norm", 0, (hidden,))
        found[theirs + "post_attention_layernorm.weight"] = Part(ours + "mlp_norm", 0, (hidden,))
        for name, target, first_row, rows, columns, bias in (
            ("self_attn.q_proj", "qkv", 0, query, hidden, config.attention_bias),
            ("self_attn.k_proj", "qkv", query, key, hidden, config.attention_bias),
            ("self_attn.v_proj", "qkv", query + key, key, hidden, config.attention_bias),
            ("self_attn.o_proj", "output", 0, hidden, query, config.attention_bias),
            ("mlp.gate_proj", "gate_up", 0, config.intermediate_size, hidden, config.mlp_bias),
            ("mlp.up_proj", "gate_up", config.intermediate_size, config.intermediate_size, hidden, config.mlp_bias),
            ("mlp.down_proj", "down", 0, hidden, config.intermediate_size, config.mlp_bias),
        ):
            found[f"{theirs}{name}.weight"] = Part(ours + target, first_row, (rows, columns))
            if bias:
                found[f"{theirs}{name}.bias"] = Part(f"{ours}{target}_bias", first_row, (rows,))
    return found


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of the engine's own layout, but for rope_divisors."""
    found: dict[str, tuple[int, ...]] = {}
    for part in parts(config).values():
        rows = found[part.target][0] if part.target in found else 0
        found[part.target] = (max(rows, part.first_row + part.shape[0]), *part.shape[1:])
    return found


def parameter_count(config: ModelConfig) -> int:
    """Numbers in all weights; a tied head counts once."""
    return sum(prod(shape) for shape in shapes(config).values())


class Assembly:
    """Weights while they are filled from a file; ``place`` each part, then ``finished``."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, available: int | None) -> None:
        """Raises ModelError, before allocating, when the weights need more than ``available`` bytes."""
        need = parameter_count(config) * dtype.itemsize + WORKING_BYTES
        if available is not None and need > available:
            raise ModelError(
                f"the model needs {gibibytes(need)} of memory, {gibibytes(available)} are available",
                "free memory, take a smaller model" + (", or --dtype bf16" if dtype.itemsize > 2 else ""),
            )
        self._missing = parts(config)
        self._dtype = dtype
        self._tensors = {name: torch.empty(shape, dtype=dtype) for name, shape in shapes(config).items()}

    def expects(self, name: str) -> bool:
        """Whether a tensor of that name belongs to the model and has not come yet."""
        return name in self._missing

    def slot(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The rows to copy the file's tensor ``name`` into; raises ModelError when it has another shape."""
        part = self._missing.pop(name)
        if shape != part.shape:
            raise ModelError(
                f"tensor {name} has the shape {list(shape)}, not {list(part.shape)}",
                "weights and configuration belong to different models",
            )
        return self._tensors[part.target][part.first_row : part.first_row + part.shape[0]]

    def finished(self) -> Weights:
        """The weights; raises ModelError when a tensor never came."""
        if self._missing:
            first = next(iter(self._missing))
            raise ModelError(
                f"{len(self._missing)} tensors are missing, {first} first", "the model is incomplete: fetch it again"
            )
        return Weights(self._tensors, self._dtype)
