"""Sans-IO: types of Telegram's update objects, with only the fields that the adapter reads."""

from typing import Any

import msgspec

UPDATE_TYPES = ("message", "edited_message", "callback_query", "stopped_message_generation")
"""Values of `allowed_updates`; Telegram sends no other kinds."""


class TelegramUser(msgspec.Struct, frozen=True, kw_only=True):
    """A person or a bot."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        """Display name."""
        return f"{self.first_name} {self.last_name}".strip() or self.username


class TelegramChat(msgspec.Struct, frozen=True, kw_only=True):
    """A private chat, a group or a channel."""

    id: int
    type: str = "private"
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""

    @property
    def is_private(self) -> bool:
        """True for a chat with a single person."""
        return self.type == "private"

    @property
    def name(self) -> str:
        """Display name."""
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class MessageEntityPayload(msgspec.Struct, frozen=True, kw_only=True):
    """A formatted or special part of a text; offset and length count UTF-16 units."""

    type: str
    offset: int
    length: int
    user: TelegramUser | None = None
    url: str = ""
    language: str = ""


class TelegramFile(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment of any kind, with the union of the kinds' fields."""

    file_id: str
    file_unique_id: str = ""
    file_size: int | None = None
    file_name: str = ""
    mime_type: str = ""
    width: int = 0
    height: int = 0
    emoji: str = ""  # stickers only


class TelegramLocation(msgspec.Struct, frozen=True):
    """Geographic coordinates."""

    latitude: float
    longitude: float


class Venue(msgspec.Struct, frozen=True):
    """A named place."""

    title: str = ""
    address: str = ""


class Contact(msgspec.Struct, frozen=True):
    """A shared phone contact."""

    phone_number: str = ""
    first_name: str = ""
    last_name: str = ""


class Poll(msgspec.Struct, frozen=True):
    """A poll; its options are not read."""

    question: str = ""


class ForwardOrigin(msgspec.Struct, frozen=True):
    """Origin of a forwarded message: a user, a hidden user, a chat or a channel."""

    sender_user: TelegramUser | None = None
    sender_user_name: str = ""
    sender_chat: TelegramChat | None = None
    chat: TelegramChat | None = None

    @property
    def name(self) -> str:
        """Display name of the original author."""
        chat = self.sender_chat or self.chat
        if self.sender_user:
            return self.sender_user.name
        return chat.name if chat else self.sender_user_name


class TextQuote(msgspec.Struct, frozen=True):
    """The excerpt that a reply quotes."""

    text: str = ""


class ExternalReply(msgspec.Struct, frozen=True):
    """A replied-to message from another chat."""

    origin: ForwardOrigin | None = None


class TelegramMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message; the wire field `from` is called `sender`."""

    message_id: int
    chat: TelegramChat
    date: int = 0
    sender: TelegramUser | None = msgspec.field(default=None, name="from")
    sender_chat: TelegramChat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    is_automatic_forward: bool = False
    edit_date: int | None = None
    media_group_id: str = ""
    text: str = ""
    caption: str = ""
    entities: tuple[MessageEntityPayload, ...] = ()
    caption_entities: tuple[MessageEntityPayload, ...] = ()
    reply_to_message: "TelegramMessage | None" = None
    external_reply: ExternalReply | None = None
    quote: TextQuote | None = None
    forward_origin: ForwardOrigin | None = None
    photo: tuple[TelegramFile, ...] = ()
    document: TelegramFile | None = None
    audio: TelegramFile | None = None
    voice: TelegramFile | None = None
    video: TelegramFile | None = None
    video_note: TelegramFile | None = None
    animation: TelegramFile | None = None
    sticker: TelegramFile | None = None
    location: TelegramLocation | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    migrate_to_chat_id: int | None = None
    forum_topic_created: Any = None

    @property
    def text_or_caption(self) -> str:
        """Text of a text message, caption of a media message."""
        return self.text or self.caption

    @property
    def all_entities(self) -> tuple[MessageEntityPayload, ...]:
        """Entities of `text_or_caption`."""
        return self.entities or self.caption_entities


class CallbackQuery(msgspec.Struct, frozen=True):
    """The press of an inline button."""

    id: str
    sender: TelegramUser = msgspec.field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class StoppedGeneration(msgspec.Struct, frozen=True):
    """The press of Stop below a streaming draft."""

    chat: TelegramChat
    draft_id: int = 0
    message_thread_id: int | None = None


class TelegramUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update; at most one of its optional fields is set."""

    update_id: int
    message: TelegramMessage | None = None
    edited_message: TelegramMessage | None = None
    callback_query: CallbackQuery | None = None
    stopped_message_generation: StoppedGeneration | None = None


class UpdateNumber(msgspec.Struct, frozen=True):
    """The part common to all updates, readable even if the rest is malformed."""

    update_id: int


class UpdatesEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A getUpdates response with undecoded updates."""

    ok: bool = False
    result: tuple[msgspec.Raw, ...] = ()
    description: str = ""
    parameters: dict[str, Any] = {}


class ErrorParameters(msgspec.Struct, frozen=True):
    """Machine-readable part of an error response."""

    retry_after: int = 1


class RateLimitError(msgspec.Struct, frozen=True):
    """A 429 response."""

    parameters: ErrorParameters = ErrorParameters()


read_update = msgspec.json.Decoder(TelegramUpdate).decode
read_number = msgspec.json.Decoder(UpdateNumber).decode
