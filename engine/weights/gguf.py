"""Weights of a GGUF file, dequantised while they are loaded."""

from __future__ import annotations

import gguf
import torch

from ..errors import ModelError
from ..model_config import ModelConfig
from .gguf_file import GgufFile, TensorInfo
from .layout import Assembly, Weights

_ITEMS_AT_ONCE = 2**20  # fp32 temporaries of the dequantisation stay in the processor's cache
_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_gguf(file: GgufFile, config: ModelConfig, dtype: torch.dtype, available: int | None) -> Weights:
    """Every tensor, cast to ``dtype``. ``available``: bytes of memory that may be used, None for no limit.

    Raises ModelError when tensors are missing, foreign, too many for memory, or quantised so that it cannot be undone.
    """
    assembly = Assembly(config, dtype, available)
    divisors: torch.Tensor | None = None
    for tensor in file.tensors.values():
        if tensor.name == "rope_freqs.weight":
            divisors = torch.empty(config.head_size // 2, dtype=torch.float32)
            if tensor.shape != tuple(divisors.shape):
                raise ModelError(f"{file.path}: rope_freqs.weight has the shape {list(tensor.shape)}")
            _dequantise_into(divisors, file, tensor)
            continue
        name = _hugging_face_name(tensor.name)
        if not assembly.expects(name):
            raise ModelError(
                f"{file.path} holds the tensor {tensor.name}, which no such Llama has",
                "only plain Llama models are run",
            )
        target = assembly.slot(name, tensor.shape)
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            _dequantise_permuted(target, file, tensor, config.head_size)
        else:
            _dequantise_into(target, file, tensor)
    weights = assembly.finished()
    if divisors is not None:
        weights.tensors["rope_divisors"] = divisors
    return weights


def _hugging_face_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    if stem in top:
        return f"{top[stem]}.{kind}"
    block, _, part = stem.removeprefix("blk.").partition(".")
    return f"model.layers.{block}.{_NAMES.get(part, part)}.{kind}"


def _dequantise_into(target: torch.Tensor, file: GgufFile, tensor: TensorInfo) -> None:
    raw = file.data(tensor)
    rows = target.view(raw.shape[0], -1)
    step = max(1, _ITEMS_AT_ONCE // rows.shape[1])
    for first in range(0, len(raw), step):
        try:
            values = gguf.dequantize(raw[first : first + step], tensor.kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{file.path}: {tensor.name} is quantised as {tensor.kind.name}, which cannot be undone",
                "take a file quantised as Q8_0, Q4_K_M or the like",
            ) from error
        if not values.flags.writeable:  # fp32 comes as a view of the file, which torch does not take
            values = values.copy()
        rows[first : first + step].copy_(torch.from_numpy(values))


def _dequantise_permuted(target: torch.Tensor, file: GgufFile, tensor: TensorInfo, head_size: int) -> None:
    """Rows of Q and K come as pairs (0, half, 1, half + 1, ...) in each head, since llama.cpp turns neighbours; the
    engine, as Hugging Face does, turns row i with row i + half."""
    paired = torch.empty_like(target)
    _dequantise_into(paired, file, tensor)
    heads = target.shape[0] // head_size
    split = (heads, 2, head_size // 2, *target.shape[1:])
    target.view(split).copy_(paired.view(heads, head_size // 2, 2, *target.shape[1:]).transpose(1, 2))
