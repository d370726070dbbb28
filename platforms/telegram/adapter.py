"""Telegram as the gateway knows it."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec
from starlette.routing import BaseRoute
from telegram import Bot, BotCommand, BotCommandScopeAllGroupChats, BotCommandScopeDefault

from platforms.core.contract import Address, Capabilities, File, Inbox, Op, Receipt, Surroundings
from platforms.core.errors import PlatformError, Unauthorized, Unavailable, Unconfirmed
from platforms.telegram import files
from platforms.telegram.capabilities import EDITED, GROUP, PRIVATE
from platforms.telegram.config import TelegramConfig
from platforms.telegram.decode import Me, Reader
from platforms.telegram.errors import mapped
from platforms.telegram.http import Connections, trust
from platforms.telegram.payloads import Chat
from platforms.telegram.polling import (
    CALM_SECONDS,
    GRACE_SECONDS,
    POLL_SECONDS,
    RIVAL_PAUSE,
    Poller,
    WebhookLeft,
)
from platforms.telegram.receive import Intake
from platforms.telegram.send import Show
from platforms.telegram.webhook import Webhook, secret_of

log = logging.getLogger(__name__)

_MENU = "menu"
_MOVED = "moved"
_WEBHOOK = "webhook"
_MEMBERS_KNOWN = 300.0  # seconds
_STRANGERS_KNOWN = 30.0
_MOST_MEMBERS = 2_000
_MEMBER_SECONDS = 5.0
_ANSWER_PAUSES = (0.2, 1.0, 3.0)  # seconds between tries to answer a button
_MOST_COMMANDS = 100
_IN_GROUPS_HIDDEN = {"start"}
_PRESENT = {"creator", "administrator", "member"}


class TelegramAdapter:
    """One bot."""

    name = "telegram"
    capabilities = PRIVATE

    def __init__(
        self,
        config: TelegramConfig,
        surroundings: Surroundings,
        *,
        patience: float = POLL_SECONDS,
        grace: float = GRACE_SECONDS,
        joining: float = 1.0,
        rival_pause: float = RIVAL_PAUSE,
        calm: float = CALM_SECONDS,
    ) -> None:
        self.account = surroundings.account
        self._config = config
        self._given = surroundings
        self._patience = patience  # how long a question for updates stays open
        self._grace = grace
        self._joining = joining  # of the usual time that pieces are waited for
        self._rival_pause, self._calm = rival_pause, calm
        token = config.token.reveal()
        base = config.base_url.rstrip("/")
        self._trusted = trust(base)
        self._files = f"{base}/file/bot{token}"
        self._connections = Connections(self._trusted, surroundings.clock.monotonic)
        self._bot = Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=self._connections,
            get_updates_request=self._connections,  # unused: the poller has a connection of its own
        )
        self._opening = asyncio.Lock()
        self._open = False
        self._known = False  # the library has learnt who we are
        self._show = Show(self._bot, self._chat_moved)
        self._moved: dict[int, int] = {}
        self._members: OrderedDict[tuple[int, str], tuple[bool, float]] = OrderedDict()
        self._webhook: Webhook | None = None
        if config.mode == "webhook":
            given = config.webhook_secret
            secret = given.reveal() if given else secret_of(token)
            self._webhook = Webhook(config.webhook_url, secret)

    # --- the contract ------------------------------------------------------------------------

    def capabilities_in(self, address: Address) -> Capabilities:
        """See `VariesByChat`. The ids of groups are negative."""
        if address.chat.startswith("-"):
            return GROUP
        return PRIVATE if self._show.has_drafts(address) else EDITED

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._run(inbox, ready, group)
        except BaseExceptionGroup as errors:
            if _cancelled():  # a failure in the same moment must not hide that
                raise asyncio.CancelledError from errors
            error = _first(errors)
            if isinstance(error, Unauthorized):  # nobody will start this again
                await self.aclose()
            raise error from errors
        finally:
            if _cancelled():
                await self.aclose()

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        if not self._open:
            await self._connect()
        return await self._show.deliver(op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return files.pieces(self._bot, self._files, file, self._trusted)

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return self._webhook.routes() if self._webhook else ()

    def hosts(self) -> Sequence[str]:
        """See `OffersHosts`."""
        return self._webhook.hosts() if self._webhook else ()

    async def aclose(self) -> None:
        """Close the connections; delivering opens them again."""
        self._open = self._known = False
        await self._connections.shutdown()  # not the bot: it closes nothing before it was connected
        await self._bot.shutdown()

    def claim_link(self, code: str) -> str:
        """See `OffersClaims`."""
        name = self._bot.bot.username if self._open else ""
        return f"https://t.me/{name}?start={code}" if name else ""

    # --- while connected ---------------------------------------------------------------------

    async def _run(self, inbox: Inbox, ready: Callable[[], None], group: asyncio.TaskGroup) -> None:
        self._open = False  # whether the token still works shows here
        await self._connect()
        self._show.refresh()
        me = Me(self._bot.id, self._bot.username)

        def beside(work: Coroutine[Any, Any, None], what: str) -> None:
            group.create_task(_harmless(work, what), name=f"telegram: {what}")

        intake = Intake(
            Reader(
                self.name,
                self.account,
                me,
                self._config.require_mention,
                self._given.words,
            ),
            inbox,
            self._given.shelf,
            self._given.clock,
            answer=lambda callback: beside(self._answer(callback), "answering a button"),
            is_member=self._is_member if self._given.memberships else None,
            scale=self._joining,
        )
        await intake.restore()
        group.create_task(intake.hand_in_what_is_due(), name="telegram: joining")
        beside(self._tell_commands(), "telling our commands")
        if self._webhook:
            await self._given.shelf.put(_WEBHOOK, self._config.webhook_url)
            await self._webhook.run(self._bot, intake.take, ready)
        else:
            await self._poll(me, intake, ready)

    async def _connect(self) -> None:
        """Learn who we are; that also proves the token."""
        async with self._opening:
            if self._open:
                return
            with mapped():
                if self._known:
                    await self._bot.get_me()
                else:
                    await self._bot.initialize()
            self._known = True
            text = await self._given.shelf.get(_MOVED)
            self._moved = msgspec.json.decode(text, type=dict[int, int]) if text else {}
            self._show.follow(self._moved)
            self._open = True

    async def _poll(self, me: Me, intake: Intake, ready: Callable[[], None]) -> None:
        poller = Poller(
            self._bot.base_url,
            me.id,
            self._given.shelf,
            self._given.clock,
            self._trusted,
            trouble=self._given.trouble,
            patience=self._patience,
            grace=self._grace,
            rival_pause=self._rival_pause,
            calm=self._calm,
        )
        try:
            await poller.run(intake.take, ready)
        except WebhookLeft as error:
            await self._webhook_left_over()
            msg = "a webhook of an earlier start was in the way; it is removed now"
            raise Unavailable(msg) from error

    async def _webhook_left_over(self) -> None:
        """Remove a webhook that we set ourselves; another program's is named, and left alone."""
        with mapped():
            info = await self._bot.get_webhook_info()
        ours = await self._given.shelf.get(_WEBHOOK)
        if info.url and info.url != ours:
            msg = (
                f"this bot's messages go to a webhook of another program ({info.url}); remove it "
                'there (deleteWebhook), or set platforms.telegram.mode = "webhook"'
            )
            raise Unavailable(msg)
        with mapped():
            await self._bot.delete_webhook(drop_pending_updates=False)

    async def _answer(self, callback: str) -> None:
        """Stop the button from looking as if it were still pressed."""
        for pause in _ANSWER_PAUSES:
            try:
                with mapped():
                    await self._bot.answer_callback_query(callback)
            except (Unavailable, Unconfirmed) as error:
                told = error.retry_after if isinstance(error, Unavailable) else None
                await asyncio.sleep(max(pause, told or 0.0))
            else:
                return
        with mapped():
            await self._bot.answer_callback_query(callback)

    async def _tell_commands(self) -> None:
        """Show our commands in Telegram's menu, when they have changed."""
        entries = [each for each in self._given.commands if not each.admin][:_MOST_COMMANDS]
        if not entries:
            return
        told = f"{self._bot.id}:{hashlib.sha256(msgspec.json.encode(entries)).hexdigest()}"
        if await self._given.shelf.get(_MENU) == told:
            return
        commands = [BotCommand(each.word, each.summary[:256]) for each in entries]
        in_groups = [each for each in commands if each.command not in _IN_GROUPS_HIDDEN]
        with mapped():
            await self._bot.set_my_commands(commands, BotCommandScopeDefault())
            await self._bot.set_my_commands(in_groups, BotCommandScopeAllGroupChats())
        await self._given.shelf.put(_MENU, told)

    # --- groups ------------------------------------------------------------------------------

    async def _is_member(self, chat: Chat, person: str) -> bool:
        """Ask whether somebody belongs to a group: who comments on a channel's post need not."""
        if chat.type == "group":
            return True
        now = self._given.clock.monotonic()
        known = self._members.get((chat.id, person))
        if known and known[1] > now:
            return known[0]
        if not person.isdigit():
            return False
        try:
            async with asyncio.timeout(_MEMBER_SECONDS):
                with mapped():
                    found = await self._bot.get_chat_member(chat.id, int(person))
        except (PlatformError, TimeoutError) as error:
            log.info("whether %s belongs to %d is not known: %s", person, chat.id, error)
            return False
        belongs = found.status in _PRESENT or bool(getattr(found, "is_member", False))
        until = now + (_MEMBERS_KNOWN if belongs else _STRANGERS_KNOWN)
        self._members[chat.id, person] = (belongs, until)
        while len(self._members) > _MOST_MEMBERS:
            self._members.popitem(last=False)
        return belongs

    async def _chat_moved(self, old: int, new: int) -> None:
        log.info("the group %d is called %d now", old, new)
        self._moved[old] = new
        await self._given.shelf.put(_MOVED, msgspec.json.encode(self._moved).decode())


async def _harmless(work: Awaitable[None], what: str) -> None:
    """Do something beside that nobody waits for; its failure is only told."""
    try:
        await work
    except PlatformError as error:
        log.info("%s failed: %s", what, error)


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give the error that matters out of those that came together."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [errors]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            found.append(error)
    return next((each for each in found if isinstance(each, PlatformError)), found[0])
