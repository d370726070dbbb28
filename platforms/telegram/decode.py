"""Sans-IO: decoder of Telegram updates into inbound events."""

import re
from collections.abc import Callable, Collection

import msgspec

from platforms.core.actions import ButtonAction
from platforms.core.contract import (
    Address,
    File,
    Forward,
    Inbound,
    InboundAction,
    InboundEdit,
    InboundMessage,
    Part,
    Quote,
    Sender,
    Text,
)
from platforms.telegram.payloads import (
    CallbackQuery,
    MessageEntityPayload,
    StoppedGeneration,
    TelegramChat,
    TelegramFile,
    TelegramMessage,
    TelegramUpdate,
)
from sessions.values.frames import to_single_line

_MAX_QUOTE_CHARS = 4000

_COMMAND = re.compile(r"/(?P<word>[A-Za-z0-9_]+)(?:@(?P<bot>[A-Za-z0-9_]+))?")
_EXTENSIONS = {
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "video/mp4": ".mp4",
}


class TelegramBot(msgspec.Struct, frozen=True):
    """The bot's own account."""

    id: int
    username: str = ""


class UpdateDecoder(msgspec.Struct, frozen=True, kw_only=True):
    """Decoder of updates into inbound events."""

    platform: str
    account: str
    bot: TelegramBot
    require_mention: bool = True
    commands: Callable[[], frozenset[str]] = frozenset
    """Returns the known commands; in a group, other commands count only with `@bot`. Empty: all are
    known."""

    def decode(
        self, update: TelegramUpdate, now: int, active_threads: Collection[tuple[str, str]] = ()
    ) -> Inbound | None:
        """Return the event of an update, or None for an update without one.

        `active_threads` are the (chat, thread) pairs of topics in which the bot was addressed
        before: every message there counts as addressed.
        """
        if update.message:
            return self._message(update.message, active_threads)
        if update.edited_message:
            return self._edit(update.edited_message, update.update_id)
        if update.callback_query:
            return self._action(update.callback_query, now)
        if update.stopped_message_generation:
            return self._stop(update.stopped_message_generation, update.update_id, now)
        return None

    # --- messages

    def _message(
        self, message: TelegramMessage, active_threads: Collection[tuple[str, str]]
    ) -> InboundMessage | None:
        parts = self._parts(message)
        sender = self._sender(message)
        if not parts or sender is None or message.chat.type == "channel":
            return None
        address = self.address(message.chat, _thread(message))
        active = bool(address.thread) and (address.chat, address.thread) in active_threads
        return InboundMessage(
            id=str(message.message_id),
            at=message.date * 1000,
            address=address,
            sender=sender,
            parts=parts,
            direct=message.chat.is_private,
            addressed=message.chat.is_private or self._is_addressed(message, active=active),
            reply_to=self._quote(message),
        )

    def _edit(self, message: TelegramMessage, number: int) -> InboundEdit | None:
        parts = self._parts(message)
        sender = self._sender(message)
        if not parts or sender is None or message.chat.type == "channel":
            return None
        return InboundEdit(
            id=f"u{number}",
            at=(message.edit_date or message.date) * 1000,
            address=self.address(message.chat, _thread(message)),
            sender=sender,
            message=str(message.message_id),
            parts=parts,
            direct=message.chat.is_private,
        )

    def address(self, chat: TelegramChat, thread: int | None) -> Address:
        """Return the gateway's address of a chat or of one of its topics."""
        return Address(self.platform, str(chat.id), self.account, str(thread) if thread else "")

    def _sender(self, message: TelegramMessage) -> Sender | None:
        """Return the author: the group or channel itself for messages sent on its behalf."""
        if chat := message.sender_chat:
            return Sender(str(chat.id), chat.name, is_bot=message.is_automatic_forward)
        user = message.sender
        return Sender(str(user.id), user.name, user.is_bot) if user else None

    def _parts(self, message: TelegramMessage) -> tuple[Part, ...]:
        text, files = self._text(message), _files(message)
        if message.forward_origin:
            forward = Forward(message.forward_origin.name, text)
            return (forward, *files) if text or files else ()
        return (Text(text), *files) if text else tuple(files)

    def _text(self, message: TelegramMessage) -> str:
        text = restore_markup(message.text_or_caption, message.all_entities)
        if text and not message.chat.is_private and not message.forward_origin:
            text = self._strip_mention(text)
        others = []
        if sticker := message.sticker:
            others.append(f"[Sticker {to_single_line(sticker.emoji)}]".replace(" ]", "]"))
        if message.venue:
            title, where = map(to_single_line, (message.venue.title, message.venue.address))
            others.append(f"[Place: {title}, {where}]")
        if place := message.location:
            others.append(f"[Location: {place.latitude:.6f}, {place.longitude:.6f}]")
        if contact := message.contact:
            name = to_single_line(f"{contact.first_name} {contact.last_name}")
            others.append(f"[Contact: {name}, {to_single_line(contact.phone_number)}]")
        if message.poll:
            others.append(f"[Poll: {to_single_line(message.poll.question)}]")
        return "\n".join(filter(None, (text, *others)))

    def _strip_mention(self, text: str) -> str:
        """Remove a leading mention of the bot, so that the rest can be a command."""
        name = f"@{self.bot.username}".lower()
        bare = text.lstrip()
        if self.bot.username and bare.lower().startswith(name):
            rest = bare[len(name) :]
            if rest.strip() and not (rest[0].isalnum() or rest[0] == "_"):
                return rest.lstrip(" ,:\n")
        return text

    # --- addressed to the bot?

    def _is_addressed(self, message: TelegramMessage, *, active: bool) -> bool:
        if message.is_automatic_forward:
            return False
        command = self._is_our_command(message)
        if command is not None:
            return command
        if active or not self.require_mention:
            return True
        return self._is_mentioned(message) or self._is_reply_to_us(message)

    def _is_our_command(self, message: TelegramMessage) -> bool | None:
        """Return True for a command to this bot, False for another bot's, else None."""
        match = _COMMAND.match(message.text_or_caption)
        if match is None or message.forward_origin:
            return None
        if match["bot"]:
            return match["bot"].lower() == self.bot.username.lower()
        known = self.commands()
        if known and match["word"].lower() not in known:
            return None
        return True

    def _is_mentioned(self, message: TelegramMessage) -> bool:
        text = message.text_or_caption
        for span in message.all_entities:
            if span.type == "text_mention" and span.user and span.user.id == self.bot.id:
                return True
            if span.type == "mention":
                mention = slice_utf16(text, span.offset, span.length)
                if mention.lower() == f"@{self.bot.username}".lower():
                    return True
        return False

    def _is_reply_to_us(self, message: TelegramMessage) -> bool:
        answered = _replied_message(message)
        return bool(answered and answered.sender and answered.sender.id == self.bot.id)

    def _quote(self, message: TelegramMessage) -> Quote | None:
        answered = _replied_message(message)
        excerpt = message.quote.text if message.quote else ""
        if answered is None:
            origin = message.external_reply.origin if message.external_reply else None
            if not excerpt:
                return None
            return Quote(origin.name if origin else "", excerpt[:_MAX_QUOTE_CHARS])
        sender = self._sender(answered)
        text = (
            excerpt
            or self._text(answered)
            or "".join(f"[{each.name}]" for each in _files(answered))
        )
        if not text:
            return None
        return Quote(
            sender.name if sender else "", text[:_MAX_QUOTE_CHARS], str(answered.message_id)
        )

    # --- buttons

    def _action(self, callback: CallbackQuery, now: int) -> InboundAction | None:
        message = callback.message
        if message is None or not callback.data:
            return None
        return InboundAction(
            id=f"c{callback.id}",
            at=now,
            address=self.address(message.chat, _thread(message)),
            sender=Sender(str(callback.sender.id), callback.sender.name, callback.sender.is_bot),
            action=callback.data,
            message=str(message.message_id),
            direct=message.chat.is_private,
        )

    def _stop(self, stopped: StoppedGeneration, number: int, now: int) -> InboundAction:
        """Decode the Stop button of a draft.

        Drafts exist only in private chats, so the chat's id is the person's id.
        """
        return InboundAction(
            id=f"u{number}",
            at=now,
            address=self.address(stopped.chat, stopped.message_thread_id),
            sender=Sender(str(stopped.chat.id), stopped.chat.name),
            action=ButtonAction.STOP.value,
            direct=True,
        )


