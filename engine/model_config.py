"""The shape of a Llama model, read from a Hugging Face config.json or from the metadata of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ModelError

if TYPE_CHECKING:
    from .weights.gguf_file import GgufFile


MOST_LAYERS = 10_000  # a damaged number must not make a list of billions of tensors


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Stretches rotary positions beyond the length a model was trained for.

    ``linear``: all frequencies divided by ``factor``. ``llama3``: low ones divided, high ones kept, between them a ramp
    (https://huggingface.co/docs/transformers/main/internal/rope_utils).
    """

    kind: str
    factor: float
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_positions: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """``vocabulary``: rows of the embedding. ``kv_heads`` heads of K and V serve ``heads`` heads of Q in equal groups.

    ``tied``: the lm head is the embedding. ``attention_bias``, ``mlp_bias``: every projection there has a bias.
    ``eos_ids``: each of them ends a sequence. Raises ModelError when the numbers fit no Llama.
    """

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    max_positions: int
    rms_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    architecture: str = "llama"

    def __post_init__(self) -> None:
        for name in (
            "layers",
            "hidden_size",
            "intermediate_size",
            "heads",
            "kv_heads",
            "head_size",
            "vocabulary",
            "max_positions",
        ):
            if getattr(self, name) < 1:
                raise ModelError(f"the model says {name} = {getattr(self, name)}", "its configuration is damaged")
        if self.layers > MOST_LAYERS:
            raise ModelError(f"the model says layers = {self.layers:,}", "its configuration is damaged")
        if self.heads % self.kv_heads:
            raise ModelError(
                f"{self.heads} attention heads cannot share {self.kv_heads} heads of keys and values equally",
                "its configuration is damaged",
            )
        if self.head_size % 2:
            raise ModelError(
                f"head size {self.head_size} is odd, but rotary embeddings turn pairs of dimensions",
                "its configuration is damaged, or the model is no Llama",
            )
        if self.rms_eps <= 0 or self.rope_theta <= 0:
            raise ModelError(f"rms_norm_eps {self.rms_eps} and rope_theta {self.rope_theta} must be above 0")
        for token in (*self.eos_ids, *(() if self.bos_id is None else (self.bos_id,))):
            if not 0 <= token < self.vocabulary:
                raise ModelError(f"special token {token} lies outside the vocabulary of {self.vocabulary}")

    @property
    def group_size(self) -> int:
        """Heads of Q that share one head of K and V."""
        return self.heads // self.kv_heads

    def kv_bytes_per_token(self, item_size: int) -> int:
        """Bytes of K and V that one token takes in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * item_size


def config_from_folder(folder: Path) -> ModelConfig:
    """From config.json (and generation_config.json, which has the last word on end tokens) of a Hugging Face folder."""
    raw = _read_json(folder / "config.json")
    kind = raw.get("model_type")
    if kind != "llama":
        raise ModelError(f"{folder} holds a model of type {kind!r}", "only the Llama family (model_type llama) is run")
    if raw.get("quantization_config"):
        raise ModelError(f"{folder} holds quantised weights", "give the unquantised folder, or a GGUF file")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{folder} uses the activation {raw['hidden_act']!r}", "only silu is run")
    fields = _Fields(raw, str(folder / "config.json"))
    heads = fields.integer("num_attention_heads")
    max_positions = fields.integer("max_position_embeddings", 2048)
    eos = raw.get("eos_token_id")
    if (folder / "generation_config.json").is_file():
        eos = _read_json(folder / "generation_config.json").get("eos_token_id", eos)
    rope = _rope_of_folder(raw)
    rope_fields = _Fields(rope, fields.place)
    return ModelConfig(
        layers=fields.integer("num_hidden_layers"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", heads),
        head_size=fields.integer("head_dim", fields.integer("hidden_size") // max(heads, 1)),
        vocabulary=fields.integer("vocab_size"),
        max_positions=max_positions,
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope_fields.number("rope_theta", 10000.0),
        rope_scaling=_scaling_of_folder(rope_fields, max_positions),
        tied=bool(raw.get("tie_word_embeddings", False)),
        attention_bias=bool(raw.get("attention_bias", False)),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        bos_id=fields.integer("bos_token_id") if raw.get("bos_token_id") is not None else None,
        eos_ids=_token_ids(eos, fields.place),
    )


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """From the metadata of a GGUF file; what only the tensors tell (tied, biases, vocabulary) from their table.

    Names of keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{file.path} holds the architecture {architecture!r}", "only the architecture llama is run")
    fields = _Fields(
        {key.removeprefix("llama."): value for key, value in file.metadata.items() if key.startswith("llama.")},
        str(file.path),
    )
    if fields.integer("expert_count", 0):
        raise ModelError(f"{file.path} is a mixture of experts", "only dense Llama models are run")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path} has no embedding (token_embd.weight)", "the file is incomplete")
    heads, hidden_size = fields.integer("attention.head_count"), fields.integer("embedding_length")
    head_size = fields.integer("attention.key_length", hidden_size // max(heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(key, head_size) != head_size:
            raise ModelError(
                f"{file.path}: {key} is {fields.integer(key)}, the head size {head_size}", "only equal ones are run"
            )
    tokens = _Fields(file.metadata, str(file.path))
    ends = (tokens.get("tokenizer.ggml.eos_token_id"), tokens.get("tokenizer.ggml.eot_token_id"))
    return ModelConfig(
        layers=fields.integer("block_count"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length"),
        heads=heads,
        kv_heads=fields.integer("attention.head_count_kv", heads),
        head_size=head_size,
        vocabulary=embedding.shape[0],
        max_positions=fields.integer("context_length"),
        rms_eps=fields.number("attention.layer_norm_rms_epsilon", 1e-5),
        rope_theta=fields.number("rope.freq_base", 10000.0),
        rope_scaling=_scaling_of_gguf(fields),
        tied="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        bos_id=tokens.integer("tokenizer.ggml.bos_token_id") if "tokenizer.ggml.bos_token_id" in tokens.raw else None,
        eos_ids=_token_ids(list(dict.fromkeys(end for end in ends if end is not None)), fields.place),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """Values of a configuration file by name, with errors that say where they stand."""

    raw: Mapping[str, object]
    place: str

    def get(self, name: str) -> object:
        return self.raw.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.raw.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelError(f"{self.place}: {name} must be a whole number, not {value!r}", "the model is damaged")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.raw.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelError(f"{self.place}: {name} must be a number, not {value!r}", "the model is damaged")
        return float(value)


def _read_json(path: Path) -> dict[str, object]:
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelError(f"{path.parent} has no {path.name}", "give a Hugging Face folder or a GGUF file") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is no JSON", "the file is damaged: fetch the model again") from error
    if not isinstance(raw, dict):
        raise ModelError(f"{path} holds no object", "the file is damaged: fetch the model again")
    return raw


def _rope_of_folder(raw: Mapping[str, object]) -> dict[str, object]:
    """Rotary settings, which newer files keep in rope_parameters and older ones in rope_theta and rope_scaling."""
    settings: dict[str, object] = {"rope_theta": raw["rope_theta"]} if "rope_theta" in raw else {}
    for key in ("rope_scaling", "rope_parameters"):
        part = raw.get(key)
        if isinstance(part, dict):
            settings.update(part)
    return settings


def _scaling_of_folder(rope: _Fields, max_positions: int) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{rope.place}: only a part of each head is turned", "partial rotary embeddings are not run")
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", rope.number("factor"))
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        if not 0 < low < high:
            raise ModelError(
                f"{rope.place}: low_freq_factor {low} must be above 0 and below high_freq_factor {high}",
                "its configuration is damaged",
            )
        original = rope.integer("original_max_position_embeddings", max_positions)
        return RopeScaling("llama3", rope.number("factor"), low, high, original)
    raise ModelError(f"{rope.place}: rotary scaling {kind!r} is not run", "default, linear and llama3 are")


def _scaling_of_gguf(fields: _Fields) -> RopeScaling | None:
    """The scaling llama3 has no key here: its divisors stand in the tensor rope_freqs.weight."""
    kind = fields.get("rope.scaling.type") or ("linear" if "rope.scale_linear" in fields.raw else "none")
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling("linear", fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0)))
    raise ModelError(f"{fields.place}: rotary scaling {kind!r} is not run", "none, linear and llama3 are")


def _token_ids(value: object, place: str) -> tuple[int, ...]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ModelError(f"{place}: eos_token_id must be a token or a list of tokens, not {value!r}")
    return tuple(ids)
