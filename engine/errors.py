"""What can go wrong in the engine, as types: callers decide by the type, people read message and hint."""


class EngineError(Exception):
    """``hint``: what to do next, in a line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ModelError(EngineError):
    """A model that cannot be loaded: missing, corrupt, truncated, unsupported or too large."""


class ConfigError(EngineError):
    """Limits that contradict each other or the model."""


class BadRequest(EngineError):
    """A request that makes no sense, or that can never fit: refused at the door. ``param``: the guilty field."""

    def __init__(self, message: str, hint: str = "", param: str | None = None) -> None:
        super().__init__(message, hint)
        self.param = param


class Overloaded(EngineError):
    """The queue is full; the client may come again."""
