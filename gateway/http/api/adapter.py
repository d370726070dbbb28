"""The platform `api`: its routes, and what the gateway would show in a chat that nobody looks at."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from gateway.http.api.asking import begun
from gateway.http.api.chat_form import ChatForm, read_request
from gateway.http.api.failures import NOT_NOW, NOT_STORED, Refused, no_model
from gateway.http.api.listing import Model, ModelList
from gateway.http.api.requests import PLATFORM, Requests
from gateway.http.api.responses_routes import ResponsesRoutes
from gateway.http.api.stream import AnswerResponse
from gateway.http.auth import WRONG_KEY, shows_key
from gateway.http.responses import refusal
from gateway.observe.redact import Redactor
from gateway.turns.feeds import Feeds
from gateway.turns.news import Told
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
from platforms.web.attachments import Attachments
from sessions.conversation.actor import Unhandled
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
    command="`holdfast sessions {word}`",  # commands of a chat do not exist there
)

_Handler = Callable[[Request, Requests], Awaitable[ASGIApp]]


class ApiAdapter:
    """See `Adapter`. What a program is told it reads from its turn's feed; this delivers notices."""

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
        keepalive: float,
        redactor: Redactor,
    ) -> None:
        self._feeds = feeds
        self._clock = clock
        self._key = api_key
        self._keepalive = keepalive
        self._redactor = redactor
        self._pictures = Attachments(folder, clock)
        self._requests: Requests | None = None
        self._responses = ResponsesRoutes(clock, keepalive, redactor)
        self._since = clock.now() // 1000

    def open(self, requests: Requests) -> None:
        """From now on requests are taken."""
        self._requests = requests

    async def keep(self, pieces: AsyncIterator[bytes]) -> tuple[str, int]:
        """Keep a picture until its turn fetches it."""
        return await self._pictures.take(pieces)

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:  # noqa: ARG002 - see `Requests`
        """See `Adapter`."""
        ready()
        await asyncio.Event().wait()  # the HTTP server does the work; this one only lasts

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`. Notices that answer a request reach whoever waits for its answer."""
        if isinstance(op, Post) and op.notice and op.op.startswith("n_"):
            origin, _, rest = op.op.removeprefix("n_").partition(".")
            feed = self._feeds.known(origin)
            if feed:
                feed.tell(Told(rest.rpartition(".")[0], op.text))
        return Receipt(message=op.op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._pictures.read(file.ref, file.name)

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        responses = self._responses
        return [
            Route("/v1/chat/completions", self._inside(self._chat), methods=["POST"]),
            Route("/v1/responses", self._inside(responses.create), methods=["POST"]),
            Route("/v1/responses/{id}", self._inside(responses.one), methods=["GET", "DELETE"]),
            Route("/v1/responses/{id}/cancel", self._inside(responses.cancel), methods=["POST"]),
            Route("/v1/responses/{id}/input_items", self._inside(responses.input_items)),
            Route("/v1/models", self._inside(self._models)),
            Route("/v1/models/{name:path}", self._inside(self._model)),
        ]

    # --- what is served -------------------------------------------------------------------------

    async def _chat(self, request: Request, requests: Requests) -> ASGIApp:
        asked, following = await begun(request, requests, read_request)
        form = ChatForm(
            following.id,
            following.model,
            following.created,
            usage=asked.usage,
            sdk="x-stainless-lang" in request.headers,
        )
        return AnswerResponse(
            following,
            form,
            self._clock,
            self._keepalive,
            stream=asked.stream,
            redactor=self._redactor,
        )

    async def _models(self, _: Request, requests: Requests) -> ASGIApp:
        listed = [self._described(*each) for each in requests.naming.listed()]
        return _json(ModelList(data=listed))

    async def _model(self, request: Request, requests: Requests) -> ASGIApp:
        name = request.path_params["name"]
        for known, provider in requests.naming.listed():
            if known == name:
                return _json(self._described(known, provider))
        raise Refused(no_model(name))

    def _described(self, name: str, provider: str) -> Model:
        return Model(id=name, created=self._since, owned_by=provider)

    # --- who is let in --------------------------------------------------------------------------

    def _inside(self, handler: _Handler) -> Callable[[Request], Awaitable[ASGIApp]]:
        """Let in whoever has the key; every refusal is one that OpenAI's clients can read."""

        async def answer(request: Request) -> ASGIApp:
            if not shows_key(request, self._key):
                return refusal(WRONG_KEY)
            try:
                return await handler(request, self._opened())
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Refused as refused:
                return refusal(refused.failure)
            except (StoreError, Unhandled, OSError) as error:
                log.warning("a request over HTTP was not stored: %s", error)
                return refusal(NOT_STORED)

        return answer

    def _opened(self) -> Requests:
        if self._requests is None:
            raise Refused(NOT_NOW)
        return self._requests


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
