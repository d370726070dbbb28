"""The shared part of all endpoints that answer: from an HTTP request to the response of its turn."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from starlette.requests import Request

from gateway.http.api.asked import ApiRequest
from gateway.http.api.conversation.named_session import read_named_session
from gateway.http.api.failures import invalid_request
from gateway.http.api.requests import ApiRequests, TurnSubscription
from gateway.http.api.stream import AnswerEncoder, AnswerResponse, Keepalive
from gateway.http.auth import requester_of
from gateway.http.user_token import SIGNED_USER_HEADER, InvalidUserToken
from gateway.observe.redact import Redactor
from sessions.values.clock import Clock

log = logging.getLogger(__name__)

_LARGE_BODY_BYTES = 200_000  # larger bodies are decoded in a thread


class AnswerEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Service that begins the turn of a request and builds the response that follows the turn."""

    requests: ApiRequests
    clock: Clock
    keepalive: Keepalive
    redactor: Redactor

    async def answer(
        self,
        request: Request,
        decode: Callable[[bytes], ApiRequest],
        encoder: Callable[[ApiRequest, TurnSubscription], AnswerEncoder],
    ) -> AnswerResponse:
        """Decode a request and begin its turn; raises like `ApiRequests.begin`."""
        asked, subscription = await self.begin(request, decode)
        return self.respond(asked, subscription, encoder(asked, subscription))

    def respond(
        self, asked: ApiRequest, subscription: TurnSubscription, encoder: AnswerEncoder
    ) -> AnswerResponse:
        """Return the response that follows a turn."""
        return AnswerResponse(
            subscription=subscription,
            encoder=encoder,
            clock=self.clock,
            keepalive=self.keepalive,
            stream=asked.stream,
            redactor=self.redactor,
            warnings=asked.warnings,
            with_reasoning=asked.wants_reasoning and self.requests.model_resolver.shows_reasoning(),
        )

    def stream_background(
        self, subscription: TurnSubscription, encoder: AnswerEncoder, *, wants_reasoning: bool
    ) -> AnswerResponse:
        """Return a stream of an answer in the background.

        Every stream of the answer has the same events, so that a client can resume after one. So
        the events depend only on the turn: no warnings, and one event for each piece of text.
        """
        return AnswerResponse(
            subscription=subscription,
            encoder=encoder,
            clock=self.clock,
            keepalive=self.keepalive,
            stream=True,
            in_background=True,
            redactor=self.redactor,
            with_reasoning=wants_reasoning and self.requests.model_resolver.shows_reasoning(),
        )

    async def begin(
        self, request: Request, decode: Callable[[bytes], ApiRequest]
    ) -> tuple[ApiRequest, TurnSubscription]:
        """Decode a request and subscribe to its turn; raises like `ApiRequests.begin`."""
        body = await request.body()
        large = len(body) > _LARGE_BODY_BYTES
        asked = await asyncio.to_thread(decode, body) if large else decode(body)
        session = read_named_session(request.headers)
        key = request.headers.get("idempotency-key", "")
        names = self.requests.client_names
        try:
            requester = names.identify(requester_of(request), request.headers, asked.user)
        except InvalidUserToken as error:
            log.warning(
                "api: a request was refused, because of its %s: %s", SIGNED_USER_HEADER, error
            )
            msg = f"The user in {SIGNED_USER_HEADER} cannot be verified: {error}."
            raise invalid_request(msg, SIGNED_USER_HEADER, "invalid_user_token") from error
        subscription = await self.requests.begin(asked, requester, session, key)
        for warning in asked.warnings:
            log.warning("api: request %s: %s", subscription.id, warning)
        return asked, subscription
