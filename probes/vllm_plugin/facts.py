"""What never changes while vLLM runs, as a box says it: model, limits, address; and what this version does not tell."""

import sys
import time
from collections.abc import Sequence

from .hooking import Foreign

ENGINE_NAME = "vllm"
_DEFAULT_PORT = 8000
_BY_ANY_ADDRESS = ("0.0.0.0", "::", "")


class Reader:
    """Follows attributes from one object; ``missing`` names those that were not there."""

    def __init__(self, root: Foreign) -> None:
        self._root = root
        self.missing: list[str] = []

    def get(self, *paths: str) -> Foreign:
        """The first of these dotted paths that leads somewhere; None, and noted, when none does."""
        for path in paths:
            found = self.peek(path)
            if found is not None:
                return found
        self.missing.append(paths[0])
        return None

    def peek(self, path: str) -> Foreign:
        """The same for what nobody need have."""
        found = self._root
        for name in path.split("."):
            found = getattr(found, name, None)
        return found

    def number(self, *paths: str) -> "int | None":
        found = self.get(*paths)
        return int(found) if isinstance(found, int) else None

    def text(self, *paths: str) -> "str | None":
        """Names of types and enums without their module."""
        found = self.get(*paths)
        return None if found is None else str(getattr(found, "value", found)).rpartition("torch.")[2]


def static_facts(
    scheduler: Foreign, *, block_size: int, blocks_per_row: int, notes: Sequence[str]
) -> "dict[str, object]":
    """As probes.engine_facts.StaticFacts reads them back."""
    read = Reader(scheduler)
    facts: dict[str, object] = {
        "version": getattr(sys.modules.get("vllm"), "__version__", None),
        "model": _model(read),
        "config": _config(read, block_size),
        "kernels": (),
        "blocks_per_row": blocks_per_row,
        "started_wall_ns": time.time_ns(),
        "started_mono_ns": time.monotonic_ns(),
    }
    said = list(notes)
    if read.missing:
        said.append("this vLLM does not tell " + ", ".join(read.missing))
    return {"engine": ENGINE_NAME, "facts": facts, "url": url_of(sys.argv), "notes": said}


def _model(read: Reader) -> "dict[str, object]":
    hf = "vllm_config.model_config.hf_text_config"
    served = read.get("vllm_config.model_config.served_model_name")
    name = served[0] if isinstance(served, (list, tuple)) and served else served
    architectures = read.get("vllm_config.model_config.hf_config.architectures", f"{hf}.architectures")
    heads, hidden = read.number(f"{hf}.num_attention_heads"), read.number(f"{hf}.hidden_size")
    head_size = read.peek(f"{hf}.head_dim")
    dtype = read.text("vllm_config.model_config.dtype")
    kv_dtype = read.text("cache_config.cache_dtype")
    return {
        "name": str(name or read.text("vllm_config.model_config.model") or "unknown"),
        "architecture": str(architectures[0]) if architectures else None,
        "layers": read.number(f"{hf}.num_hidden_layers"),
        "heads": heads,
        "kv_heads": read.number(f"{hf}.num_key_value_heads", f"{hf}.num_attention_heads"),
        "head_size": head_size or (hidden // heads if hidden and heads else None),
        "hidden_size": hidden,
        "intermediate_size": read.number(f"{hf}.intermediate_size"),
        "vocabulary": read.number(f"{hf}.vocab_size"),
        "weight_dtype": dtype,
        "kv_dtype": dtype if kv_dtype == "auto" else kv_dtype,
        "kv_bytes_per_token": _kv_bytes_per_token(read),
    }


def _config(read: Reader, block_size: int) -> "dict[str, object]":
    caching = read.get("cache_config.enable_prefix_caching")
    return {
        "block_size": block_size,
        "num_blocks": read.number("kv_cache_manager.block_pool.num_gpu_blocks"),
        "token_budget": read.number("max_num_scheduled_tokens"),
        "max_running": read.number("max_num_active_reqs", "max_num_running_reqs"),
        "max_model_len": read.number("max_model_len"),
        "prefix_caching": caching if isinstance(caching, bool) else None,
        "policy": read.text("policy"),
        "backend": read.text("vllm_config.device_config.device_type"),
    }


def _kv_bytes_per_token(read: Reader) -> "int | None":
    """Of all layers together, of the groups that grow with the tokens."""
    groups = read.get("kv_cache_config.kv_cache_groups")
    if not groups:
        return None
    try:
        return sum(
            int(group.kv_cache_spec.page_size_bytes)
            * max(1, len(group.layer_names))
            // int(group.kv_cache_spec.block_size)
            for group in groups
        )
    except (AttributeError, TypeError):
        return None


def url_of(argv: Sequence[str]) -> "str | None":
    """Where the front end listens, as its command line says: the core is its child and inherits it. None: no server."""
    if "serve" not in argv and not any("api_server" in word for word in argv):
        return None
    said = {"--host": "", "--port": str(_DEFAULT_PORT)}
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in said:
            said[name] = value if equals else following
    host = "127.0.0.1" if said["--host"] in _BY_ANY_ADDRESS else said["--host"]
    scheme = "https" if any(word.startswith("--ssl-certfile") for word in argv) else "http"
    return f"{scheme}://[{host}]:{said['--port']}" if ":" in host else f"{scheme}://{host}:{said['--port']}"
