"""Every answer that is not a success, in the shape that clients know: {"error": {message, type, param, code}}."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from ..errors import BadRequest, EngineError, Overloaded

RETRY_AFTER_S = 1


class Refusal(Exception):
    """``status``: HTTP status. ``kind``: "type" in the answer. ``param``: the guilty field. ``code``: for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, object]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return Response(msgspec.json.encode(self.body()), self.status, self.headers, "application/json")


def queue_full(message: str) -> Refusal:
    return Refusal(
        429, message, kind="rate_limit_error", code="queue_full", headers={"Retry-After": str(RETRY_AFTER_S)}
    )


def unavailable(message: str, code: str) -> Refusal:
    """The server lives but cannot take requests now."""
    return Refusal(503, message, kind="server_error", code=code, headers={"Retry-After": str(RETRY_AFTER_S)})


def from_engine(error: EngineError) -> Refusal:
    """What the engine said at its door, as HTTP; whatever else the engine raises is its own failure."""
    message = f"{error.message}: {error.hint}" if error.hint else error.message
    if isinstance(error, Overloaded):
        return queue_full(message)
    if isinstance(error, BadRequest):
        return Refusal(400, message, param=error.param)
    return Refusal(500, message, kind="server_error", code="engine_failed")
