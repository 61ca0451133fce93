"""inferdbg shows what an LLM inference server is doing, why it is slow, stuck or wrong, and why it died."""

__version__ = "0.1.0"
