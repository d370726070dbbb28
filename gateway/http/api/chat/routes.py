"""Handlers of `/v1/chat/completions` and `/v1/completions`."""

from starlette.requests import Request
from starlette.types import ASGIApp

from gateway.http.api.asked import ApiRequest
from gateway.http.api.chat import completions
from gateway.http.api.chat.body import read_request
from gateway.http.api.chat.form import ChatEncoder
from gateway.http.api.endpoint import AnswerEndpoint
from gateway.http.api.failures import RequestRefused
from gateway.http.api.requests import TurnSubscription
from gateway.http.errors import COMPLETIONS_NOT_STORED


class ChatRoutes:
    """Route handlers of the chat API."""

    def __init__(self, endpoint: AnswerEndpoint) -> None:
        self._endpoint = endpoint

    async def create(self, request: Request) -> ASGIApp:
        """Answer a chat; there is no list of stored completions."""
        if request.method != "POST":
            raise RequestRefused(COMPLETIONS_NOT_STORED)
        return await self._endpoint.answer(request, read_request, _chat_encoder)

    async def complete(self, request: Request) -> ASGIApp:
        """Answer a plain prompt."""
        return await self._endpoint.answer(request, completions.read_request, _completion_encoder)


def _chat_encoder(asked: ApiRequest, following: TurnSubscription) -> ChatEncoder:
    return ChatEncoder(
        following.id, following.model, following.created, include_usage=asked.include_usage
    )


def _completion_encoder(
    asked: ApiRequest, following: TurnSubscription
) -> completions.CompletionEncoder:
    return completions.CompletionEncoder(
        following.id, following.model, following.created, include_usage=asked.include_usage
    )
