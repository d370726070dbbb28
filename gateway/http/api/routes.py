"""Routes of the API: authentication, and errors in the shape that clients of the route read."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.http.api.asked import ApiRequest
from gateway.http.api.chat import completions
from gateway.http.api.chat.body import read_request
from gateway.http.api.chat.form import ChatEncoder
from gateway.http.api.endpoint import AnswerEndpoint
from gateway.http.api.failures import (
    NOT_STORED,
    RequestRefused,
    model_not_found,
)
from gateway.http.api.messages.routes import MessagesRoutes
from gateway.http.api.models import Model, ModelList
from gateway.http.api.requests import ApiRequests, TurnSubscription
from gateway.http.api.responses.routes import ResponsesRoutes
from gateway.http.api.stream import Keepalive
from gateway.http.auth import Authenticate, set_requester
from gateway.http.errors import COMPLETIONS_NOT_STORED, HttpFailure
from gateway.http.messages_errors import MESSAGES_PATH, failure_for_path
from gateway.http.responses import failure_response
from gateway.observe.redact import Redactor
from sessions.conversation.actor import EventNotHandled
from sessions.errors import StoreError
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_Handler = Callable[[Request], Awaitable[ASGIApp]]


class ApiRoutes:
    """Routes of the API; every one needs the API key."""

    def __init__(
        self,
        requests: ApiRequests,
        clock: Clock,
        *,
        authenticate: Authenticate,
        keepalive: Keepalive,
        redactor: Redactor,
    ) -> None:
        self._requests = requests
        self._authenticate = authenticate
        self._endpoint = AnswerEndpoint(
            requests=requests,
            clock=clock,
            keepalive=keepalive,
            redactor=redactor,
        )
        self._responses = ResponsesRoutes(self._endpoint)
        self._messages = MessagesRoutes(self._endpoint)
        self._started_at = clock.now() // 1000

    def routes(self) -> Sequence[Route]:
        """Return the routes for the application."""
        responses, messages = self._responses, self._messages
        return [
            Route("/v1/chat/completions", self._require_key(self._chat), methods=["GET", "POST"]),
            Route("/v1/completions", self._require_key(self._complete), methods=["POST"]),
            Route("/v1/responses", self._require_key(responses.create), methods=["POST"]),
            Route(
                "/v1/responses/{id}",
                self._require_key(responses.dispatch),
                methods=["GET", "DELETE"],
            ),
            Route(
                "/v1/responses/{id}/cancel", self._require_key(responses.cancel), methods=["POST"]
            ),
            Route("/v1/responses/{id}/input_items", self._require_key(responses.input_items)),
            Route(MESSAGES_PATH, self._require_key(messages.create), methods=["POST"]),
            Route(
                f"{MESSAGES_PATH}/count_tokens",
                self._require_key(messages.count_tokens),
                methods=["POST"],
            ),
            Route("/v1/models", self._require_key(self._models)),
            Route("/v1/models/{name:path}", self._require_key(self._model)),
        ]

    # --- handlers -------------------------------------------------------------------------------

    async def _chat(self, request: Request) -> ASGIApp:
        if request.method != "POST":
            raise RequestRefused(COMPLETIONS_NOT_STORED)
        return await self._endpoint.answer(request, read_request, _chat_encoder)

    async def _complete(self, request: Request) -> ASGIApp:
        return await self._endpoint.answer(request, completions.read_request, _completion_encoder)

    async def _models(self, _: Request) -> ASGIApp:
        listed = [
            self._describe_model(*each)
            for each in await self._requests.model_resolver.list_models()
        ]
        return _json_response(ModelList(data=listed))

    async def _model(self, request: Request) -> ASGIApp:
        name = request.path_params["name"]
        for known, provider in await self._requests.model_resolver.list_models():
            if known == name:
                return _json_response(self._describe_model(known, provider))
        raise RequestRefused(model_not_found(name))

    def _describe_model(self, name: str, provider: str) -> Model:
        return Model(id=name, created=self._started_at, owned_by=provider)

    # --- authentication and errors --------------------------------------------------------------

    def _require_key(self, handler: _Handler) -> Callable[[Request], Awaitable[ASGIApp]]:
        """Wrap a handler: check the API key, and turn errors into responses in the shape of the path."""

        async def answer(request: Request) -> ASGIApp:
            requester = await self._authenticate(request)
            if isinstance(requester, HttpFailure):
                return _failure_response(request, requester)
            set_requester(request, requester)
            try:
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=400)  # the client is gone
            except RequestRefused as refused:
                return _failure_response(request, refused.failure)
            except (StoreError, EventNotHandled, OSError) as error:
                log.warning(
                    "api: %s %s was not stored: %s", request.method, request.url.path, error
                )
                return _failure_response(request, NOT_STORED)

        return answer


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


def _failure_response(request: Request, failure: HttpFailure) -> Response:
    return failure_response(failure_for_path(request.url.path, failure))


def _json_response(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
