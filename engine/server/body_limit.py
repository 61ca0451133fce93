"""Reads a request's body, and keeps nothing of one that is beyond the limit."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from .refusal import Refusal

MOST_BODY_BYTES = 8 << 20
MOST_DRAINED_BYTES = 64 << 20
DRAIN_S = 5.0


async def read_body(request: Request, most: int = MOST_BODY_BYTES) -> bytes:
    """Raises Refusal (413), and Starlette's ClientDisconnect when the client goes away in the middle of it.

    What a client still sends of a body that is too large is read and dropped, up to a bound: closing the connection on
    it would reset it, and the client would not see the refusal.
    """
    declared = request.headers.get("content-length", "")
    too_large = declared.isdigit() and int(declared) > most
    if too_large and request.headers.get("expect", "").lower() == "100-continue":
        raise _too_large(most)  # it asks before it sends
    parts: list[bytes] = []
    received = 0
    try:
        async with asyncio.timeout(None) as limit:
            async for part in request.stream():
                received += len(part)
                if not too_large:
                    parts.append(part)
                    too_large = received > most
                if too_large:
                    parts.clear()
                    if limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + DRAIN_S)
                    if received > MOST_DRAINED_BYTES:
                        break
    except TimeoutError:
        raise _too_large(most) from None
    if too_large:
        raise _too_large(most)
    return b"".join(parts)


def _too_large(most: int) -> Refusal:
    return Refusal(
        413, f"the body is larger than {most >> 20} MiB", code="body_too_large", headers={"Connection": "close"}
    )
