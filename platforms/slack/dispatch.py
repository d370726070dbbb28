"""The slack-bolt app, which matches and acknowledges everything that Slack sends.

The same `AsyncApp` serves both modes. Listeners return after the commit, and
`process_before_response` makes bolt await them in the caller's task. Without that flag bolt
acknowledges events first, runs listeners in tasks without an owner, and polls every 10 ms for the
acknowledgement of a command.
"""

import contextlib
import logging
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Protocol

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.authorization.async_authorize import AsyncAuthorize
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from platforms.core.errors import PlatformError, Unavailable
from platforms.slack.calls import Json
from platforms.slack.decode import SlackIdentity
from platforms.slack.manifest import EVENT_TYPES

_log = logging.getLogger(__name__)
_bolt_log = logging.getLogger(f"{__name__}.bolt")
# At lower levels bolt logs whole payloads, and warns about SLACK_BOT_TOKEN in the environment.
_bolt_log.setLevel(logging.ERROR)

UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that bolt raises for a body in a form that Slack does not document."""

_OWN_ACTION = re.compile(r"\Aholdfast\.")
_ANY = re.compile("")
_RECEIVED = "holdfast_received"


class SlackEventReceiver(Protocol):
    """Receives the requests that bolt has matched.

    Each method returns once the event is committed. After a `PlatformError` the event is not
    acknowledged, so Slack sends it again.
    """

    async def on_event(self, event: Json, team: str) -> None:
        """Take an event from the workspace `team`."""
        ...

    async def on_action(self, payload: Json) -> None:
        """Take the press of a button."""
        ...

    async def on_command(self, payload: Json) -> None:
        """Take a slash command."""
        ...


class SlackDispatcher:
    """One bolt app with all listeners.

    Callers dispatch genuine requests only: `SlackWebhook` checks signatures before it parses a
    body, and Socket Mode needs no signatures.
    """

    def __init__(self, base_url: str) -> None:
        self._receiver: SlackEventReceiver | None = None
        self._authorization = _StaticAuthorization()
        self._app = AsyncApp(
            name=_bolt_log.name,
            logger=_bolt_log,
            # Without a token: calls of listeners would bypass the rate limits of `SlackClient`.
            client=AsyncWebClient(base_url=base_url, retry_handlers=[]),
            authorize=self._authorization,
            process_before_response=True,
            raise_error_for_unhandled_request=True,
            request_verification_enabled=False,  # see the class
            attaching_function_token_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )
        for event_type in EVENT_TYPES:
            self._app.event(event_type)(self._on_event)
        self._app.action(_OWN_ACTION)(self._on_action)
        self._app.command(_ANY)(self._on_command)  # an operator may have renamed the command
        self._app.shortcut(_ANY)(self._on_shortcut)
        self._app.error(self._on_error)

    @contextlib.contextmanager
    def receiving(self, receiver: SlackEventReceiver, identity: SlackIdentity) -> Iterator[None]:
        """Hand events to `receiver` inside the block; refuse them with 503 at other times."""
        self._authorization.set_identity(identity)
        self._receiver = receiver
        try:
            yield
        finally:
            self._receiver = None

    async def dispatch_envelope(self, payload: Json) -> BoltResponse:
        """Dispatch the payload of an envelope, which may be acknowledged if the status is 200."""
        try:
            request = AsyncBoltRequest(body=payload, mode="socket_mode")
        except UNREADABLE as error:
            return _refuse_unreadable(error)
        return await self.dispatch(request)

    async def dispatch(self, request: AsyncBoltRequest) -> BoltResponse:
        """Dispatch a request; errors of the receiver other than `PlatformError` are raised."""
        try:
            return await self._app.async_dispatch(request)
        except UNREADABLE as error:
            if _RECEIVED in request.context:
                raise
            return _refuse_unreadable(error)

    # --- listeners ----------------------------------------------------------------------------

    async def _on_event(self, context: AsyncBoltContext, body: Json) -> None:
        await self._open_receiver(context).on_event(body["event"], str(body.get("team_id") or ""))

    async def _on_action(self, ack: AsyncAck, context: AsyncBoltContext, body: Json) -> None:
        await self._open_receiver(context).on_action(body)
        await ack()

    async def _on_command(self, ack: AsyncAck, context: AsyncBoltContext, body: Json) -> None:
        await self._open_receiver(context).on_command(body)
        await ack()

    async def _on_shortcut(self, ack: AsyncAck) -> None:
        """Acknowledge a shortcut; the manifest declares none, but an app may have some."""
        await ack()

    def _open_receiver(self, context: AsyncBoltContext) -> SlackEventReceiver:
        if self._receiver is None:
            msg = "Slack is not connected"
            raise Unavailable(msg)
        context[_RECEIVED] = True
        return self._receiver

    async def _on_error(self, context: AsyncBoltContext, error: Exception) -> BoltResponse:
        """Turn an error into a response; bolt would log the error and answer 500."""
        match error:
            case BoltUnhandledRequestError() if self._receiver:
                return BoltResponse(status=HTTPStatus.OK)  # of no interest
            case BoltUnhandledRequestError():
                return BoltResponse(status=HTTPStatus.SERVICE_UNAVAILABLE)
            case PlatformError():
                _log.warning(
                    "slack: an event in %s was not stored and is not acknowledged: %s",
                    context.channel_id,
                    error,
                )
                return BoltResponse(status=HTTPStatus.SERVICE_UNAVAILABLE)
            case _:
                raise error


class _StaticAuthorization(AsyncAuthorize):
    """Authorizes every request as the bot of this app, without asking `auth.test` each time."""

    def __init__(self) -> None:
        self._result = AuthorizeResult(enterprise_id=None, team_id=None)

    def set_identity(self, identity: SlackIdentity) -> None:
        """Tell bolt which user and bot are our own, because bolt ignores their events."""
        self._result = AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team,
            bot_user_id=identity.user or None,
            bot_id=identity.bot or None,
        )

    async def __call__(self, **_: Any) -> AuthorizeResult:  # noqa: ANN401 - all are ignored
        return self._result


def _refuse_unreadable(error: Exception) -> BoltResponse:
    _log.warning("slack: a payload cannot be read (%s)", type(error).__name__)
    return BoltResponse(status=HTTPStatus.BAD_REQUEST)
