"""From a request over HTTP to the turn that answers it, whatever the form of its body."""

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from gateway.http.api.asked import Asked
from gateway.http.api.requests import Following, Requests

_LARGE = 200_000  # bytes of a body that is read beside the loop


async def begun(
    request: Request, requests: Requests, read: Callable[[bytes], Asked]
) -> tuple[Asked, Following]:
    """Have a request answered; raises what `Requests.begin` raises."""
    body = await request.body()
    asked = await asyncio.to_thread(read, body) if len(body) > _LARGE else read(body)
    headers = request.headers
    session, key = headers.get("x-session-id", ""), headers.get("idempotency-key", "")
    return asked, await requests.begin(asked, session, key)
