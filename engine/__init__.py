"""The bundled inference engine: paged KV cache, continuous batching, chunked prefill. Knows nothing of inferdbg."""
