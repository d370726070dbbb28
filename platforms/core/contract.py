"""What an adapter is: one attribute, three methods, and the records that pass through them.

An adapter turns a platform's updates into `Inbound` events and our `Op`s into calls. It decides
nothing about sessions, access or pacing, and raises only what `platforms.core.errors` names. The
core never asks which platform it talks to; everything it must know is in `Capabilities`.
"""

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from platforms.core.guide import SetupGuide
from platforms.core.probed import ProbeResult
from sessions.values.clock import Clock
from sessions.values.ids import Ids


class Address(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place where something can be shown."""

    platform: str
    chat: str
    account: str = ""
    thread: str = ""


# --- what comes in ---------------------------------------------------------------------------


class Sender(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who did it. Only `id` and `memberships` count for access; names can be chosen freely."""

    id: str  # the platform's stable id, written as in `access.allow` but without the platform
    name: str = ""
    is_bot: bool = False
    memberships: tuple[str, ...] = ()  # stable ids of groups and roles the platform vouches for


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class File(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """Something attached; `ref` is what the adapter needs to fetch it later."""

    name: str
    media_type: str
    ref: str
    size: int | None = None
    voice: bool = False  # recorded to be listened to in place of words


Part = Text | File


class Quote(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier message that this one answers, or that stood before it in the room."""

    sender: str
    text: str
    id: str = ""


class InboundMessage(msgspec.Struct, frozen=True, tag="message", omit_defaults=True):
    """Somebody said something. An album or a pasted long text is one message."""

    id: str  # the platform's id, unique in its chat; a redelivery has the same one
    at: int  # when it was sent, milliseconds
    address: Address
    sender: Sender
    parts: tuple[Part, ...]
    direct: bool = False  # a chat between this person and us alone
    addressed: bool = False  # meant for us: a DM, a mention, a reply to us, a command
    reply_to: Quote | None = None
    context: tuple[Quote, ...] = ()  # what stood before it in the room; not trusted
    raw: bytes = b""  # the update as the platform sent it
    epoch: int = 0  # of the lease under which it was received; 0 on a single machine
    wishes: bytes = b""  # of a program: how it is to be answered; then its words are no command

    @property
    def text(self) -> str:
        """All words of the message."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


class InboundEdit(msgspec.Struct, frozen=True, tag="edit", omit_defaults=True):
    """Somebody changed a message of theirs."""

    id: str  # of the edit itself
    at: int
    address: Address
    sender: Sender
    message: str  # the message that was changed
    parts: tuple[Part, ...]
    raw: bytes = b""
    epoch: int = 0
    direct: bool = False


class InboundDelete(msgspec.Struct, frozen=True, tag="delete", omit_defaults=True):
    """Somebody deleted a message of theirs."""

    id: str
    at: int
    address: Address
    sender: Sender
    message: str
    raw: bytes = b""
    epoch: int = 0
    direct: bool = False


class InboundAction(msgspec.Struct, frozen=True, tag="action", omit_defaults=True):
    """Somebody pressed a button of ours; `action` is what we put behind it."""

    id: str
    at: int
    address: Address
    sender: Sender
    action: str
    message: str = ""  # the message the button stands under
    direct: bool = False
    raw: bytes = b""
    epoch: int = 0


Inbound = InboundMessage | InboundEdit | InboundDelete | InboundAction


class Accepted(enum.StrEnum):
    """What became of an event; every value means: it is stored, acknowledge it."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"


Inbox = Callable[[Inbound], Awaitable[Accepted]]
"""Returns once the event is committed; only then may the adapter acknowledge it. When it raises,
nothing was stored: do not acknowledge."""


# --- what goes out ---------------------------------------------------------------------------


class Button(msgspec.Struct, frozen=True):
    """A button under a message; `action` comes back as `InboundAction.action` (64 bytes at most)."""

    label: str
    action: str


class TaskState(enum.StrEnum):
    """How far something is that the agent does."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Task(msgspec.Struct, frozen=True):
    """Something that the agent does on the way to its answer, such as a tool call."""

    id: str  # the same for all states of one task
    title: str
    state: TaskState


class Post(msgspec.Struct, frozen=True, tag="post", omit_defaults=True):
    """Show a new message.

    `again` says that an earlier try of this very op may have been carried out: an adapter whose
    `repeat` is `NONCE` or `LOOKUP` must then make sure that the message is not shown twice.
    `since` is then when it was first tried. `streaming` says that edits of this message will follow
    until one has `streaming=False`. `tasks` are what was done for this part of the answer so far,
    only where `Capabilities.tasks`; a message that is `streaming` may consist of them alone.
    """

    op: str  # stable over repeats
    address: Address
    text: str  # the model's Markdown, already cut to the platform's limit
    reply_to: str | None = None
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    again: bool = False
    since: int = 0  # milliseconds; 0 when this is the first try
    notice: bool = False  # words of ours, not of the model
    tasks: tuple[Task, ...] = ()


class Edit(msgspec.Struct, frozen=True, tag="edit", omit_defaults=True):
    """Let a message of ours show something else; safe to repeat."""

    op: str
    address: Address
    message: str
    text: str
    buttons: tuple[Button, ...] = ()
    streaming: bool = False
    notice: bool = False
    tasks: tuple[Task, ...] = ()  # as of `PostEvent`


class Draft(msgspec.Struct, frozen=True, tag="draft", omit_defaults=True):
    """Show what an answer looks like so far.

    It vanishes by itself, or when `text` and `status` are both empty, or when the answer is posted.
    """

    op: str
    address: Address
    draft: str  # the same for all states of one answer
    text: str
    status: str = ""  # one line about what is going on, apart from the text


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Take a message of ours away; safe to repeat."""

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
    since: int = 0  # milliseconds; 0 when this is the first try


class React(msgspec.Struct, frozen=True, tag="react"):
    """Put one sign on a user's message; an empty one takes it away."""

    op: str
    address: Address
    message: str
    emoji: str


class Typing(msgspec.Struct, frozen=True, tag="typing", omit_defaults=True):
    """Show that an answer is being written, and where `status` is shown, what is going on.

    The status takes the place of the one before; an empty one takes it away. `over` says that
    nothing is being written any more.
    """

    op: str
    address: Address
    status: str = ""  # one line; only where `Capabilities.status`
    over: bool = False  # only where `Capabilities.typing_ends`


class Ask(msgspec.Struct, frozen=True, tag="ask", omit_defaults=True):
    """A question that waits for somebody's button or command."""

    op: str
    address: Address
    text: str
    buttons: tuple[Button, ...]
    again: bool = False
    since: int = 0  # milliseconds; 0 when this is the first try


Op = Post | Edit | Draft | Delete | Upload | React | Typing | Ask


class Receipt(msgspec.Struct, frozen=True):
    """The op was carried out; `message` names what a later edit or delete would change."""

    message: str = ""


# --- what a platform can do ------------------------------------------------------------------


class Unit(enum.StrEnum):
    """How a platform counts the length of a text."""

    CHARACTERS = "characters"
    UTF16 = "utf16"
    BYTES = "bytes"


class Live(enum.StrEnum):
    """How an answer can be shown while it is being written."""

    NONE = "none"  # only the final text
    EDIT = "edit"  # a message that is edited
    STREAM = "stream"  # a message that only grows until its last edit
    DRAFT = "draft"  # a preview apart from the messages; the final text is posted


class Repeat(enum.StrEnum):
    """What makes it safe to repeat a Post whose outcome is not known."""

    ALWAYS = "always"  # the same op id is never shown twice
    NONCE = "nonce"  # safe within `repeat_seconds` of the first try, later the adapter looks
    LOOKUP = "lookup"  # the adapter finds out whether it was carried out
    MARK = "mark"  # cannot be known: a repeat carries a visible mark


class Capabilities(msgspec.Struct, frozen=True):
    """A platform's abilities and limits, as data."""

    text_limit: int
    unit: Unit
    live: Live
    repeat: Repeat
    live_interval: float = 1.0  # seconds between two live updates of one message
    rest: float = 0.0  # seconds from a live update to the edit that ends the message
    burst: int = 20  # ops a chat takes at once ...
    per_second: float = 1.0  # ... and how fast that allowance grows back
    per_minute: int = 0  # ops a chat takes in any minute, however they come; 0: no such limit
    threads_apart: bool = False  # a thread has an allowance of its own; else its chat's is shared
    account_burst: int = 0  # the same for all chats together; 0: no such limit ...
    account_per_second: float = 0.0
    edit: bool = True
    delete: bool = True
    typing_interval: float | None = None  # seconds after which it must be shown again
    typing_ends: bool = False  # that nothing is written any more must be said
    status: bool = False  # one line apart from the messages; else it stands below a live text
    tasks: bool = False  # each in a form of its own; else those that run are part of the status
    buttons: int = 0  # how many a message may carry
    reactions: bool = False
    files: int | None = None  # largest upload in bytes
    hosts_files: bool = False  # an upload is read from our disk whenever somebody looks at it
    caption_limit: int = 1000  # words that go with a file, in units of the platform
    reply: bool = True
    repeat_seconds: float = 0.0
    command: str = "/{word}"  # how a person writes a command there


class Adapter(Protocol):
    """One connection to one platform, under one account."""

    name: str
    account: str
    capabilities: Capabilities

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """Connect, call `ready` whenever connected, hand in events; runs until cancelled.

        Must not return by itself and must not wait for an answer: `inbox` returns when the event is
        stored. Raises `Unavailable` when the connection cannot be kept (the caller starts it again)
        and `ApiKeyRejected` when trying again is useless.
        """
        ...

    async def deliver(self, op: Op) -> Receipt:
        """Carry out one op, once. Must not retry by itself and must not wait out a rate limit."""
        ...

    def fetch(self, file: File) -> AsyncIterator[bytes]:
        """Read an attachment in pieces."""
        ...


@runtime_checkable
class OffersRoutes(Protocol):
    """An adapter that wants HTTP paths of its own, such as a webhook or the web page."""

    def routes(self) -> Sequence[Any]:
        """Starlette routes, mounted into the daemon's one application."""
        ...


@runtime_checkable
class OffersHosts(Protocol):
    """An adapter to whose routes a service sends requests, under a name that is not this machine's."""

    def hosts(self) -> Sequence[str]:
        """Names in the Host header of such requests, "*" for any; they hold for its routes only."""
        ...


@runtime_checkable
class VariesByChat(Protocol):
    """An adapter whose chats differ in what they can show, such as private ones and groups."""

    def capabilities_in(self, address: Address) -> Capabilities:
        """What can be done in one chat; always the same for the same chat."""
        ...


def capabilities_in(adapter: Adapter, address: Address) -> Capabilities:
    """What can be done in one chat."""
    if isinstance(adapter, VariesByChat):
        return adapter.capabilities_in(address)
    return adapter.capabilities


@runtime_checkable
class OffersLinks(Protocol):
    """An adapter whose page is opened by a one-time link."""

    async def new_link(self, base_url: str) -> str:
        """Make a link that lets its first visitor in as the owner."""
        ...


@runtime_checkable
class OffersClaims(Protocol):
    """An adapter that can be opened by a link which hands it a claim code."""

    def claim_link(self, code: str) -> str:
        """An address that does so when somebody opens it; empty as long as it is not known."""
        ...


# --- what an adapter is given ----------------------------------------------------------------


class TranscriptRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a chat shows: a user's message or something of ours, by `seq`."""

    seq: int
    id: str  # of the inbound event, or of the item
    at: int
    author: str  # "user", "answer" or "notice"
    text: str
    sender: str = ""
    buttons: tuple[Button, ...] = ()
    state: str = ""  # of a user's message: "waiting", "running", "done", "held", "refused"
    files: tuple[File, ...] = ()  # that came with it; `ref` of one of ours is where it is


class ChatSummary(msgspec.Struct, frozen=True):
    """A chat in which something was said."""

    chat: str
    title: str
    updated_at: int


class Archive(Protocol):
    """Reads what a chat shows, for adapters whose platform keeps no history of its own."""

    async def transcript(self, address: Address, after: int, limit: int) -> Sequence[TranscriptRow]:
        """Rows with `seq` greater than `after`, oldest first; the newest `limit` when after is 0."""
        ...

    async def chats(self, platform: str, limit: int) -> Sequence[ChatSummary]:
        """Chats of a platform, the last used first."""
        ...


class Shelf(Protocol):
    """A few durable values of the adapter's own, such as the last update it has seen."""

    async def get(self, name: str) -> str | None:
        """Read a value."""
        ...

    async def put(self, name: str, value: str) -> None:
        """Keep a value; returns when it is committed."""
        ...


class MenuEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command of ours, for the menus that platforms show."""

    word: str
    summary: str
    args: str = ""
    admin: bool = False  # only admins may use it
    aliases: tuple[str, ...] = ()  # other words for the same; not for the menu


def _nobody_listens(_: str) -> None:
    """Hear a complaint, and do nothing."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the gateway gives every adapter it builds.

    `trouble` is for what is wrong although the connection works, such as another program that uses
    the same token: one sentence for people, and an empty one once it is over. What it says is shown
    and told to the admins; starting `run` again takes it back.
    """

    clock: Clock
    ids: Ids
    shelf: Shelf
    archive: Archive
    account: str = ""
    keepalive: float = 15.0  # seconds of silence after which an HTTP stream says that it lives
    commands: tuple[MenuEntry, ...] = ()
    folder: Path | None = None  # of the adapter's own, made when it is needed
    trouble: Callable[[str], None] = _nobody_listens
    memberships: bool = True
    """Whether access depends there on groups or roles: else nobody need ask about them."""

    @property
    def words(self) -> frozenset[str]:
        """Everything that is a command of ours."""
        return frozenset(word for each in self.commands for word in (each.word, *each.aliases))


class Probe(Protocol):
    """Finds out whether a bot can work, without connecting it."""

    async def __call__(self, config: Any, *, alone: bool = False) -> ProbeResult:  # noqa: ANN401 - see `PlatformSpec.config`
        """Ask the platform, within seconds, and change nothing there.

        `alone` says that nothing of ours is connected as this bot: then questions may be asked that
        would disturb who is. Raises only `ApiKeyRejected`, and `Unavailable` with the reason.
        """
        ...


class Mend(Protocol):
    """Puts right at the platform what a probe found."""

    async def __call__(self, config: Any, mend: str) -> str:  # noqa: ANN401 - as above
        """Do what a finding names as `mend`; says what was done. Raises as `Probe`."""
        ...


class PlatformSpec(msgspec.Struct, frozen=True):
    """What a platform's module offers as `SPEC`; the registry finds it by the module's name.

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
