"""The adapter contract: one attribute, three methods, and the records that pass through them.

An adapter converts platform updates into `Inbound` events and `Op`s into API calls. An adapter
decides nothing about sessions, access or pacing, and raises only errors of `platforms.core.errors`.
The core never asks which platform it talks to: all differences are in `Capabilities`.
"""

import enum
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from platforms.core.guide import SetupGuide
from platforms.core.probed import ProbeResult
from sessions.values.address import Address as Address  # noqa: PLC0414 - public name of this module
from sessions.values.clock import Clock
from sessions.values.frames import frame_forward, frame_prompt
from sessions.values.ids import Ids

# --- inbound ---------------------------------------------------------------------------------


class Sender(msgspec.Struct, frozen=True, omit_defaults=True):
    """The author of an event.

    Access depends only on `id` and `memberships`; names are free text. `memberships_unknown` means
    that the platform could not be asked; such an event may be `Accepted.UNDECIDED`.
    """

    id: str  # stable id on the platform, as in `access.allow` without the platform
    name: str = ""
    is_bot: bool = False
    memberships: tuple[str, ...] = ()  # stable ids of groups and roles, vouched for by the platform
    memberships_unknown: bool = False


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text of a message."""

    text: str


class File(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """An attachment; `ref` is the adapter's reference for the download."""

    name: str
    media_type: str
    ref: str
    size: int | None = None
    voice: bool = False  # a voice message


class Forward(msgspec.Struct, frozen=True, tag="forward"):
    """Text that the sender of a message forwarded; the words of someone else."""

    sender: str  # display name of the author; empty if unknown
    words: str

    @property
    def text(self) -> str:
        """The words in their frame, as the model reads them. They are never a command."""
        return frame_forward(self.sender, self.words)


class Prompt(msgspec.Struct, frozen=True, tag="prompt"):
    """Text of another program that the sender of a message asked for by a command.

    Adapters never create it; the gateway replaces the command by it.
    """

    server: str
    name: str
    words: str  # the command as written
    content: str  # of the program

    @property
    def text(self) -> str:
        """The content in its frame, as the model reads it. It is never a command."""
        return frame_prompt(self.server, self.name, self.content)


Part = Text | File | Forward | Prompt


