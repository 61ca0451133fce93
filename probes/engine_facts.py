"""What a box says once and for all about its engine: version, model, limits, names."""

import msgspec
from msgspec import Struct

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.server import EngineConfig, ModelFacts, Server, ServerState


class EngineFacts(Struct, frozen=True):
    """As engine.hooks.EngineFacts, read back."""

    version: str | None = None
    model: ModelFacts | None = None
    config: EngineConfig = EngineConfig()
    kernels: tuple[str, ...] = ()
    blocks_per_row: int | None = None
    started_wall_ns: int | None = None
    started_mono_ns: int | None = None


class StaticFacts(Struct, frozen=True):
    """``facts`` are empty until the engine is ready, ``url`` is None until a server listens. ``notes``: what the writer
    of the box had to do differently."""

    engine: str = "unknown"
    facts: EngineFacts = EngineFacts()
    url: str | None = None
    notes: tuple[str, ...] = ()


def parse_facts(encoded: bytes | None) -> StaticFacts:
    """Empty for a box without facts yet. Raises msgspec.DecodeError for nonsense."""
    return msgspec.json.decode(encoded, type=StaticFacts) if encoded is not None else StaticFacts()


def server(static: StaticFacts, origin: Origin, *, pid: int | None, state: ServerState, path: str) -> Server:
    facts = static.facts
    return Server(
        origin=origin,
        engine=static.engine,
        version=facts.version,
        pid=pid,
        state=state,
        started_wall_ns=facts.started_wall_ns,
        started_mono_ns=facts.started_mono_ns,
        url=static.url,
        model=facts.model,
        config=facts.config,
        box_path=path,
    )
