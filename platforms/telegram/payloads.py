"""Sans-IO: the parts of Telegram's updates that we read; everything else in them is passed over."""

from typing import Any

import msgspec


class User(msgspec.Struct, frozen=True):
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


class Chat(msgspec.Struct, frozen=True):
    """A private chat, a group or a channel."""

    id: int
    type: str = "private"
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""

    @property
    def private(self) -> bool:
        """Whether this is a chat with one person alone."""
        return self.type == "private"

    @property
    def name(self) -> str:
        """What people see."""
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class Span(msgspec.Struct, frozen=True):
    """A part of a text that means something; counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    user: User | None = None
    url: str = ""
    language: str = ""


class Attachment(msgspec.Struct, frozen=True):
    """A file of any kind."""

    file_id: str
    file_unique_id: str = ""
    file_size: int | None = None
    file_name: str = ""
    mime_type: str = ""
    width: int = 0
    height: int = 0
    emoji: str = ""  # of a sticker


class Place(msgspec.Struct, frozen=True):
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


class Origin(msgspec.Struct, frozen=True):
    """Where something that was passed on comes from."""

    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None

    @property
    def name(self) -> str:
        """Who said it first."""
        chat = self.sender_chat or self.chat
        if self.sender_user:
            return self.sender_user.name
        return chat.name if chat else self.sender_user_name


class Excerpt(msgspec.Struct, frozen=True):
    """The part of a message that an answer is about."""

    text: str = ""


class ExternalReply(msgspec.Struct, frozen=True):
    """A message of another chat that this one answers."""

    origin: Origin | None = None


class Message(msgspec.Struct, frozen=True):
    """A message; `from` is spelled `sender`."""

    message_id: int
    chat: Chat
    date: int = 0
    sender: User | None = msgspec.field(default=None, name="from")
    sender_chat: Chat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    is_automatic_forward: bool = False
    edit_date: int | None = None
    media_group_id: str = ""
    text: str = ""
    caption: str = ""
    entities: tuple[Span, ...] = ()
    caption_entities: tuple[Span, ...] = ()
    reply_to_message: "Message | None" = None
    external_reply: ExternalReply | None = None
    quote: Excerpt | None = None
    forward_origin: Origin | None = None
    photo: tuple[Attachment, ...] = ()
    document: Attachment | None = None
    audio: Attachment | None = None
    voice: Attachment | None = None
    video: Attachment | None = None
    video_note: Attachment | None = None
    animation: Attachment | None = None
    sticker: Attachment | None = None
    location: Place | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    migrate_to_chat_id: int | None = None
    forum_topic_created: Any = None

    @property
    def words(self) -> str:
        """What is written, above a file or alone."""
        return self.text or self.caption

    @property
    def spans(self) -> tuple[Span, ...]:
        """What parts of the words mean something."""
        return self.entities or self.caption_entities


class Callback(msgspec.Struct, frozen=True):
    """A button was pressed."""

    id: str
    sender: User = msgspec.field(name="from")
    message: Message | None = None
    data: str = ""


class Stopped(msgspec.Struct, frozen=True):
    """Somebody pressed Stop below an answer that was being written."""

    chat: Chat
    draft_id: int = 0
    message_thread_id: int | None = None


class Update(msgspec.Struct, frozen=True):
    """Something happened."""

    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: Callback | None = None
    stopped_message_generation: Stopped | None = None


KINDS = ("message", "edited_message", "callback_query", "stopped_message_generation")
"""The updates that we want; Telegram keeps the others to itself."""


class Numbered(msgspec.Struct, frozen=True):
    """The least that every update has."""

    update_id: int


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer of the Bot API whose updates are still unread."""

    ok: bool = False
    result: tuple[msgspec.Raw, ...] = ()
    description: str = ""
    parameters: dict[str, Any] = {}


class Limits(msgspec.Struct, frozen=True):
    """What an error says beside its words."""

    retry_after: int = 1


class Refusal(msgspec.Struct, frozen=True):
    """An answer that says to wait."""

    parameters: Limits = Limits()


read_update = msgspec.json.Decoder(Update).decode
read_number = msgspec.json.Decoder(Numbered).decode
