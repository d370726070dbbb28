"""Implementation of the platform contract for Telegram."""

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
from platforms.core.errors import PlatformError, Rejected, Unauthorized, Unavailable
from platforms.core.retry import retry_call
from platforms.telegram import files
from platforms.telegram.capabilities import GROUP, PRIVATE, PRIVATE_WITHOUT_DRAFTS
from platforms.telegram.config import TelegramConfig
from platforms.telegram.decode import TelegramBot, UpdateDecoder
from platforms.telegram.errors import translate_errors
from platforms.telegram.http import AiohttpRequest, create_ssl_context
from platforms.telegram.payloads import TelegramChat
from platforms.telegram.polling import PollTiming, UpdatePoller, WebhookStillSet
from platforms.telegram.receive import TelegramReceiver
from platforms.telegram.send import TelegramSender
from platforms.telegram.webhook import Webhook, derive_secret
from sessions.values.exceptions import first_error
from sessions.values.tasks import start_task

log = logging.getLogger(__name__)

_MENU_KEY = "menu"
_MIGRATED_KEY = "moved"
_WEBHOOK_KEY = "webhook"
_MEMBER_CACHE_SECONDS = 300.0
_NON_MEMBER_CACHE_SECONDS = 30.0
_MAX_CACHED_MEMBERS = 2_000
_MEMBER_TIMEOUT_SECONDS = 2.0
_ANSWER_PAUSES = (0.2, 1.0, 3.0)  # seconds between attempts to answer a callback query
_MAX_COMMANDS = 100
_PRIVATE_COMMANDS = {"start"}
_MEMBER_STATUSES = {"creator", "administrator", "member"}


