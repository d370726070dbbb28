"""Handlers of `/v1/messages` and the endpoint below."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.http.api.asked import ApiRequest
from gateway.http.api.messages.body import read_conversation, read_request
from gateway.http.api.messages.counting import count_tokens
from gateway.http.api.messages.form import MessagesEncoder
from gateway.http.api.messages.shapes import TokenCount
from gateway.http.api.requests import ApiRequests, subscribe_to_answer
from gateway.http.api.stream import AnswerResponse
from gateway.observe.redact import Redactor
from sessions.values.clock import Clock


class MessagesRoutes:
    """Route handlers for clients of Anthropic's API."""

    def __init__(
        self,
        requests: ApiRequests,
        clock: Clock,
        keepalive_seconds: float,
        redactor: Redactor,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._keepalive_seconds = keepalive_seconds
        self._redactor = redactor

    async def create(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/messages`."""
        asked, following = await subscribe_to_answer(request, self._requests, read_request)
        encoder = MessagesEncoder(following.id, following.model)
        shown = asked.wants_reasoning and self._requests.model_resolver.shows_reasoning()
        return AnswerResponse(
            subscription=following,
            encoder=encoder,
            clock=self._clock,
            keepalive_seconds=self._keepalive_seconds,
            stream=asked.stream,
            redactor=self._redactor,
            warnings=asked.warnings,
            encode_reasoning=encoder.encode_reasoning if shown else None,
        )

    async def count_tokens(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/messages/count_tokens`."""
        asked, counted = await asyncio.to_thread(_count, await request.body())
        await self._requests.model_resolver.resolve(asked.model)
        return Response(msgspec.json.encode(counted), media_type="application/json")


def _count(body: bytes) -> tuple[ApiRequest, TokenCount]:
    asked = read_conversation(body)
    return asked, count_tokens(asked)
