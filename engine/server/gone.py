"""Drops the work for a client that has gone: nobody would read it, and it holds blocks that others wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.types import Receive

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


async def unless_gone(receive: Receive, work: Coroutine[None, None, Result]) -> Result:
    """``work``'s result. Cancels it and raises ClientGone when the client disconnects first; the request's body must
    have been read."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
