"""Signed requests, the alternative to Socket Mode: signature check and Starlette endpoint."""

import re
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from slack_bolt.adapter.starlette.async_handler import to_async_bolt_request, to_starlette_response
from slack_bolt.async_app import AsyncBoltRequest
from slack_bolt.middleware.request_verification.async_request_verification import (
    AsyncRequestVerification,
)
from slack_bolt.response import BoltResponse
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier
from starlette.requests import Request
from starlette.responses import Response

from platforms.slack.dispatch import UNREADABLE, SlackDispatcher
from sessions.values.clock import Clock
from sessions.values.secret import Secret

EVENTS_PATH = "/slack/events"

_FORM = "application/x-www-form-urlencoded"
_STALE_BEFORE_WARNING = 3
_TIMESTAMP = re.compile(r"[0-9]{1,15}")


class SignatureCheck(AsyncRequestVerification):
    """bolt's check of signatures on the gateway's clock; reports when that clock is wrong.

    `trouble` receives a sentence when requests are refused for their age, and "" when that ends.
    """

    def __init__(
        self, secret: Secret, clock: Clock, trouble: Callable[[str], None] = lambda _: None
    ) -> None:
        super().__init__(secret.reveal())
        self._clock = _SignatureClock(clock)
        self._verifier = SignatureVerifier(secret.reveal(), self._clock)
        self._trouble = trouble
        self._stale_in_a_row = 0

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,  # noqa: ARG002 - bolt passes it
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002 - bolt's name for it
    ) -> BoltResponse:
        """Let a genuine and recent request pass; answer 401 to all others."""
        timestamp = req.headers.get("x-slack-request-timestamp", [""])[0]
        signature = req.headers.get("x-slack-signature", [""])[0]
        if not (_TIMESTAMP.fullmatch(timestamp) and signature.isascii()):
            return self._build_error_response()  # the verifier would raise
        if self.verifier.is_valid(req.raw_body, timestamp, signature):
            self._on_fresh_request()
            return await next()
        signed_at = SignatureVerifier(self._signing_secret, _FrozenClock(int(timestamp)))
        if signed_at.is_valid(req.raw_body, timestamp, signature):
            self._on_stale_request(self._clock.now() - int(timestamp))
        return self._build_error_response()

    def _on_stale_request(self, ahead: float) -> None:
        """Count a request that is genuine but old; several in a row mean that our clock is wrong.

        A single one may be a copy that is sent again.
        """
        self._stale_in_a_row += 1
        if self._stale_in_a_row >= _STALE_BEFORE_WARNING:
            minutes, way = round(abs(ahead) / 60), "ahead" if ahead > 0 else "behind"
            self._trouble(
                f"the clock of this machine is {minutes} min {way} of Slack's, so requests from "
                "Slack are refused; set the clock"
            )

    def _on_fresh_request(self) -> None:
        if self._stale_in_a_row:
            self._stale_in_a_row = 0
            self._trouble("")


class _SignatureClock(SignatureClock):
    """The gateway's clock, in the unit of the verifier."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now() / 1000


class _FrozenClock(SignatureClock):
    """A clock that stands still, so that the age of a request does not count."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return self._seconds


class SlackWebhook:
    """The Starlette endpoint; the response is sent after the commit."""

    def __init__(self, dispatcher: SlackDispatcher) -> None:
        self._dispatcher = dispatcher

    async def serve(self, request: Request) -> Response:
        """Answer one request; Slack repeats a request unless the status is 2xx."""
        try:
            bolt_request = _read_request(request, await request.body())
        except UNREADABLE:
            return Response("Not a request of Slack.\n", 400, media_type="text/plain")
        return to_starlette_response(await self._dispatcher.dispatch(bolt_request))


def _read_request(request: Request, body: bytes) -> AsyncBoltRequest:
    is_form = request.headers.get("content-type", "").startswith(_FORM)
    if not (is_form or body.startswith(b"{")):
        msg = "neither a form nor a JSON object"
        raise ValueError(msg)
    found = to_async_bolt_request(request, body)
    if is_form and not found.body:
        # bolt takes any form with the word "payload" for an interaction, even a command with that
        # word in the text, and returns an empty body.
        found.body = dict(parse_qsl(found.raw_body, keep_blank_values=True))
    return found
