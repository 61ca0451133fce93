"""Puts into plain values what never changes while an engine runs: the model, the limits, the names of the kernels."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from .hooks import EngineFacts

if TYPE_CHECKING:
    from .backend import Backend
    from .config import EngineConfig, Limits
    from .loading import LoadedModel


def engine_facts(
    model: LoadedModel, config: EngineConfig, limits: Limits, backend: Backend, *, started_mono_ns: int
) -> EngineFacts:
    shape = model.config
    return EngineFacts(
        version=_version(),
        model={
            "name": model.name,
            "architecture": shape.architecture,
            "layers": shape.layers,
            "heads": shape.heads,
            "kv_heads": shape.kv_heads,
            "head_size": shape.head_size,
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size,
            "vocabulary": shape.vocabulary,
            "parameters": model.weights.parameters,
            "weight_bytes": model.weights.size_bytes,
            "weight_dtype": model.weights.dtype_name,
            "kv_dtype": model.weights.dtype_name,
            "kv_bytes_per_token": shape.kv_bytes_per_token(model.weights.item_size),
        },
        config={
            "block_size": limits.block_size,
            "num_blocks": limits.num_blocks,
            "token_budget": limits.token_budget,
            "max_running": limits.max_running,
            "max_waiting": limits.max_waiting,
            "max_model_len": limits.max_model_len,
            "max_chunk": limits.max_chunk,
            "prefix_caching": limits.prefix_caching,
            "policy": config.policy,
            "backend": backend.name,
        },
        kernels=backend.kernels,
        blocks_per_row=limits.blocks_per_row,
        started_wall_ns=time.time_ns(),
        started_mono_ns=started_mono_ns,
    )


def _version() -> str:
    try:
        return version("inferdbg")
    except PackageNotFoundError:  # run from a bare folder
        return "unknown"
