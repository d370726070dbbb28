"""From a request over HTTP to the turn that answers it, whatever the form of its body."""

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from gateway.http.api.asked import ApiRequest
from gateway.http.api.requests import ApiRequests, TurnSubscription

_LARGE_BODY_BYTES = 200_000  # bytes of a body that is read beside the loop


async def subscribe_to_answer(
    request: Request, requests: ApiRequests, decode: Callable[[bytes], ApiRequest]
) -> tuple[ApiRequest, TurnSubscription]:
    """Have a request answered; raises what `Requests.begin` raises."""
    body = await request.body()
    asked = await asyncio.to_thread(decode, body) if len(body) > _LARGE_BODY_BYTES else decode(body)
    headers = request.headers
    session, key = headers.get("x-session-id", ""), headers.get("idempotency-key", "")
    return asked, await requests.begin(asked, session, key)
