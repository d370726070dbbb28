"""Handlers of `/v1/messages` and the endpoint below."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.http.api.asked import ApiRequest
from gateway.http.api.endpoint import AnswerEndpoint
from gateway.http.api.messages.body import read_conversation, read_request
from gateway.http.api.messages.counting import count_tokens
from gateway.http.api.messages.form import MessagesEncoder
from gateway.http.api.messages.shapes import TokenCount
from gateway.http.api.requests import TurnSubscription


class MessagesRoutes:
    """Route handlers for clients of Anthropic's API."""

    def __init__(self, endpoint: AnswerEndpoint) -> None:
        self._endpoint = endpoint

    async def create(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/messages`."""
        return await self._endpoint.answer(request, read_request, _encoder)

    async def count_tokens(self, request: Request) -> ASGIApp:
        """Handle `POST /v1/messages/count_tokens`."""
        asked, counted = await asyncio.to_thread(_count, await request.body())
        await self._endpoint.requests.model_resolver.resolve(asked.model)
        return Response(msgspec.json.encode(counted), media_type="application/json")


def _encoder(_: ApiRequest, subscription: TurnSubscription) -> MessagesEncoder:
    return MessagesEncoder(subscription.id, subscription.model)


def _count(body: bytes) -> tuple[ApiRequest, TokenCount]:
    asked = read_conversation(body)
    return asked, count_tokens(asked)
