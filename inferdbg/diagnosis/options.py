"""What an engine calls the limits that advice speaks of, as one types them."""

from typing import Literal

from inferdbg.facts.window import Window

Limit = Literal["running", "blocks", "token budget", "waiting"]
_WORDS: dict[Limit, str] = {
    "running": "the limit of running requests",
    "blocks": "the KV pool",
    "token budget": "the token budget of a step",
    "waiting": "the limit of waiting requests",
}
_OPTIONS: dict[str, dict[Limit, str]] = {
    "inferdbg": {
        "running": "--max-running",
        "blocks": "--num-blocks",
        "token budget": "--token-budget",
        "waiting": "--max-waiting",
    },
    "vllm": {
        "running": "--max-num-seqs",
        "blocks": "--num-gpu-blocks-override",
        "token budget": "--max-num-batched-tokens",
    },
    "sglang": {
        "running": "--max-running-requests",
        "token budget": "--chunked-prefill-size",
        "waiting": "--max-queued-requests",
    },
    "llama.cpp": {"running": "--parallel", "token budget": "--batch-size"},
}
"""Only options that take what we would advise: a number of requests, of blocks, of tokens a step."""


def option(window: Window, limit: Limit) -> str | None:
    """The option's name; None where this engine has none, or is not known."""
    server = window.now.server
    return _OPTIONS.get(server.engine, {}).get(limit) if server is not None else None


def option_or_words(window: Window, limit: Limit) -> str:
    """The same, in words where there is none."""
    return option(window, limit) or _WORDS[limit]
