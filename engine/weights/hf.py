"""Weights of a Hugging Face folder: one model.safetensors, or shards with an index."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ..errors import ModelError
from ..model_config import ModelConfig
from .layout import Assembly, Weights

_PLAIN = ("F64", "F32", "F16", "BF16")


def load_folder(folder: Path, config: ModelConfig, dtype: torch.dtype, available: int | None) -> Weights:
    """Every tensor, cast to ``dtype``. ``available``: bytes of memory that may be used, None for no limit.

    Raises ModelError when files or tensors are missing, damaged, of a foreign kind, or too many for memory.
    """
    files = _weight_files(folder)
    assembly = Assembly(config, dtype, available)
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  not a mapping
                    _place(assembly, name, tensors, file)
        except SafetensorError as error:
            raise ModelError(
                f"{file} is damaged or truncated ({error})", "fetch the model again, and compare its size"
            ) from error
        except OSError as error:
            raise ModelError(f"{file} cannot be read: {error.strerror or error}") from error
    return assembly.finished()


def _place(assembly: Assembly, name: str, tensors: safe_open, file: Path) -> None:
    if not assembly.expects(name):
        if name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq"):  # a tied head, and what can be computed
            return
        raise ModelError(
            f"{file} holds the tensor {name}, which no such Llama has", "its configuration tells otherwise"
        )
    part = tensors.get_slice(name)  # type: ignore[no-untyped-call]
    if part.get_dtype() not in _PLAIN:
        raise ModelError(
            f"{file}: {name} is of type {part.get_dtype()}", f"only {', '.join(_PLAIN)} are read; quantised: as GGUF"
        )
    assembly.slot(name, tuple(part.get_shape())).copy_(tensors.get_tensor(name))  # type: ignore[no-untyped-call]


def _weight_files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        old = any(folder.glob("pytorch_model*.bin"))
        raise ModelError(
            f"{folder} has no model.safetensors",
            "its weights are pickles, which may run code: convert them to safetensors"
            if old
            else "fetch the model again",
        )
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        paths = [folder / Path(shard).name for shard in shards]  # a shard lies beside its index, nowhere else
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged", "fetch the model again") from error
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of {len(paths)} files of weights, {missing[0]} first", "fetch them"
        )
    return paths
