"""Routes of the API: authentication, and errors in the shape that clients of the route read.

The modules of each protocol are imported with its first request: most gateways serve one protocol
of the API or none, and the shapes of all protocols take a megabyte of memory.
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.http.api.failures import (
    NOT_STORED,
    RequestRefused,
    model_not_found,
)
from gateway.http.api.models import Model, ModelList
from gateway.http.api.requests import ApiRequests, subscribe_to_answer
from gateway.http.api.stream import AnswerResponse
from gateway.http.auth import Authenticate, set_requester
from gateway.http.errors import COMPLETIONS_NOT_STORED, HttpFailure
from gateway.http.messages_errors import MESSAGES_PATH, failure_for_path
from gateway.http.responses import failure_response
from gateway.observe.redact import Redactor
from sessions.conversation.actor import EventNotHandled
from sessions.errors import StoreError
from sessions.values.clock import Clock

if TYPE_CHECKING:
    from gateway.http.api.messages.routes import MessagesRoutes
    from gateway.http.api.responses_routes import ResponsesRoutes

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
        keepalive_seconds: float,
        redactor: Redactor,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._authenticate = authenticate
        self._keepalive_seconds = keepalive_seconds
        self._redactor = redactor
        self._started_at = clock.now() // 1000

    def routes(self) -> Sequence[Route]:
        """Return the routes for the application."""
        return [
            Route("/v1/chat/completions", self._require_key(self._chat), methods=["GET", "POST"]),
            Route("/v1/completions", self._require_key(self._complete), methods=["POST"]),
            Route("/v1/responses", self._require_key(self._create_response), methods=["POST"]),
            Route(
                "/v1/responses/{id}",
                self._require_key(self._response),
                methods=["GET", "DELETE"],
            ),
            Route(
                "/v1/responses/{id}/cancel",
                self._require_key(self._cancel_response),
                methods=["POST"],
            ),
            Route("/v1/responses/{id}/input_items", self._require_key(self._input_items)),
            Route(MESSAGES_PATH, self._require_key(self._create_message), methods=["POST"]),
            Route(
                f"{MESSAGES_PATH}/count_tokens",
                self._require_key(self._count_tokens),
                methods=["POST"],
            ),
            Route("/v1/models", self._require_key(self._models)),
            Route("/v1/models/{name:path}", self._require_key(self._model)),
        ]

    # --- handlers -------------------------------------------------------------------------------

    @functools.cached_property
    def _responses(self) -> "ResponsesRoutes":
        from gateway.http.api.responses_routes import ResponsesRoutes

        return ResponsesRoutes(self._requests, self._clock, self._keepalive_seconds, self._redactor)

    async def _create_response(self, request: Request) -> ASGIApp:
        return await self._responses.create(request)

    async def _response(self, request: Request) -> ASGIApp:
        return await self._responses.dispatch(request)

    async def _cancel_response(self, request: Request) -> ASGIApp:
        return await self._responses.cancel(request)

    async def _input_items(self, request: Request) -> ASGIApp:
        return await self._responses.input_items(request)

    @functools.cached_property
    def _messages(self) -> "MessagesRoutes":
        from gateway.http.api.messages.routes import MessagesRoutes

        return MessagesRoutes(self._requests, self._clock, self._keepalive_seconds, self._redactor)

    async def _create_message(self, request: Request) -> ASGIApp:
        return await self._messages.create(request)

    async def _count_tokens(self, request: Request) -> ASGIApp:
        return await self._messages.count_tokens(request)

    async def _chat(self, request: Request) -> ASGIApp:
        if request.method != "POST":
            raise RequestRefused(COMPLETIONS_NOT_STORED)
        from gateway.http.api.chat_form import ChatEncoder, read_request  # noqa: PLC0415 - see the module

        asked, following = await subscribe_to_answer(request, self._requests, read_request)
        form = ChatEncoder(
            following.id,
            following.model,
            following.created,
            include_usage=asked.include_usage,
        )
        return AnswerResponse(
            subscription=following,
            encoder=form,
            clock=self._clock,
            keepalive_seconds=self._keepalive_seconds,
            stream=asked.stream,
            redactor=self._redactor,
            warnings=asked.warnings,
        )

    async def _complete(self, request: Request) -> ASGIApp:
        from gateway.http.api.plain import completions  # noqa: PLC0415 - see the module

        asked, following = await subscribe_to_answer(
            request, self._requests, completions.read_request
        )
        return AnswerResponse(
            subscription=following,
            encoder=completions.CompletionEncoder(
                following.id,
                following.model,
                following.created,
                include_usage=asked.include_usage,
            ),
            clock=self._clock,
            keepalive_seconds=self._keepalive_seconds,
            stream=asked.stream,
            redactor=self._redactor,
        )

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


def _failure_response(request: Request, failure: HttpFailure) -> Response:
    return failure_response(failure_for_path(request.url.path, failure))


def _json_response(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
