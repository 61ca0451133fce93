"""Reads a request's body, and stops at a limit before it is in memory."""

from __future__ import annotations

from starlette.requests import Request

from .refusal import Refusal

MOST_BODY_BYTES = 8 << 20


async def read_body(request: Request, most: int = MOST_BODY_BYTES) -> bytes:
    """Raises Refusal (413), and Starlette's ClientDisconnect when the client goes away in the middle of it."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    received = 0
    async for part in request.stream():
        received += len(part)
        if received > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"the body is larger than {most >> 20} MiB", code="body_too_large")
