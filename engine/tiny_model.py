"""A small random Llama made on the spot: for where no model can be fetched, and for tests. It writes gibberish."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from . import tokenizer as engine_tokenizer
from .chat_template import ChatTemplate
from .model_config import ModelConfig
from .token_pieces import byte_alphabet
from .weights.layout import Weights, parts, shapes

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = len(SPECIAL) + 256
_DEFAULT = ModelConfig(
    layers=4,
    hidden_size=96,
    intermediate_size=256,
    heads=6,
    kv_heads=2,
    head_size=16,
    vocabulary=VOCABULARY,
    max_positions=2048,
    tied=True,
    bos_id=0,
    eos_ids=(0, 2),
)


def tiny_config(**changes: object) -> ModelConfig:
    """About half a million parameters; ``changes``: fields of ModelConfig to have otherwise."""
    return replace(_DEFAULT, **changes)  # type: ignore[arg-type]


def tiny_weights(config: ModelConfig, dtype: torch.dtype = torch.float32, seed: int = 0) -> Weights:
    """Random weights of any shape; large enough that the best token is seldom in doubt."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in shapes(config).items():
        drawn = torch.randn(shape, generator=generator)
        if len(shape) == 1 and name.endswith("norm"):
            tensors[name] = (1.0 + 0.1 * drawn).to(dtype)
        else:
            tensors[name] = (drawn * (0.5 if len(shape) == 1 else 1.5 * shape[-1] ** -0.5)).to(dtype)
    return Weights(tensors, dtype)


def tiny_tokenizer() -> engine_tokenizer.Tokenizer:
    """A token for each byte, and three special ones."""
    return engine_tokenizer.Tokenizer(_byte_tokenizer(), ChatTemplate(CHAT_TEMPLATE, {}))


def write_folder(folder: Path, config: ModelConfig, weights: Weights) -> None:
    """Writes a Hugging Face folder that this engine and transformers read."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: weights.tensors[part.target][part.first_row : part.first_row + part.shape[0]].clone()
        for name, part in parts(config).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _byte_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[0],
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (folder / "config.json").write_text(json.dumps(_folder_config(config, weights), indent=2))


def _folder_config(config: ModelConfig, weights: Weights) -> dict[str, object]:
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.rope_scaling is not None:
        rope |= {"rope_type": config.rope_scaling.kind, "factor": config.rope_scaling.factor}
        if config.rope_scaling.kind == "llama3":
            rope |= {
                "low_freq_factor": config.rope_scaling.low_frequency_factor,
                "high_freq_factor": config.rope_scaling.high_frequency_factor,
                "original_max_position_embeddings": config.rope_scaling.original_max_positions,
            }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.rms_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tied,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "bos_token_id": config.bos_id,
        "eos_token_id": list(config.eos_ids),
        "dtype": str(weights.dtype).removeprefix("torch."),
    }


def _byte_tokenizer() -> Tokenizer:
    characters = sorted(byte_alphabet().items(), key=lambda item: item[1])
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *(character for character, _ in characters)))}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer
