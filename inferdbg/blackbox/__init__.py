"""The black box: an engine's state in a mapped file, readable while the engine runs, hangs, or after it died."""
