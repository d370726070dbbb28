"""The other way in: requests that Slack sends us, each signed."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from platforms.core.errors import PlatformError
from platforms.slack.calls import Json
from sessions.values.clock import Clock
from sessions.values.secret import Secret

MAX_AGE_SECONDS = 300
"""Seconds that a request may be old, lest a copied one is sent again later."""

_STALE_BEFORE_WARNING = 3

SlackEventHandler = Callable[[str, Json], Awaitable[None]]


def is_signature_valid(secret: Secret, timestamp: str, signature: str, body: bytes) -> bool:
    """Check Slack's signature, version 0; how old it is is another question."""
    if not (timestamp.isascii() and timestamp.isdigit()):
        return False
    signed = b"v0:" + timestamp.encode() + b":" + body
    digest = hmac.new(secret.reveal().encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={digest}".encode(), signature.encode())


def clock_difference(timestamp: str, now: float) -> float:
    """By how much our clock is ahead of the moment at which a request was signed."""
    return now - int(timestamp)


class SlackWebhook:
    """Reads requests and answers once what they carry is stored."""

    def __init__(
        self, secret: Secret, clock: Clock, trouble: Callable[[str], None] = lambda _: None
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._trouble = trouble  # told what keeps it from working, and when that is over
        self._stale_in_a_row = 0
        self.handle_event: SlackEventHandler | None = None
        """Stores an event, by the kind of its envelope; None while nobody receives."""

    async def serve(self, request: Request) -> Response:
        """Answer one request; anything but a 2xx makes Slack send it again."""
        body = await request.body()
        timestamp = request.headers.get("x-slack-request-timestamp", "")
        signature = request.headers.get("x-slack-signature", "")
        if not is_signature_valid(self._secret, timestamp, signature, body):
            return Response("The signature does not fit.\n", 401, media_type="text/plain")
        apart = clock_difference(timestamp, self._clock.now() / 1000)
        if abs(apart) > MAX_AGE_SECONDS:
            self._on_stale_request(apart)
            return Response("The signature is of another time.\n", 401, media_type="text/plain")
        self._on_fresh_request()
        try:
            kind, payload = _parse_request(request.headers.get("content-type", ""), body)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            return Response("This is not what Slack sends.\n", 400, media_type="text/plain")
        if kind == "url_verification":
            return Response(str(payload.get("challenge") or ""), media_type="text/plain")
        if self.handle_event is None:
            return Response("Not yet; please again.\n", 503, media_type="text/plain")
        try:
            await self.handle_event(kind, payload)
        except PlatformError:  # not stored; the log says why
            return Response("Not now; please again.\n", 503, media_type="text/plain")
        return Response()

    def _on_stale_request(self, apart: float) -> None:
        """One such request may be a copy; several in a row mean that a clock is wrong, ours."""
        self._stale_in_a_row += 1
        if self._stale_in_a_row >= _STALE_BEFORE_WARNING:
            minutes, way = round(abs(apart) / 60), "ahead" if apart > 0 else "behind"
            self._trouble(
                f"the clock of this machine is {minutes} min {way} of Slack's, so what Slack "
                "sends cannot be trusted; set it right"
            )

    def _on_fresh_request(self) -> None:
        if self._stale_in_a_row:
            self._stale_in_a_row = 0
            self._trouble("")


def _parse_request(content_type: str, body: bytes) -> tuple[str, Json]:
    """Tell which kind of envelope a request stands for."""
    if content_type.startswith("application/x-www-form-urlencoded"):
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        if "payload" in form:
            return "interactive", _decode_object(form["payload"].encode())
        return "slash_commands", dict(form)
    payload = _decode_object(body)
    kind = payload.get("type")
    return ("url_verification" if kind == "url_verification" else "events_api"), payload


def _decode_object(text: bytes) -> Json:
    found: Json = msgspec.json.decode(text, type=dict[str, object])
    return found
