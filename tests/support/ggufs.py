"""Writes small GGUF files with the package's own writer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy

from inferdbg.engine.model_config import ModelConfig
from inferdbg.engine.tiny_model import SPECIAL
from inferdbg.engine.token_pieces import byte_alphabet
from inferdbg.engine.weights.layout import Weights, parts

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
BYTE_TOKENS = (*SPECIAL, *sorted(byte_alphabet(), key=byte_alphabet().__getitem__))


def write_gguf(
    path: Path,
    config: ModelConfig,
    weights: Weights,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    metadata: Mapping[str, int | float | str] | None = None,
    rope_divisors: Sequence[float] | None = None,
) -> None:
    """A Llama of vocabulary 260 as llama.cpp's converter writes it, rows of Q and K in pairs. ``kind``: of the matrices
    of the layers. ``metadata``: more keys, without ``llama.``."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_size)
    writer.add_value_length(config.head_size)
    writer.add_rope_dimension_count(config.head_size)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    for key, value in (metadata or {}).items():
        {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)](f"llama.{key}", value)
    add_byte_tokenizer(writer)
    for name, part in parts(config).items():
        tensor = weights.tensors[part.target][part.first_row : part.first_row + part.shape[0]].float()
        if ".q_proj." in name or ".k_proj." in name:
            halves = tensor.view(-1, 2, config.head_size // 2, *tensor.shape[1:])
            tensor = halves.transpose(1, 2).reshape(tensor.shape)
        values = tensor.contiguous().numpy()
        if tensor.ndim == 2 and "layers" in name:
            writer.add_tensor(gguf_name(name), gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), values)
    if rope_divisors is not None:
        writer.add_tensor("rope_freqs.weight", numpy.array(rope_divisors, numpy.float32))
    finish(writer)


def add_byte_tokenizer(writer: gguf.GGUFWriter, pre: str = "gpt-2", merges: Sequence[str] = ("a b",)) -> None:
    """A token for each byte, one for each merge, three special ones: 260 with the one merge."""
    tokens = [*BYTE_TOKENS, *(merge.replace(" ", "") for merge in merges)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(list(merges))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.{kind}"
