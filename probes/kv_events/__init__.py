"""KV events of vLLM and SGLang over ZMQ: which blocks can be reused, and the tree of prefixes that they form."""

from .probe import KVEvents

__all__ = ["KVEvents"]
