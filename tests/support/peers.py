"""transformers as the measure: the same weights, its own arithmetic."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TQDM_DISABLE"] = "1"


class CausalModel(Protocol):
    """What is used of a transformers model."""

    def __call__(self, input_ids: torch.Tensor, **options: object) -> object: ...

    def eval(self) -> "CausalModel": ...


def model_from_folder(folder: Path, dtype: torch.dtype = torch.float32) -> CausalModel:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def model_from_gguf(path: Path, dtype: torch.dtype = torch.float32) -> CausalModel:
    """Dequantised, whatever the release would do by itself."""
    import transformers

    options: dict[str, object] = {"dtype": dtype}
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, **options).eval()


def greedy_after(model: CausalModel, prompt: Sequence[int], output: Sequence[int]) -> list[int]:
    """The token that the model finds likeliest after the prompt and each beginning of ``output``: a greedy continuation
    is equal to this. One pass without a cache."""
    return all_logits(model, [*prompt, *output[:-1]])[len(prompt) - 1 :].argmax(-1).tolist()


@torch.inference_mode()
def all_logits(model: CausalModel, tokens: Sequence[int]) -> torch.Tensor:
    """[tokens, vocabulary] fp32, computed in one go."""
    result = model(torch.tensor([list(tokens)]))
    return result.logits[0].float()  # type: ignore[attr-defined]
