"""The platform `api`: its routes, and delivery of notices to the clients of running turns."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from gateway.http.api.chat_form import ChatEncoder, read_request
from gateway.http.api.failures import NOT_READY, NOT_STORED, RequestRefused, model_not_found
from gateway.http.api.models import Model, ModelList
from gateway.http.api.requests import PLATFORM, ApiRequests, subscribe_to_answer
from gateway.http.api.responses_routes import ResponsesRoutes
from gateway.http.api.stream import AnswerResponse
from gateway.http.auth import INVALID_API_KEY, has_valid_key
from gateway.http.responses import failure_response
from gateway.observe.redact import Redactor
from gateway.turns.feed_events import FeedNotice
from gateway.turns.feeds import Feeds
from platforms.core.contract import (
    Capabilities,
    File,
    Inbox,
    Live,
    Op,
    Post,
    Receipt,
    Repeat,
    Unit,
)
from platforms.web.attachments import UploadFolder
from sessions.conversation.actor import EventNotHandled
from sessions.errors import StoreError
from sessions.values.clock import Clock
from sessions.values.secret import Secret

log = logging.getLogger(__name__)

CAPABILITIES = Capabilities(
    text_limit=10_000_000,
    unit=Unit.CHARACTERS,
    live=Live.NONE,
    repeat=Repeat.ALWAYS,
    burst=1_000,
    per_second=1_000.0,
    command="`holdfast sessions {word}`",  # API clients have no chat commands
)

_Handler = Callable[[Request, ApiRequests], Awaitable[ASGIApp]]


class ApiAdapter:
    """See `Adapter`. Clients read answers from the feed of a turn; `deliver` adds the notices."""

    name = PLATFORM
    account = ""
    capabilities = CAPABILITIES

    def __init__(
        self,
        feeds: Feeds,
        clock: Clock,
        folder: Path,
        *,
        api_key: Secret | None,
        keepalive_seconds: float,
        redactor: Redactor,
    ) -> None:
        self._feeds = feeds
        self._clock = clock
        self._api_key = api_key
        self._keepalive_seconds = keepalive_seconds
        self._redactor = redactor
        self._pictures = UploadFolder(folder, clock)
        self._requests: ApiRequests | None = None
        self._responses = ResponsesRoutes(clock, keepalive_seconds, redactor)
        self._started_at = clock.now() // 1000

    def open(self, requests: ApiRequests) -> None:
        """Begin to accept requests."""
        self._requests = requests

    async def store_picture(self, pieces: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store a picture until its turn fetches it; returns its reference and size."""
        return await self._pictures.save(pieces)

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:  # noqa: ARG002 - see `ApiRequests`
        """See `Adapter`."""
        ready()
        await asyncio.Event().wait()  # the routes do the work

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`. Publish a notice about a request to the clients that follow its turn."""
        if isinstance(op, Post) and op.notice and op.op.startswith("n_"):
            origin, _, rest = op.op.removeprefix("n_").partition(".")
            feed = self._feeds.get(origin)
            if feed:
                feed.publish(FeedNotice(rest.rpartition(".")[0], op.text))
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._pictures.read(file.ref, file.name)

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        responses = self._responses
        return [
            Route("/v1/chat/completions", self._require_key(self._chat), methods=["POST"]),
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
            Route("/v1/models", self._require_key(self._models)),
            Route("/v1/models/{name:path}", self._require_key(self._model)),
        ]

    # --- handlers -------------------------------------------------------------------------------

    async def _chat(self, request: Request, requests: ApiRequests) -> ASGIApp:
        asked, following = await subscribe_to_answer(request, requests, read_request)
        form = ChatEncoder(
            following.id,
            following.model,
            following.created,
            include_usage=asked.include_usage,
            chunk_like="x-stainless-lang" in request.headers,
        )
        return AnswerResponse(
            subscription=following,
            encoder=form,
            clock=self._clock,
            keepalive_seconds=self._keepalive_seconds,
            stream=asked.stream,
            redactor=self._redactor,
        )

    async def _models(self, _: Request, requests: ApiRequests) -> ASGIApp:
        listed = [self._describe_model(*each) for each in requests.model_resolver.list_models()]
        return _json_response(ModelList(data=listed))

    async def _model(self, request: Request, requests: ApiRequests) -> ASGIApp:
        name = request.path_params["name"]
        for known, provider in requests.model_resolver.list_models():
            if known == name:
                return _json_response(self._describe_model(known, provider))
        raise RequestRefused(model_not_found(name))

    def _describe_model(self, name: str, provider: str) -> Model:
        return Model(id=name, created=self._started_at, owned_by=provider)

    # --- authentication and errors --------------------------------------------------------------

    def _require_key(self, handler: _Handler) -> Callable[[Request], Awaitable[ASGIApp]]:
        """Wrap a handler: check the API key, and turn errors into responses in OpenAI's shape."""

        async def answer(request: Request) -> ASGIApp:
            if not has_valid_key(request, self._api_key):
                return failure_response(INVALID_API_KEY)
            try:
                return await handler(request, self._require_requests())
            except ClientDisconnect:
                return Response(status_code=400)  # the client is gone
            except RequestRefused as refused:
                return failure_response(refused.failure)
            except (StoreError, EventNotHandled, OSError) as error:
                log.warning(
                    "api: %s %s was not stored: %s", request.method, request.url.path, error
                )
                return failure_response(NOT_STORED)

        return answer

    def _require_requests(self) -> ApiRequests:
        if self._requests is None:
            raise RequestRefused(NOT_READY)
        return self._requests


def _json_response(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