def slice_utf16(text: str, offset: int, length: int) -> str:
    """Return a slice of a text; `offset` and `length` count UTF-16 units."""
    raw = text.encode("utf-16-le", "replace")
    return raw[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace")


def restore_markup(text: str, spans: tuple[MessageEntityPayload, ...]) -> str:
    """Restore the Markdown of code and links, which Telegram delivers as entities."""
    marks: list[tuple[int, str]] = []
    for span in spans:
        end = span.offset + span.length
        if span.type == "code":
            marks += [(span.offset, "`"), (end, "`")]
        elif span.type == "pre":
            marks += [(span.offset, f"```{span.language}\n"), (end, "\n```")]
        elif span.type == "text_link" and span.url:
            marks += [(span.offset, "["), (end, f"]({span.url})")]
    if not marks:
        return text
    raw, out, last = text.encode("utf-16-le", "replace"), "", 0
    for offset, mark in sorted(marks, key=lambda mark: mark[0]):
        out += raw[2 * last : 2 * offset].decode("utf-16-le", "replace") + mark
        last = offset
    return out + raw[2 * last :].decode("utf-16-le", "replace")


def _thread(message: TelegramMessage) -> int | None:
    """Return the topic's id; outside topics `message_thread_id` only identifies a reply thread."""
    return message.message_thread_id if message.is_topic_message else None


def _replied_message(message: TelegramMessage) -> TelegramMessage | None:
    """Return the message replied to.

    A message in a topic that replies to nothing carries the topic's first message in this field.
    """
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return None
    if message.is_topic_message and answered.message_id == message.message_thread_id:
        return None
    return answered


def _files(message: TelegramMessage) -> list[File]:
    files: list[File] = []
    if message.photo:
        largest = max(message.photo, key=lambda each: each.width * each.height)
        files.append(_file(message, largest, "photo", "image/jpeg"))
    if message.animation:
        files.append(_file(message, message.animation, "animation", "video/mp4"))
    elif message.document:
        files.append(_file(message, message.document, "file", "application/octet-stream"))
    for attachment, kind, media_type in (
        (message.audio, "audio", "audio/mpeg"),
        (message.voice, "voice", "audio/ogg"),
        (message.video, "video", "video/mp4"),
        (message.video_note, "video", "video/mp4"),
    ):
        if attachment:
            files.append(_file(message, attachment, kind, media_type))
    return files


def _file(message: TelegramMessage, attachment: TelegramFile, kind: str, media_type: str) -> File:
    used = attachment.mime_type or media_type
    name = attachment.file_name or f"{kind}_{message.message_id}{_EXTENSIONS.get(used, '')}"
    return File(
        name, used, ref=attachment.file_id, size=attachment.file_size, voice=kind == "voice"
    )