class TelegramAdapter:
    """Adapter for one bot account."""

    name = "telegram"
    capabilities = PRIVATE

    def __init__(
        self,
        config: TelegramConfig,
        surroundings: Surroundings,
        *,
        poll_timing: PollTiming = PollTiming(),  # noqa: B008 - frozen
        join_scale: float = 1.0,
    ) -> None:
        self.account = surroundings.account
        self._config = config
        self._surroundings = surroundings
        self._poll_timing = poll_timing
        self._join_scale = join_scale  # factor on the join windows; tests shorten them
        token = config.token.reveal()
        base = config.base_url.rstrip("/")
        self._ssl_context = create_ssl_context(base)
        self._file_base_url = f"{base}/file/bot{token}"
        self._request = AiohttpRequest(self._ssl_context, surroundings.clock.monotonic)
        self._bot = Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=self._request,
            get_updates_request=self._request,  # unused: the poller has its own connection
        )
        self._connect_lock = asyncio.Lock()
        self._is_connected = False
        self._is_initialized = False  # the library has fetched the bot's account
        self._sender = TelegramSender(self._bot, self._on_chat_migrated)
        self._migrated_chats: dict[int, int] = {}
        self._member_cache: OrderedDict[tuple[int, str], tuple[bool, float]] = OrderedDict()
        self._webhook: Webhook | None = None
        if config.mode == "webhook":
            configured = config.webhook_secret
            secret = configured.reveal() if configured else derive_secret(token)
            self._webhook = Webhook(config.webhook_url, secret)

    # --- the contract ------------------------------------------------------------------------

    def capabilities_in(self, address: Address) -> Capabilities:
        """See `VariesByChat`. Group ids are negative."""
        if address.chat.startswith("-"):
            return GROUP
        return PRIVATE if self._sender.has_drafts(address) else PRIVATE_WITHOUT_DRAFTS

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._run(inbox, ready, group)
        except BaseExceptionGroup as errors:
            if _is_cancelled():  # a simultaneous failure must not hide the cancellation
                raise asyncio.CancelledError from errors
            error = first_error(errors, prefer=PlatformError)
            if isinstance(error, Unauthorized):  # the caller does not restart this adapter
                await self.aclose()
            raise error from errors
        finally:
            if _is_cancelled():
                await self.aclose()

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        if not self._is_connected:
            await self._connect()
        return await self._sender.deliver(op)

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """See `Adapter`."""
        return files.download_file(self._bot, self._file_base_url, file, self._ssl_context)

    def routes(self) -> Sequence[BaseRoute]:
        """See `OffersRoutes`."""
        return self._webhook.routes() if self._webhook else ()

    def hosts(self) -> Sequence[str]:
        """See `OffersHosts`."""
        return self._webhook.hosts() if self._webhook else ()

    async def aclose(self) -> None:
        """Close the connections; the next `deliver` reopens them."""
        self._is_connected = self._is_initialized = False
        await self._request.shutdown()  # `Bot.shutdown` does nothing on an uninitialized bot
        await self._bot.shutdown()

    def claim_link(self, code: str) -> str:
        """See `OffersClaims`."""
        name = self._bot.bot.username if self._is_connected else ""
        return f"https://t.me/{name}?start={code}" if name else ""

    # --- while connected ---------------------------------------------------------------------

    async def _run(self, inbox: Inbox, ready: Callable[[], None], group: asyncio.TaskGroup) -> None:
        self._is_connected = False  # check the token again on every start
        await self._connect()
        self._sender.on_connected()
        me = TelegramBot(self._bot.id, self._bot.username)

        def in_background(work: Coroutine[Any, Any, None], description: str) -> None:
            start_task(group, _in_background(work, description), name=f"telegram: {description}")

        receiver = TelegramReceiver(
            UpdateDecoder(
                platform=self.name,
                account=self.account,
                bot=me,
                require_mention=self._config.require_mention,
                commands=lambda: self._surroundings.words,
            ),
            inbox,
            self._surroundings.shelf,
            self._surroundings.clock,
            answer_callback=lambda callback: in_background(
                self._answer_callback(callback), "answering a button press"
            ),
            is_member=self._is_member if self._surroundings.memberships else None,
            join_scale=self._join_scale,
        )
        await receiver.restore()
        start_task(group, receiver.submit_due_forever(), name="telegram: joining messages")
        start_task(group, receiver.decide_held_forever(), name="telegram: unknown memberships")
        in_background(self._publish_commands(), "publishing the command menu")
        if self._webhook:
            await self._surroundings.shelf.put(_WEBHOOK_KEY, self._config.webhook_url)
            await self._webhook.run(self._bot, receiver.receive, ready)
        else:
            await self._poll(me, receiver, ready)

    async def _connect(self) -> None:
        """Fetch the bot's account, which validates the token, and load the migrated chats."""
        async with self._connect_lock:
            if self._is_connected:
                return
            with translate_errors():
                if self._is_initialized:
                    await self._bot.get_me()
                else:
                    await self._bot.initialize()
            self._is_initialized = True
            text = await self._surroundings.shelf.get(_MIGRATED_KEY)
            self._migrated_chats = msgspec.json.decode(text, type=dict[int, int]) if text else {}
            self._sender.add_migrated_chats(self._migrated_chats)
            self._is_connected = True

    async def _poll(
        self, me: TelegramBot, receiver: TelegramReceiver, ready: Callable[[], None]
    ) -> None:
        poller = UpdatePoller(
            self._bot.base_url, me.id, self._surroundings, self._ssl_context, self._poll_timing
        )
        try:
            await poller.run(receiver.receive, ready)
        except WebhookStillSet as error:
            await self._remove_own_webhook()
            msg = "a webhook from an earlier run blocked polling; it has been removed"
            raise Unavailable(msg) from error

    async def _remove_own_webhook(self) -> None:
        """Remove the webhook if this gateway set it; raise `Unavailable` naming a foreign one."""
        with translate_errors():
            info = await self._bot.get_webhook_info()
        ours = await self._surroundings.shelf.get(_WEBHOOK_KEY)
        if info.url and info.url != ours:
            msg = (
                f"this bot's messages go to another program's webhook ({info.url}); remove that "
                'webhook (deleteWebhook), or set platforms.telegram.mode = "webhook"'
            )
            raise Unavailable(msg)
        with translate_errors():
            await self._bot.delete_webhook(drop_pending_updates=False)

    async def _answer_callback(self, callback: str) -> None:
        """Answer a callback query, so that clients stop the button's progress indicator."""

        async def answer() -> None:
            with translate_errors():
                await self._bot.answer_callback_query(callback)

        await retry_call(answer, _ANSWER_PAUSES)

    async def refresh_menu(self) -> None:
        """See `RefreshesMenu`; while not connected, the next connection does it."""
        if not self._is_connected:
            return
        try:
            await self._publish_commands()
        except PlatformError as error:
            log.info("telegram: publishing the command menu failed: %s", error)

    async def _publish_commands(self) -> None:
        """Publish Telegram's command menu if the commands changed since the last publication."""
        entries = [entry for entry in self._surroundings.menu if not entry.admin]
        entries = entries[:_MAX_COMMANDS]
        if not entries:
            return
        digest = f"{self._bot.id}:{hashlib.sha256(msgspec.json.encode(entries)).hexdigest()}"
        if await self._surroundings.shelf.get(_MENU_KEY) == digest:
            return
        commands = [BotCommand(entry.word, entry.summary[:256]) for entry in entries]
        in_groups = [command for command in commands if command.command not in _PRIVATE_COMMANDS]
        with translate_errors():
            await self._bot.set_my_commands(commands, BotCommandScopeDefault())
            await self._bot.set_my_commands(in_groups, BotCommandScopeAllGroupChats())
        await self._surroundings.shelf.put(_MENU_KEY, digest)

    # --- groups ------------------------------------------------------------------------------

    async def _is_member(self, chat: TelegramChat, person: str) -> bool | None:
        """Return whether `person` belongs to a group.

        If Telegram does not answer, the last known answer counts; None without one.
        Commenters on a channel post write into its discussion group without being members.
        """
        if chat.type == "group":
            return True
        now = self._surroundings.clock.monotonic()
        known = self._member_cache.get((chat.id, person))
        if known and known[1] > now:
            return known[0]
        if not person.isdigit():
            return False
        try:
            async with asyncio.timeout(_MEMBER_TIMEOUT_SECONDS):
                with translate_errors():
                    member = await self._bot.get_chat_member(chat.id, int(person))
        except Unauthorized:
            raise
        except (PlatformError, TimeoutError) as error:
            log.info(
                "telegram: cannot tell whether user %s is a member of group %d: %s",
                person,
                chat.id,
                error,
            )
            if known:
                return known[0]
            return False if isinstance(error, Rejected) else None
        belongs = member.status in _MEMBER_STATUSES or bool(getattr(member, "is_member", False))
        until = now + (_MEMBER_CACHE_SECONDS if belongs else _NON_MEMBER_CACHE_SECONDS)
        self._member_cache[chat.id, person] = (belongs, until)
        while len(self._member_cache) > _MAX_CACHED_MEMBERS:
            self._member_cache.popitem(last=False)
        return belongs

    async def _on_chat_migrated(self, old: int, new: int) -> None:
        log.info("telegram: group %d became supergroup %d", old, new)
        self._migrated_chats[old] = new
        await self._surroundings.shelf.put(
            _MIGRATED_KEY, msgspec.json.encode(self._migrated_chats).decode()
        )


async def _in_background(work: Awaitable[None], description: str) -> None:
    """Run best-effort work; log platform errors, except a refused token, which ends the adapter."""
    try:
        await work
    except Unauthorized:
        raise
    except PlatformError as error:
        log.info("telegram: %s failed: %s", description, error)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
