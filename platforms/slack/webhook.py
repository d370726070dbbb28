"""Signed requests, the alternative to Socket Mode: signature check and Starlette endpoint."""

import re
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qsl

from slack_bolt.adapter.starlette.async_handler import to_async_bolt_request, to_starlette_response
from slack_bolt.async_app import AsyncBoltRequest
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from platforms.slack.dispatch import UNREADABLE, SlackDispatcher
from sessions.values.clock import Clock
from sessions.values.secret import Secret

EVENTS_PATH = "/slack/events"

_FORM = "application/x-www-form-urlencoded"
_STALE_BEFORE_WARNING = 3
_TIMESTAMP = re.compile(r"[0-9]{1,15}")


class SignatureCheck:
    """Checks signatures on the gateway's clock; reports when that clock is wrong.

    `trouble` receives a sentence when requests are refused for their age, and "" when that ends.
    """

    def __init__(
        self, secret: Secret, clock: Clock, trouble: Callable[[str], None] = lambda _: None
    ) -> None:
        self._secret = secret
        self._clock = _SignatureClock(clock)
        self._verifier = SignatureVerifier(secret.reveal(), self._clock)
        self._trouble = trouble
        self._stale_in_a_row = 0

    def is_genuine(self, headers: Headers, body: bytes) -> bool:
        """Return True if Slack signed this request recently."""
        timestamp = headers.get("x-slack-request-timestamp", "")
        signature = headers.get("x-slack-signature", "")
        if not (_TIMESTAMP.fullmatch(timestamp) and signature.isascii()):
            return False  # the verifier would raise
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return False
        if self._verifier.is_valid(text, timestamp, signature):
            self._on_fresh_request()
            return True
        signed_at = SignatureVerifier(self._secret.reveal(), _FrozenClock(int(timestamp)))
        if signed_at.is_valid(text, timestamp, signature):
            self._on_stale_request(self._clock.now() - int(timestamp))
        return False

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

    def __init__(self, dispatcher: SlackDispatcher, signatures: SignatureCheck) -> None:
        self._dispatcher = dispatcher
        self._signatures = signatures

    async def serve(self, request: Request) -> Response:
        """Answer one request; Slack repeats a request unless the status is 2xx."""
        body = await request.body()
        if not self._signatures.is_genuine(request.headers, body):
            if _is_ssl_check(request, body):
                return Response()
            return JSONResponse({"error": "invalid request"}, HTTPStatus.UNAUTHORIZED)
        try:
            bolt_request = _read_request(request, body)
        except UNREADABLE:
            return Response(
                "Not a request of Slack.\n", HTTPStatus.BAD_REQUEST, media_type="text/plain"
            )
        return to_starlette_response(await self._dispatcher.dispatch(bolt_request))


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith(_FORM)


def _is_ssl_check(request: Request, body: bytes) -> bool:
    """Return True for Slack's test of the certificate, which needs no signature."""
    if not _is_form(request):
        return False
    return dict(parse_qsl(body.decode(errors="replace"))).get("ssl_check") == "1"


def _read_request(request: Request, body: bytes) -> AsyncBoltRequest:
    is_form = _is_form(request)
    if not (is_form or body.startswith(b"{")):
        msg = "neither a form nor a JSON object"
        raise ValueError(msg)
    found = to_async_bolt_request(request, body)
    if is_form and not found.body:
        # bolt takes any form with the word "payload" for an interaction, even a command with that
        # word in the text, and returns an empty body.
        found.body = dict(parse_qsl(found.raw_body, keep_blank_values=True))
    return found
