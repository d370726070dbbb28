"""The Slack platform: lifecycle, delivery of ops and file downloads of one app."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http import HTTPStatus

import aiohttp
import msgspec
from slack_sdk.socket_mode.request import SocketModeRequest
from starlette.routing import BaseRoute, Route

from platforms.core.contract import (
    Address,
    Ask,
    Capabilities,
    Delete,
    Draft,
    Edit,
    File,
    Inbox,
    Op,
    Post,
    React,
    Receipt,
    Surroundings,
    Typing,
    Upload,
)
from platforms.core.errors import Rejected
from platforms.slack.calls import SlackClient
from platforms.slack.capabilities import CAPABILITIES, DM_CAPABILITIES
from platforms.slack.catch_up import CatchUp
from platforms.slack.config import SlackConfig
from platforms.slack.decode import SlackIdentity
from platforms.slack.dispatch import SlackDispatcher
from platforms.slack.files import SlackFiles
from platforms.slack.people import UserDirectory
from platforms.slack.rate_limit import RateLimitState
from platforms.slack.read_marks import is_dm, is_user
from platforms.slack.receive import SlackReceiver
from platforms.slack.send import SlackSender
from platforms.slack.socket_mode import SocketModeConnection
from platforms.slack.status import ThreadStatus
from platforms.slack.webhook import EVENTS_PATH, SignatureCheck, SlackWebhook
from platforms.slack.welcome import WelcomePrompts
from sessions.values.exceptions import first_error
from sessions.values.tasks import start_task

_RATE_LIMIT_KEY, _SESSIONS_KEY, _GREETED_KEY = "calls", "busy", "greeted"
_SAVE_SECONDS = 5.0


class SlackAdapter:
    """One app in one workspace."""

    name = "slack"
    capabilities = CAPABILITIES

    def __init__(self, config: SlackConfig, surroundings: Surroundings) -> None:
        self.account = surroundings.account
        self._clock = surroundings.clock
        self._shelf = surroundings.shelf
        self._calls = SlackClient(config.bot_token, config.base_url, surroundings.clock)
        self._people = UserDirectory(self._calls, self._shelf)
        self._thread_status = ThreadStatus(
            self._calls, lambda kept: self._shelf.put(_SESSIONS_KEY, kept)
        )
        self._welcome_prompts = WelcomePrompts(
            self._calls, lambda kept: self._shelf.put(_GREETED_KEY, kept)
        )
        self._sender = SlackSender(self._calls, self._thread_status)
        self._files = SlackFiles(self._calls, self._sender)
        self._receiver = SlackReceiver(
            self._calls,
            self._people,
            self._welcome_prompts,
            surroundings,
            require_mention=config.require_mention,
        )
        self._catch_up = CatchUp(self._receiver, self._sender, surroundings.clock)
        self._socket_mode: SocketModeConnection | None = None
        self._webhook: SlackWebhook | None = None
        self._dispatcher = SlackDispatcher(self._calls.base_url)
        if config.mode == "socket" and config.app_token:
            self._socket_mode = SocketModeConnection(
                self._calls, config.app_token, surroundings.trouble
            )
        elif config.signing_secret:
            self._webhook = SlackWebhook(
                self._dispatcher,
                SignatureCheck(config.signing_secret, surroundings.clock, surroundings.trouble),
            )
        self._identity: SlackIdentity | None = None
        self._dm_channels: dict[str, str] = {}  # by person; few: admins and people being paired

    def capabilities_in(self, address: Address) -> Capabilities:
        """See `VariesByChat`."""
        channel = _channel_of(address)
        return DM_CAPABILITIES if is_dm(channel) or is_user(channel) else CAPABILITIES

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return [Route(EVENTS_PATH, self._webhook.serve, methods=["POST"])] if self._webhook else []

    def hosts(self) -> Sequence[str]:
        """See `OffersHosts`. Any: only Slack knows the public name, and requests are signed."""
        return ["*"] if self._webhook else []

    # --- receiving ----------------------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        try:
            async with self._calls.open_session() as session:
                if self._identity is None:  # the first connection of this process
                    await self._restore_rate_limit()
                self._identity = await self._identify()
                await self._receiver.restore()
                self._thread_status.restore(await self._shelf.get(_SESSIONS_KEY))
                self._welcome_prompts.restore(await self._shelf.get(_GREETED_KEY))
                with (
                    self._receiver.receiving(inbox, self._identity),
                    self._dispatcher.receiving(self._receiver, self._identity),
                ):
                    await self._receive(session, ready)
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    async def _restore_rate_limit(self) -> None:
        if stored := await self._shelf.get(_RATE_LIMIT_KEY):
            state = msgspec.json.decode(stored, type=RateLimitState)
            self._calls.rate_limit.restore(state, self._clock.monotonic(), self._clock.now())

    async def _identify(self) -> SlackIdentity:
        answer = await self._calls.read("auth.test")
        team, user = str(answer.get("team_id") or ""), str(answer.get("user_id") or "")
        return SlackIdentity(team, user, str(answer.get("bot_id") or ""))

    async def _receive(self, session: aiohttp.ClientSession, ready: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._save_periodically())
            group.create_task(self._sender.run_live_edits())
            group.create_task(self._catch_up.run())
            group.create_task(self._people.delete_old())
            group.create_task(self._people.look_up_failed(self._catch_up.note_known_user))

            def handle(
                request: SocketModeRequest, acknowledge: Callable[[], Awaitable[None]]
            ) -> None:
                self._catch_up.note_event()
                # While the connection ends nothing is acknowledged, so Slack sends it again.
                start_task(group, self._dispatch(request, acknowledge))

            def on_connected() -> None:
                self._catch_up.note_connect()
                ready()

            if self._socket_mode:
                group.create_task(self._catch_up.watch_for_silence(self._socket_mode))
                group.create_task(self._socket_mode.watch_for_other_programs(session, handle))
                await self._socket_mode.run(session, handle, on_connected)
            elif self._webhook:
                on_connected()
                await asyncio.Event().wait()

    async def _dispatch(
        self, request: SocketModeRequest, acknowledge: Callable[[], Awaitable[None]]
    ) -> None:
        """Dispatch an envelope, and acknowledge every one that was accepted."""
        response = await self._dispatcher.dispatch_envelope(request.payload)
        if response.status == HTTPStatus.OK:
            await acknowledge()

    async def _save_periodically(self) -> None:
        last = RateLimitState(0)
        while True:
            await self._receiver.save_places()
            state = self._calls.rate_limit.dump(self._clock.monotonic(), self._clock.now())
            if state.calls != last.calls or state.blocked:
                await self._shelf.put(_RATE_LIMIT_KEY, msgspec.json.encode(state).decode())
                last = state
            await self._thread_status.retry_clearing()
            await asyncio.sleep(_SAVE_SECONDS)

    # --- delivering ---------------------------------------------------------------------------

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        channel = await self._channel(op.address)
        match op:
            case Post() if op.only_for and not is_dm(channel):
                outside = self._receiver.is_outside_thread(op.reply_to or "")
                return await self._sender.post_for_one(
                    op, channel, "" if outside else op.address.thread
                )
            case Post() | Ask():
                place = self._receiver.places.find(channel, op.address.thread)
                return await self._sender.post(op, channel, place, await self._own_user(op))
            case Edit():
                return await self._sender.edit(op, channel)
            case Delete():
                return await self._sender.delete(op, channel)
            case Upload():
                return await self._files.upload(op, channel, await self._own_user(op))
            case React():
                return await self._sender.react(op, channel)
            case Typing():
                return await self._sender.typing(op, channel)
            case Draft():
                msg = "Slack shows no drafts."
                raise Rejected(msg)

    async def _channel(self, address: Address) -> str:
        """Return the channel of an address; for a person, such as an admin, the DM with them."""
        channel = _channel_of(address)
        if not is_user(channel):
            return channel
        if channel not in self._dm_channels:
            opened = await self._calls.read("conversations.open", users=channel)
            self._dm_channels[channel] = str(opened["channel"]["id"])
        return self._dm_channels[channel]

    async def _own_user(self, op: Post | Ask | Upload) -> str:
        """Return our own user id for a repeat, which looks for our message; else an empty string."""
        if not op.again:
            return ""
        self._identity = self._identity or await self._identify()
        return self._identity.user

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return self._files.fetch(file)


def _channel_of(address: Address) -> str:
    return address.chat.rpartition("/")[2]
