"""Execution of outgoing ops; a text that Telegram refuses is sent again in a plainer form."""

import asyncio
import contextlib
import logging
import re
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)

from platforms.core import document
from platforms.core.contract import (
    Address,
    Ask,
    Button,
    Delete,
    Draft,
    Edit,
    Op,
    Post,
    React,
    Receipt,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import ChatGone, Rejected
from platforms.core.split import text_length
from platforms.telegram import format_entities, format_rich
from platforms.telegram.capabilities import (
    CAPTION_LIMIT,
    MAX_ACTION_BYTES,
    MAX_PHOTO_BYTES,
    MAX_UPLOAD_BYTES,
    TEXT_LIMIT,
)
from platforms.telegram.errors import (
    DELETE_NOT_FOUND,
    NOT_MODIFIED,
    GroupMigrated,
    detect_missing_method,
    translate_errors,
)

log = logging.getLogger(__name__)

_UPLOAD_TIMEOUT_SECONDS = 600.0

_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
"""Previews are off, because Telegram would fetch addresses that a model wrote."""

_METHOD_NOT_FOUND = re.compile(r"endpoint .* not found", re.IGNORECASE)
_DRAFTS_NOT_ALLOWED = re.compile(r"DRAFT_PEER", re.IGNORECASE)
_NOT_ABOUT_THE_TEXT = re.compile(
    r"message to (?:edit|delete|be replied|react) |can't be (?:edited|deleted)|MESSAGE_ID_INVALID|"
    r"message thread not found|TOPIC_|message identifier|BUTTON_|reply markup|DRAFT_PEER",
    re.IGNORECASE,
)
_PHOTO_TYPES = {"image/jpeg", "image/png", "image/webp"}
_REACTIONS = {"✅": "👍", "❌": "👎"}
"""Replacements for receipt emoji that Telegram does not accept as reactions."""

_MAX_REMEMBERED = 500
_WIDE_LABEL = 14
_BUTTONS_PER_ROW = 3


class MessageForm(NamedTuple):
    """A text in one form: rich HTML, text with entities, or plain text."""

    text: str = ""
    entities: tuple[MessageEntity, ...] = ()
    html: str = ""  # of a rich message, whose other fields are empty


class TelegramSender:
    """Executor of ops over the Bot API; remembers which features the server and chats lack.

    `on_migrated` is called with the old and new id of a group that became a supergroup.
    """

    def __init__(self, bot: Bot, on_migrated: Callable[[int, int], Awaitable[None]]) -> None:
        self._bot = bot
        self._on_migrated = on_migrated
        self._migrated_chats: dict[int, int] = {}  # group id -> supergroup id
        self._supports_rich = True  # until the server reports the method as unknown
        self._supports_drafts = True  # likewise
        self._chats_without_drafts: OrderedDict[str, None] = OrderedDict()
        self._rich_refused: OrderedDict[str, None] = OrderedDict()  # keys of messages and drafts

    def add_migrated_chats(self, chats: dict[int, int]) -> None:
        """Add known group ids and the supergroup ids that replaced them."""
        self._migrated_chats.update(chats)

    def on_connected(self) -> None:
        """Assume that all features are available again; the server may have been upgraded."""
        self._supports_rich = self._supports_drafts = True
        self._chats_without_drafts.clear()

    def has_drafts(self, address: Address) -> bool:
        """Return whether a chat shows drafts; True until Telegram refuses one."""
        return self._supports_drafts and address.chat not in self._chats_without_drafts

    async def deliver(self, op: Op) -> Receipt:
        """See `Adapter`."""
        chat = self._chat(op.address)
        try:
            return await self._carry_out(op, chat)
        except GroupMigrated as error:
            # The first call was not carried out, so the second is no repetition.
            self._migrated_chats[chat] = error.chat
            await self._on_migrated(chat, error.chat)
        try:
            return await self._carry_out(op, self._migrated_chats[chat])
        except GroupMigrated as error:
            msg = f"group {chat} migrated twice, now to {error.chat}"
            raise ChatGone(msg) from error

    def _chat(self, address: Address) -> int:
        try:
            chat = int(address.chat)
        except ValueError:
            msg = f"{address.chat!r} is not a Telegram chat id."
            raise ChatGone(msg) from None
        return self._migrated_chats.get(chat, chat)

    async def _carry_out(self, op: Op, chat: int) -> Receipt:
        match op:
            case Post():
                return await self._post(op, chat, op.reply_to)
            case Ask():
                return await self._post(op, chat, None)
            case Edit():
                await self._edit(op, chat)
            case Draft():
                await self._draft(op, chat)
            case Delete():
                await self._delete(chat, _message_id(op.message))
            case Upload():
                return await self._upload(op, chat)
            case React():
                emoji = _REACTIONS.get(op.emoji, op.emoji)
                with translate_errors():
                    await self._bot.set_message_reaction(
                        chat, _message_id(op.message), [emoji] if emoji else []
                    )
            case Typing():
                await self._send_chat_action(op.address, chat, "typing")
        return Receipt()

    # --- texts

    async def _post(self, op: Post | Ask, chat: int, reply_to: str | None) -> Receipt:
        thread = _thread(op.address)
        keyboard = _keyboard(op.buttons)
        reply = None
        if reply_to and reply_to.isdigit():
            reply = ReplyParameters(int(reply_to), allow_sending_without_reply=True)

        async def send(form: MessageForm) -> str:
            if form.html:
                sent = await self._bot.do_api_request(
                    "sendRichMessage",
                    {
                        "chat_id": chat,
                        "message_thread_id": thread,
                        "rich_message": {"html": form.html},
                        "reply_parameters": reply,
                        "reply_markup": keyboard,
                    },
                )
                return str(sent["message_id"])
            message = await self._bot.send_message(
                chat,
                form.text,
                entities=form.entities,
                message_thread_id=thread,
                reply_parameters=reply,
                reply_markup=keyboard,
                link_preview_options=_NO_PREVIEW,
            )
            return str(message.message_id)

        return Receipt(await self._send_text(op.text, send))

    async def _edit(self, op: Edit, chat: int) -> None:
        message, keyboard = _message_id(op.message), _keyboard(op.buttons)

        async def edit(form: MessageForm) -> str:
            rich = {"rich_message": {"html": form.html}} if form.html else None
            await self._bot.edit_message_text(
                form.text or cast("str", None),  # a rich message has no text
                chat,
                message,
                entities=form.entities or None,
                reply_markup=keyboard,
                link_preview_options=None if form.html else _NO_PREVIEW,
                api_kwargs=rich,
            )
            return op.message

        await self._send_text(op.text, edit, key=f"{chat}:{message}")

    async def _draft(self, op: Draft, chat: int) -> None:
        if not op.text and not op.status:
            await self._send_chat_action(op.address, chat, "cancel")
            return
        if not self.has_drafts(op.address):
            msg = "This Telegram chat does not show drafts."
            raise Rejected(msg)
        thread = _thread(op.address)
        number = zlib.crc32(op.draft.encode()) & 0x7FFFFFFF or 1

        async def show(form: MessageForm) -> str:
            if form.html:
                await self._bot.do_api_request(
                    "sendRichMessageDraft",
                    {
                        "chat_id": chat,
                        "message_thread_id": thread,
                        "draft_id": number,
                        "rich_message": {"html": form.html},
                        "can_stop": True,
                    },
                )
            else:
                with detect_missing_method():
                    await self._bot.send_message_draft(
                        chat,
                        number,
                        form.text,
                        message_thread_id=thread,
                        entities=form.entities,
                        api_kwargs={"can_stop": True},
                    )
            return ""

        try:
            await self._send_text(op.text, show, op.status, key=f"{chat}:d{number}")
        except Rejected as error:
            self._on_draft_refused(op.address, str(error))
            raise

    def _on_draft_refused(self, address: Address, error_text: str) -> None:
        """Remember that the server or the chat lacks drafts; answers then stream by edits."""
        if _METHOD_NOT_FOUND.search(error_text):
            log.info("telegram: the server has no drafts; answers are streamed by editing messages")
            self._supports_drafts = False
        elif _DRAFTS_NOT_ALLOWED.search(error_text):
            self._chats_without_drafts[address.chat] = None
            while len(self._chats_without_drafts) > _MAX_REMEMBERED:
                self._chats_without_drafts.popitem(last=False)

    async def _send_text(
        self,
        md: str,
        send: Callable[[MessageForm], Awaitable[str]],
        status: str = "",
        key: str = "",
    ) -> str:
        """Send the text in the best form that Telegram accepts, so that formatting loses no text.

        `key` identifies a message or draft that will be updated again, so that a refused rich form
        is not tried a second time.
        """
        refusal = Rejected("The message is empty.")
        for form in self._forms(md, status, rich_too=key not in self._rich_refused):
            try:
                with translate_errors():
                    return await send(form)
            except ChatGone:
                raise
            except Rejected as error:
                if NOT_MODIFIED.search(str(error)):
                    return ""
                if _NOT_ABOUT_THE_TEXT.search(str(error)):
                    raise
                if _METHOD_NOT_FOUND.search(str(error)):
                    if not form.html:
                        raise
                    self._supports_rich = False
                elif form.html and key:
                    self._rich_refused[key] = None
                    while len(self._rich_refused) > _MAX_REMEMBERED:
                        self._rich_refused.popitem(last=False)
                log.info("telegram: the %s form of a text was refused: %s", _form_name(form), error)
                refusal = error
        raise refusal

    def _forms(self, md: str, status: str, *, rich_too: bool) -> Iterator[MessageForm]:
        """Yield the forms of a text, best first; the last form is the Markdown source."""
        blocks = document.parse(md)
        if status:
            note = document.Styled("italic", (document.PlainText(status),))
            blocks = (*blocks, document.Paragraph((note,)))
        compact = format_entities.format_text(blocks, compact=True)
        needs_rich = (
            format_rich.needs_rich_format(blocks)
            or len(compact.entities) > format_entities.MAX_ENTITIES
        )
        if rich_too and self._supports_rich and needs_rich and format_rich.fits_limits(blocks):
            html = format_rich.format_html(blocks)
            if len(html) <= format_rich.MAX_HTML_CHARS:
                yield MessageForm(html=html)
        formatted = MessageForm()
        for variant in (format_entities.format_text(blocks), compact):
            if variant.text and text_length(variant.text, Unit.UTF16) <= TEXT_LIMIT:
                formatted = MessageForm(variant.text, tuple(map(_entity, variant.entities)))
                yield formatted
                break
        source = MessageForm(md if md.strip() else status)
        if source.text.strip() and source != formatted:
            yield source

    # --- other ops

    async def _delete(self, chat: int, message: int) -> None:
        try:
            with translate_errors():
                await self._bot.delete_message(chat, message)
        except Rejected as error:
            if not DELETE_NOT_FOUND.search(str(error)):
                raise

    async def _send_chat_action(self, address: Address, chat: int, action: str) -> None:
        """Send a chat action; "cancel" also clears the draft."""
        with translate_errors():
            await self._bot.send_chat_action(chat, action, message_thread_id=_thread(address))

    async def _upload(self, op: Upload, chat: int) -> Receipt:
        path = Path(op.path)
        with _file_errors(op):
            size = (await asyncio.to_thread(path.stat)).st_size
        if size > MAX_UPLOAD_BYTES:
            msg = f"{op.name} is larger than Telegram's {MAX_UPLOAD_BYTES // 1_000_000} MB limit."
            raise Rejected(msg)
        refusal = Rejected("")
        for kind in dict.fromkeys((_media_kind(op, size), "document")):
            for caption in _captions(op.caption):
                try:
                    return await self._send_file(op, chat, path, kind, caption)
                except ChatGone:
                    raise
                except Rejected as error:
                    log.info(
                        "telegram: chat %d: %s was refused as %s: %s", chat, op.name, kind, error
                    )
                    refusal = error
        raise refusal

    async def _send_file(
        self, op: Upload, chat: int, path: Path, kind: str, caption: MessageForm
    ) -> Receipt:
        with _file_errors(op):
            handle = await asyncio.to_thread(path.open, "rb")
        try:
            arguments: dict[str, Any] = {
                kind: InputFile(handle, filename=op.name, attach=False, read_file_handle=False),
                "caption": caption.text or None,
                "caption_entities": caption.entities or None,
                "message_thread_id": _thread(op.address),
                "write_timeout": _UPLOAD_TIMEOUT_SECONDS,
                "read_timeout": _UPLOAD_TIMEOUT_SECONDS,
            }
            send = getattr(self._bot, f"send_{kind}")
            with translate_errors():
                message = await send(chat, **arguments)
        finally:
            await asyncio.to_thread(handle.close)
        return Receipt(str(message.message_id))


@contextlib.contextmanager
def _file_errors(op: Upload) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"{op.name} cannot be read: {error.strerror}"
        raise Rejected(msg) from error


def _captions(md: str) -> Iterator[MessageForm]:
    """Yield the forms of a caption, best first.

    A caption over the limit is cut, because Telegram would refuse the whole upload.
    """
    formatted = format_entities.format_text(document.parse(md), compact=True)
    if text_length(formatted.text, Unit.UTF16) <= CAPTION_LIMIT:
        yield MessageForm(formatted.text, tuple(map(_entity, formatted.entities)))
    if formatted.text:
        raw = md.encode("utf-16-le", "replace")[: 2 * (CAPTION_LIMIT - 1)]
        fits = text_length(md, Unit.UTF16) <= CAPTION_LIMIT
        yield MessageForm(md if fits else raw.decode("utf-16-le", "ignore") + "…")


def _media_kind(op: Upload, size: int) -> str:
    """Return the kind of message for a file, which is also the suffix of the `send_` method."""
    if op.media_type in _PHOTO_TYPES and size <= MAX_PHOTO_BYTES:
        return "photo"
    match op.media_type:
        case "audio/ogg":
            return "voice"
        case "audio/mpeg" | "audio/mp4":
            return "audio"
        case "video/mp4":
            return "video"
        case "image/gif":
            return "animation"
        case _:
            return "document"


def _entity(entity: format_entities.TextEntity) -> MessageEntity:
    return MessageEntity(
        entity.type,
        entity.offset,
        entity.length,
        url=entity.url or None,
        language=entity.language or None,
    )


def _keyboard(buttons: tuple[Button, ...]) -> InlineKeyboardMarkup | None:
    """Lay out buttons in rows of three, or one per row if a label is long."""
    if not buttons:
        return None
    for button in buttons:
        if len(button.action.encode()) > MAX_ACTION_BYTES:
            msg = f"The data of button {button.label!r} exceeds {MAX_ACTION_BYTES} bytes."
            raise Rejected(msg)
    keys = [InlineKeyboardButton(button.label, callback_data=button.action) for button in buttons]
    width = 1 if any(len(button.label) > _WIDE_LABEL for button in buttons) else _BUTTONS_PER_ROW
    return InlineKeyboardMarkup([keys[at : at + width] for at in range(0, len(keys), width)])


def _thread(address: Address) -> int | None:
    return int(address.thread) if address.thread.isdigit() else None


def _message_id(message: str) -> int:
    if not message.isdigit():
        msg = f"{message!r} is not a Telegram message id."
        raise Rejected(msg)
    return int(message)


def _form_name(form: MessageForm) -> str:
    return "rich" if form.html else "formatted" if form.entities else "plain"
