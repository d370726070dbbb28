"""Sans-IO: the parts of Telegram's updates that we read; everything else in them is passed over."""

from typing import Any

import msgspec


class TelegramUser(msgspec.Struct, frozen=True, kw_only=True):
    """A person or a program."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        """What people see."""
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
        """Whether this is a chat with one person alone."""
        return self.type == "private"

    @property
    def name(self) -> str:
        """What people see."""
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class MessageEntityPayload(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a text that means something; counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    user: TelegramUser | None = None
    url: str = ""
    language: str = ""


class TelegramFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of any kind."""

    file_id: str
    file_unique_id: str = ""
    file_size: int | None = None
    file_name: str = ""
    mime_type: str = ""
    width: int = 0
    height: int = 0
    emoji: str = ""  # of a sticker


class TelegramLocation(msgspec.Struct, frozen=True):
    """Somewhere on earth."""

    latitude: float
    longitude: float


class Venue(msgspec.Struct, frozen=True):
    """A place with a name."""

    title: str = ""
    address: str = ""


class Contact(msgspec.Struct, frozen=True):
    """Somebody's number."""

    phone_number: str = ""
    first_name: str = ""
    last_name: str = ""


class Poll(msgspec.Struct, frozen=True):
    """A question to everybody."""

    question: str = ""


class ForwardOrigin(msgspec.Struct, frozen=True):
    """Where something that was passed on comes from."""

    sender_user: TelegramUser | None = None
    sender_user_name: str = ""
    sender_chat: TelegramChat | None = None
    chat: TelegramChat | None = None

    @property
    def name(self) -> str:
        """Who said it first."""
        chat = self.sender_chat or self.chat
        if self.sender_user:
            return self.sender_user.name
        return chat.name if chat else self.sender_user_name


class TextQuote(msgspec.Struct, frozen=True):
    """The part of a message that an answer is about."""

    text: str = ""


class ExternalReply(msgspec.Struct, frozen=True):
    """A message of another chat that this one answers."""

    origin: ForwardOrigin | None = None


class TelegramMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message; `from` is spelled `sender`."""

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
        """What is written, above a file or alone."""
        return self.text or self.caption

    @property
    def all_entities(self) -> tuple[MessageEntityPayload, ...]:
        """What parts of the words mean something."""
        return self.entities or self.caption_entities


class CallbackQuery(msgspec.Struct, frozen=True):
    """A button was pressed."""

    id: str
    sender: TelegramUser = msgspec.field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class StoppedGeneration(msgspec.Struct, frozen=True):
    """Somebody pressed Stop below an answer that was being written."""

    chat: TelegramChat
    draft_id: int = 0
    message_thread_id: int | None = None


class TelegramUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened."""

    update_id: int
    message: TelegramMessage | None = None
    edited_message: TelegramMessage | None = None
    callback_query: CallbackQuery | None = None
    stopped_message_generation: StoppedGeneration | None = None


UPDATE_TYPES = ("message", "edited_message", "callback_query", "stopped_message_generation")
"""The updates that we want; Telegram keeps the others to itself."""


class UpdateNumber(msgspec.Struct, frozen=True):
    """The least that every update has."""

    update_id: int


class UpdatesEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer of the Bot API whose updates are still unread."""

    ok: bool = False
    result: tuple[msgspec.Raw, ...] = ()
    description: str = ""
    parameters: dict[str, Any] = {}


class ErrorParameters(msgspec.Struct, frozen=True):
    """What an error says beside its words."""

    retry_after: int = 1


class RateLimitError(msgspec.Struct, frozen=True):
    """An answer that says to wait."""

    parameters: ErrorParameters = ErrorParameters()


read_update = msgspec.json.Decoder(TelegramUpdate).decode
read_number = msgspec.json.Decoder(UpdateNumber).decode
