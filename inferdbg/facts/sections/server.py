"""What is running: the engine, its process, its model and its limits. Changes only when it restarts."""

from typing import Literal

from msgspec import Struct

from inferdbg.facts.provenance import Origin

ServerState = Literal["alive", "dead", "orphaned", "stopped cleanly", "copied", "core file"]
"""``orphaned``: its front end is gone; the process lives on and serves nobody. ``copied``: this is a copy of the black
box of an engine that still runs, and stands at the moment of the copying. ``core file``: how a process was when its
core was written; whether it died of that the core does not tell."""


class ModelFacts(Struct, frozen=True, gc=False, omit_defaults=True):
    """Shape of the model; what the arithmetic of memory and FLOPs needs. Bytes are as held in memory."""

    name: str
    architecture: str | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    vocabulary: int | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    kv_bytes_per_token: int | None = None


class EngineConfig(Struct, frozen=True, gc=False, omit_defaults=True):
    """The limits that scheduling works under. ``token_budget``: most tokens of one step; ``max_running``: most
    requests of one step; ``max_model_len``: longest sequence in tokens."""

    block_size: int | None = None
    num_blocks: int | None = None
    token_budget: int | None = None
    max_running: int | None = None
    max_waiting: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    policy: str | None = None
    backend: str | None = None


class Health(Struct, frozen=True, gc=False, omit_defaults=True):
    """What /health answered when it was last asked (``mono_ns``), and how long that took. ``answer`` is the HTTP status
    (``200``, ``503``) or why there was none: ``refused``, ``no answer``, ``broken``. A server that is asked for its
    health speaks of its front end only: 200 does not say that the engine moves."""

    answer: str
    took_ns: int
    mono_ns: int


class Server(Struct, frozen=True, gc=False, omit_defaults=True):
    """``restarts``: how often it was seen to begin anew while it was looked at."""

    origin: Origin
    engine: str
    version: str | None = None
    pid: int | None = None
    state: ServerState = "alive"
    started_wall_ns: int | None = None
    started_mono_ns: int | None = None
    url: str | None = None
    model: ModelFacts | None = None
    config: EngineConfig | None = None
    box_path: str | None = None
    health: Health | None = None
    restarts: int | None = None