class Quote(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier message: the one being replied to, or one before it in the room."""

    sender: str
    text: str
    id: str = ""


class InboundMessage(msgspec.Struct, frozen=True, tag="message", omit_defaults=True):
    """A message from a person. An album or a long text pasted in parts is one message."""

    id: str  # platform id, unique per chat; the same for a redelivery
    at: int  # time of sending, in milliseconds
    address: Address
    sender: Sender
    parts: tuple[Part, ...]
    direct: bool = False  # a private chat between this person and the bot
    addressed: bool = False  # for the bot: a DM, a mention, a reply to the bot, or a command
    reply_to: Quote | None = None
    context: tuple[Quote, ...] = ()  # earlier messages of the room; untrusted
    raw: bytes = b""  # the platform's original update
    epoch: int = 0  # of the lease at the time of receipt; 0 on a single machine
    wishes: bytes = b""  # options of an API request; the text is then never a command

    @property
    def text(self) -> str:
        """The text parts of the message, joined; forwarded text is framed."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text | Forward))


class InboundEdit(msgspec.Struct, frozen=True, tag="edit", omit_defaults=True):
    """A person edited an earlier message."""

    id: str  # of the edit itself
    at: int
    address: Address
    sender: Sender
    message: str  # id of the edited message
    parts: tuple[Part, ...]
    raw: bytes = b""
    epoch: int = 0
    direct: bool = False


class InboundDelete(msgspec.Struct, frozen=True, tag="delete", omit_defaults=True):
    """A person deleted an earlier message."""

    id: str
    at: int
    address: Address
    sender: Sender
    message: str
    raw: bytes = b""
    epoch: int = 0
    direct: bool = False


class InboundAction(msgspec.Struct, frozen=True, tag="action", omit_defaults=True):
    """A person pressed a button; `action` is the value attached to the button."""

    id: str
    at: int
    address: Address
    sender: Sender
    action: str
    message: str = ""  # id of the message with the button
    direct: bool = False
    raw: bytes = b""
    epoch: int = 0


Inbound = InboundMessage | InboundEdit | InboundDelete | InboundAction


class Accepted(enum.StrEnum):
    """The result of handing in an event.

    Every value but `UNDECIDED` means stored, so acknowledge the event. Only an event with
    `Sender.memberships_unknown` can be undecided: nothing was stored, and the adapter hands it in
    again when it knows the memberships.
    """

    STORED = "stored"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    UNDECIDED = "undecided"


Inbox = Callable[[Inbound], Awaitable[Accepted]]
"""Stores an event and returns after the commit; only then may the adapter acknowledge the event.
After an exception nothing was stored, and the event must not be acknowledged."""


# --- outbound --------------------------------------------------------------------------------


class Button(msgspec.Struct, frozen=True):
    """A button below a message.

    `action` comes back as `InboundAction.action` (64 bytes at most).
    """

    label: str
    action: str


class TaskState(enum.StrEnum):
    """Progress of a task of the agent."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Task(msgspec.Struct, frozen=True):
    """A task on the way to an answer, such as a tool call."""

    id: str  # the same for all states of one task
    title: str
    state: TaskState


class Post(msgspec.Struct, frozen=True, tag="post", omit_defaults=True):
    """Show a new message.

    `again` means that an earlier try of this op may have been carried out: an adapter whose
    `repeat` is `NONCE` or `LOOKUP` must make sure that the message does not appear twice. `since`
    is then the time of the first try. `streaming` means that edits of this message will follow
    until one has `streaming=False`. `tasks` are the tasks of this part of the answer so far, and
    only set where `Capabilities.tasks`; a `streaming` message may consist of tasks alone.

    `only_for` is the id of the person in a room whose command this message answers; `reply_to` is
    then the id of the command. A platform that can show the message to that person alone does so.
    """

    op: str  # the same for every repeat
    address: Address
    text: str  # Markdown of the model, already cut to the platform's limit
    reply_to: str | None = None
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    again: bool = False
    since: int = 0  # milliseconds; 0 for the first try
    notice: bool = False  # text of the gateway, not of the model
    tasks: tuple[Task, ...] = ()
    only_for: str = ""


class Edit(msgspec.Struct, frozen=True, tag="edit", omit_defaults=True):
    """Replace the content of a message; safe to repeat."""

    op: str
    address: Address
    message: str
    text: str
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    notice: bool = False
    tasks: tuple[Task, ...] = ()  # as in `Post`


class Draft(msgspec.Struct, frozen=True, tag="draft", omit_defaults=True):
    """Show a preview of an answer.

    The preview expires by itself, and is removed when `text` and `status` are both empty, or when
    the answer is posted.
    """

    op: str
    address: Address
    draft: str  # the same for all states of one answer
    text: str
    status: str = ""  # one line about the current activity, apart from the text


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Delete a message of the bot; safe to repeat."""

    op: str
    address: Address
    message: str


class Upload(msgspec.Struct, frozen=True, tag="upload", omit_defaults=True):
    """Send a file."""

    op: str
    address: Address
    path: str
    name: str
    media_type: str
    caption: str = ""
    again: bool = False
    since: int = 0  # milliseconds; 0 for the first try


class React(msgspec.Struct, frozen=True, tag="react"):
    """Set the bot's reaction to a person's message; an empty one removes the reaction."""

    op: str
    address: Address
    message: str
    emoji: str


class Typing(msgspec.Struct, frozen=True, tag="typing", omit_defaults=True):
    """Show a typing indicator and, where supported, a status line.

    A status replaces the previous one; an empty one removes the line. `over` ends the indicator.
    """

    op: str
    address: Address
    status: str = ""  # one line; only where `Capabilities.status`
    over: bool = False  # only where `Capabilities.typing_ends`


class Ask(msgspec.Struct, frozen=True, tag="ask", omit_defaults=True):
    """Ask a question that is answered by a button or a command."""

    op: str
    address: Address
    text: str
    buttons: tuple[Button, ...]
    again: bool = False
    since: int = 0  # milliseconds; 0 for the first try


Op = Post | Edit | Draft | Delete | Upload | React | Typing | Ask


class Receipt(msgspec.Struct, frozen=True):
    """The op was carried out; `message` is the id for later edits and deletes."""

    message: str = ""


# --- capabilities ----------------------------------------------------------------------------


class Unit(enum.StrEnum):
    """Unit in which a platform measures text length."""

    CHARACTERS = "characters"
    UTF16 = "utf16"
    BYTES = "bytes"


class Live(enum.StrEnum):
    """Way of showing an answer while it is being written."""

    NONE = "none"  # only the final text
    EDIT = "edit"  # a message that is edited
    STREAM = "stream"  # a message that may only grow until the last edit
    DRAFT = "draft"  # a preview that is not a message; the final text is posted


class Repeat(enum.StrEnum):
    """Way of repeating a Post safely after an unknown outcome."""

    ALWAYS = "always"  # the same op id is never shown twice
    NONCE = "nonce"  # safe within `repeat_seconds` of the first try; after that the adapter looks
    LOOKUP = "lookup"  # the adapter checks whether the first try was carried out
    MARK = "mark"  # undecidable: a repeat carries a visible mark


class Capabilities(msgspec.Struct, frozen=True):
    """Abilities and limits of a platform."""

    text_limit: int
    unit: Unit
    live: Live
    repeat: Repeat
    live_interval: float = 1.0  # seconds between live updates of one message
    rest: float = 0.0  # seconds between the last live update and the final edit
    burst: int = 20  # ops a chat accepts at once
    per_second: float = 1.0  # rate at which the burst allowance refills
    per_minute: int = 0  # ops per chat in any minute; 0: no such limit
    threads_apart: bool = False  # threads have their own allowance instead of sharing their chat's
    account_burst: int = 0  # burst over all chats of the account; 0: no such limit
    account_per_second: float = 0.0  # refill rate of `account_burst`
    edit: bool = True
    delete: bool = True
    typing_interval: float | None = None  # seconds after which the indicator must be repeated
    typing_ends: bool = False  # the end of typing must be announced
    status: bool = False  # a separate status line; otherwise the status is shown below a live text
    tasks: bool = False  # tasks are shown separately; otherwise running ones are part of the status
    buttons: int = 0  # maximum per message
    reactions: bool = False
    files: int | None = None  # maximum size of an upload in bytes
    hosts_files: bool = False  # uploads are served from the local disk on every view
    caption_limit: int = 1000  # of a file, in units of the platform
    reply: bool = True
    repeat_seconds: float = 0.0
    messages: int = 0  # of one text; a longer text is sent as a file, too; 0: any number
    command: str = "/{word}"  # spelling of a command on the platform


class Adapter(Protocol):
    """One connection to a platform, under one account."""

    name: str
    account: str
    capabilities: Capabilities

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """Connect, call `ready` after every connect, and hand in events; run until cancelled.

        Must not return by itself, and must not wait for answers: `inbox` returns once the event is
        stored. Raises `Unavailable` if the connection fails (the caller starts it again) and
        `Unauthorized` if trying again is pointless.
        """
        ...

    async def deliver(self, op: Op) -> Receipt:
        """Carry out one op, once, without retries and without waiting for a rate limit to end."""
        ...

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """Download an attachment in chunks."""
        ...


@runtime_checkable
class OffersRoutes(Protocol):
    """An adapter with HTTP routes, such as a webhook or the web page."""

    def routes(self) -> Sequence[Any]:
        """Return Starlette routes to mount into the daemon's application."""
        ...


@runtime_checkable
class OffersHosts(Protocol):
    """An adapter whose routes are called by a service under a public host name."""

    def hosts(self) -> Sequence[str]:
        """Return Host header names accepted for these routes only; "*" accepts any."""
        ...


@runtime_checkable
class VariesByChat(Protocol):
    """An adapter whose capabilities differ by chat, such as private chats and groups."""

    def capabilities_in(self, address: Address) -> Capabilities:
        """Return the capabilities in one chat; constant for the same chat."""
        ...


def capabilities_in(adapter: Adapter, address: Address) -> Capabilities:
    """Return the capabilities in one chat."""
    if _varies_by_chat(type(adapter)):
        return cast("VariesByChat", adapter).capabilities_in(address)
    return adapter.capabilities


@functools.cache  # the check of a protocol is slow, and each turn asks several times
def _varies_by_chat(adapter_class: type[Adapter]) -> bool:
    return issubclass(adapter_class, VariesByChat)


@runtime_checkable
class OffersLinks(Protocol):
    """An adapter whose page is opened with a one-time link."""

    async def new_link(self, base_url: str) -> str:
        """Create a link that signs in the first visitor as the owner."""
        ...


@runtime_checkable
class RefreshesMenu(Protocol):
    """An adapter whose platform shows a menu of the commands."""

    async def refresh_menu(self) -> None:
        """Show the present commands; failures are only logged."""
        ...


@runtime_checkable
class OffersClaims(Protocol):
    """An adapter that accepts a claim code through a link."""

    def claim_link(self, code: str) -> str:
        """Return the link for a claim code; empty while the bot's address is unknown."""
        ...


# --- services for adapters -------------------------------------------------------------------


class RowAuthor(enum.StrEnum):
    """Author of a row of a transcript."""

    USER = "user"
    ANSWER = "answer"  # the model
    NOTICE = "notice"  # the gateway


class TranscriptRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a chat's transcript, ordered by `seq`: a user's message, an answer or a notice."""

    seq: int
    id: str  # of the inbound event or the outbox item
    at: int
    author: RowAuthor
    text: str
    sender: str = ""
    buttons: tuple[Button, ...] = ()
    state: str = ""  # of a user's message: "waiting", "running", "done", "held", "refused"
    files: tuple[File, ...] = ()  # attachments; for sent files `ref` is the path
    reply_to: str = ""  # id of the message that this row answers, if the message had to wait


class ChatSummary(msgspec.Struct, frozen=True):
    """A chat with at least one message."""

    chat: str
    title: str
    updated_at: int


class Archive(Protocol):
    """Reader of chat transcripts, for adapters whose platform keeps no history."""

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        """Return rows after `after`, oldest first; the newest `limit` rows if `after` is 0."""
        ...

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        """Return the chats of a platform, the last used first."""
        ...


class Shelf(Protocol):
    """Small durable values of one adapter, such as the last update id."""

    async def get(self, name: str) -> str | None:
        """Return a value."""
        ...

    async def put(self, name: str, value: str) -> None:
        """Store a value; return after the commit."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a value; return after the commit."""
        ...

    async def read_all(self) -> Mapping[str, str]:
        """Return all values by name."""
        ...


class MenuEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command as shown in the menus of platforms."""

    word: str
    summary: str
    args: str = ""
    admin: bool = False  # only admins may use it
    aliases: tuple[str, ...] = ()  # other words for the same command; not shown in menus
    private: bool = False  # the answer is only for the person who asked
    admin_args: str = ""  # arguments that only admins may use, instead of `args`


def _no_prompts() -> tuple[MenuEntry, ...]:
    """Return nothing."""
    return ()


def _nobody_listens(_: str) -> None:
    """Ignore a problem report."""


class Surroundings(msgspec.Struct, frozen=True):
    """Services and settings that the gateway gives every adapter.

    `trouble` reports a problem that does not break the connection, such as another program using
    the same token: one sentence for people, or "" once the problem is over. The problem is shown in
    the status and sent to the admins; the next start of `run` clears the report.
    """

    clock: Clock
    ids: Ids
    shelf: Shelf
    archive: Archive
    account: str = ""
    keepalive: float = 15.0  # seconds of silence after which an HTTP stream sends a keepalive
    commands: tuple[MenuEntry, ...] = ()
    prompts: Callable[[], tuple[MenuEntry, ...]] = _no_prompts
    """Returns further commands, which come and go while the gateway runs; see `RefreshesMenu`."""
    folder: Path | None = None  # of the adapter; created on first use
    trouble: Callable[[str], None] = _nobody_listens
    memberships: bool = True
    """True if access rules name groups or roles, so that the adapter must look them up."""

    @property
    def menu(self) -> tuple[MenuEntry, ...]:
        """All commands, as of now."""
        return (*self.commands, *self.prompts())

    @property
    def words(self) -> frozenset[str]:
        """All command words, including aliases, as of now."""
        return frozenset(word for entry in self.menu for word in (entry.word, *entry.aliases))


class Probe(Protocol):
    """Checks whether a bot can work, without a connection."""

    async def __call__(self, config: Any, *, alone: bool = False) -> ProbeResult:  # noqa: ANN401 - see `PlatformSpec.config`
        """Query the platform within seconds, changing nothing there.

        `alone` means that no gateway is connected as this bot, so that queries which would disturb
        a connection are allowed. Raises only `Unauthorized` and `Unavailable`, with the reason.
        """
        ...


class Mend(Protocol):
    """Fixes a problem at the platform that a probe found."""

    async def __call__(self, config: Any, mend: str) -> str:  # noqa: ANN401 - as above
        """Apply the fix named by a finding.

        Return what was done. Raises the same errors as `Probe`.
        """
        ...


class PlatformSpec(msgspec.Struct, frozen=True):
    """A platform, exported as `SPEC` by its module and found by the module's name.

    `config` is the frozen msgspec Struct of its `[platforms.NAME]` table; `secrets` maps its keys
    to the environment variables that may hold them.
    """

    name: str
    config: type[msgspec.Struct]
    build: Callable[[Any, Surroundings], Adapter]
    secrets: dict[str, str] = {}
    guide: SetupGuide | None = None
    probe: Probe | None = None
    mend: Mend | None = None
