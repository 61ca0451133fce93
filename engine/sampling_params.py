"""What a client may ask of the sampler; refused at the door when it makes no sense."""

from dataclasses import dataclass

from .errors import BadRequest

MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1.0 are off. ``logprobs``: None for none, else how many
    alternatives beside the chosen token. ``n``: continuations of one prompt, which share its blocks."""

    max_tokens: int = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        for holds, name, rule in (
            (self.max_tokens >= 1, "max_tokens", "at least 1"),
            (0.0 <= self.temperature <= 100.0, "temperature", "between 0 and 100"),
            (self.top_k >= 0, "top_k", "0 (off) or more"),
            (0.0 < self.top_p <= 1.0, "top_p", "above 0 and at most 1"),
            (self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS, "logprobs", f"between 0 and {MAX_LOGPROBS}"),
            (all(self.stop), "stop", "free of empty strings"),
            (self.n >= 1, "n", "at least 1"),
        ):
            if not holds:
                raise BadRequest(f"{name} must be {rule}, not {getattr(self, name)!r}", param=name)
