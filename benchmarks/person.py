"""What a person's shell has, where a machine that builds has something else."""

import os


def environment() -> dict[str, str]:
    """A terminal of 256 colours or more, and Python may keep what it compiled: many a container forbids it, and every
    start then compiles anew."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
