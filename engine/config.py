"""What an operator may set: sizes of the cache, the step and the queue, checked before anything is allocated."""

from dataclasses import dataclass

from .errors import ConfigError

POLICIES = ("fcfs",)
BACKENDS = ("reference",)
DEFAULT_CACHE_BYTES = 512 << 20
MAX_SHARERS = 0xFFFF  # blocks.refcount is 16 bits wide
_MOST_BLOCKS = 0x7FFFFFFF  # tables are signed 32 bits wide
MOST = {
    "block_size": 1 << 16,
    "num_blocks": _MOST_BLOCKS,
    "cache_bytes": 1 << 50,
    "token_budget": 1 << 24,
    "max_running": MAX_SHARERS,
    "max_waiting": 1 << 20,
    "max_model_len": _MOST_BLOCKS,
    "max_chunk": 1 << 24,
}
"""The sizes that an operator may set, and the most that each may be."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What scheduling works under, every number known. ``max_chunk``: most prompt tokens of one request in a step."""

    block_size: int
    num_blocks: int
    token_budget: int
    max_running: int
    max_waiting: int
    max_model_len: int
    max_chunk: int
    prefix_caching: bool = True

    @property
    def blocks_per_row(self) -> int:
        return -(-self.max_model_len // self.block_size)

    @property
    def slots(self) -> int:
        """Most requests that the engine knows at a time."""
        return self.max_running + self.max_waiting


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes in tokens, blocks or bytes; ``num_blocks`` wins over ``cache_bytes``. ``max_model_len`` None: as long as
    the model and the cache allow. ``max_chunk`` None: a prompt may fill the whole step. Raises ConfigError."""

    block_size: int = 16
    num_blocks: int | None = None
    cache_bytes: int | None = None
    token_budget: int = 512
    max_running: int = 64
    max_waiting: int = 512
    max_model_len: int | None = None
    max_chunk: int | None = None
    prefix_caching: bool = True
    policy: str = "fcfs"
    backend: str = "reference"

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
            if value is not None and value > most:
                raise ConfigError(f"{name} must be at most {most}, not {value}")
        if self.token_budget < self.max_running:
            raise ConfigError(
                f"token_budget {self.token_budget} cannot give each of {self.max_running} running requests a token",
                "raise token_budget or lower max_running",
            )
        for name, known in (("policy", POLICIES), ("backend", BACKENDS)):
            if getattr(self, name) not in known:
                raise ConfigError(f"unknown {name} {getattr(self, name)!r}", f"one of: {', '.join(known)}")

    def limits(self, *, model_len: int, kv_bytes_per_token: int) -> Limits:
        """The numbers for a model that can read ``model_len`` tokens. Raises ConfigError when they do not fit it."""
        block_bytes = kv_bytes_per_token * self.block_size
        num_blocks = self.num_blocks or (self.cache_bytes or DEFAULT_CACHE_BYTES) // block_bytes
        if num_blocks < 1:
            raise ConfigError(
                f"a cache of {self.cache_bytes or DEFAULT_CACHE_BYTES} bytes does not hold one block of {block_bytes}",
                "set --num-blocks, or lower --block-size",
            )
        if self.max_model_len is not None and self.max_model_len > model_len:
            raise ConfigError(
                f"max_model_len {self.max_model_len} is more than the {model_len} tokens this model can read",
                f"at most max_model_len={model_len}",
            )
        return Limits(
            block_size=self.block_size,
            num_blocks=num_blocks,
            token_budget=self.token_budget,
            max_running=self.max_running,
            max_waiting=self.max_waiting,
            max_model_len=self.max_model_len or min(model_len, num_blocks * self.block_size),
            max_chunk=min(self.max_chunk or self.token_budget, self.token_budget),
            prefix_caching=self.prefix_caching,
        )
