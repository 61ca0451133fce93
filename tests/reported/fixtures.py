"""What real servers answered: fixtures/vllm and fixtures/llamacpp."""

from pathlib import Path

ROOT = Path(__file__).parents[2] / "fixtures"
VLLM = (
    "metrics_idle.txt",
    "metrics_load8.txt",
    "metrics_preempt_during.txt",
    "metrics_preempt_after.txt",
    "metrics_specdecode.txt",
)


def read(name: str) -> bytes:
    return (ROOT / name).read_bytes()
