"""A platform inside this process: part of the test kit, and the contract's plainest reading.

`MemoryAdapter` keeps every chat as a person would see it, lets tests say and press things, fails as
it is told to, and notes what a real platform would punish or a person would notice. A test ends by
asserting that `faults_found()` is empty.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from platforms.core.contract import (
    Accepted,
    Address,
    Ask,
    Button,
    Capabilities,
    Delete,
    Draft,
    Edit,
    File,
    Inbound,
    InboundAction,
    InboundMessage,
    Inbox,
    Live,
    Op,
    Post,
    React,
    Receipt,
    Repeat,
    Sender,
    Text,
    Typing,
    Unit,
    Upload,
)
from platforms.core.errors import ChatGone, PlatformError, Rejected, Unavailable, Unconfirmed
from platforms.core.markdown import has_open_fence
from platforms.core.split import size
from sessions.values.clock import Clock, SystemClock

SOMEBODY = Sender(id="1001", name="Somebody")

_ROUNDING = 1e-6


class Fault(msgspec.Struct, frozen=True):
    """What happens to an op instead of going well."""

    error: Callable[[], PlatformError] | None = None
    carried_out: bool = False  # before the error
    gate: asyncio.Event | None = None  # what it waits for


def rate_limited(retry_after: float) -> Fault:
    """A 429."""
    return Fault(lambda: Unavailable("Too many requests.", retry_after))


def unavailable() -> Fault:
    """The platform is down, and says so."""
    return Fault(Unavailable)


def rejected() -> Fault:
    """The platform understood and refused."""
    return Fault(Rejected)


def cut_before() -> Fault:
    """The connection broke before the op arrived."""
    return Fault(Unconfirmed)


def cut_after() -> Fault:
    """The connection broke after the op was carried out."""
    return Fault(Unconfirmed, carried_out=True)


def delayed(gate: asyncio.Event) -> Fault:
    """The op is carried out once the gate opens."""
    return Fault(gate=gate)


def hanging(*, carried_out: bool = False) -> Fault:
    """No answer ever comes."""
    return Fault(carried_out=carried_out, gate=asyncio.Event())


class Visible(msgspec.Struct):
    """A message of ours, as it looks now."""

    id: str
    op: str
    text: str
    address: Address
    buttons: tuple[Button, ...] = ()
    reply_to: str | None = None
    streaming: bool = False
    file: str = ""
    notice: bool = False


class _Chat:
    """One chat's screen, and what its budget knows."""

    def __init__(self, burst: float, now: float) -> None:
        self.messages: list[Visible] = []
        self.drafts: dict[str, Draft] = {}
        self.reactions: dict[str, str] = {}
        self.typing = False
        self.gone = False
        self.told_gone = False
        self.left = burst
        self.at = now
        self.blocked_until = now


class MemoryAdapter:
    """See the module; further capabilities are given by name, such as `text_limit=200`."""

    def __init__(
        self,
        name: str = "memory",
        *,
        account: str = "",
        live: Live = Live.NONE,
        repeat: Repeat = Repeat.ALWAYS,
        clock: Clock | None = None,
        **limits: Any,  # noqa: ANN401 - as in Capabilities, which checks them
    ) -> None:
        self.name = name
        self.account = account
        usual = Capabilities(
            text_limit=2000,
            unit=Unit.CHARACTERS,
            live=live,
            repeat=repeat,
            typing_interval=5.0,
            buttons=8,
            reactions=True,
            files=10_000_000,
            repeat_seconds=120.0,
        )
        self.capabilities = msgspec.structs.replace(usual, **limits)
        self.ops: list[Op] = []  # all that arrived, carried out or not
        self.files: dict[str, bytes] = {}  # by `File.ref`
        self._clock: Clock = clock or SystemClock()
        self._chats: dict[str, _Chat] = {}
        self._done: dict[str, tuple[Receipt, float]] = {}
        self._faults: list[tuple[type, str | None, Fault]] = []
        self._found: list[str] = []
        self._events: asyncio.Queue[tuple[Inbound, asyncio.Future[Accepted]]] = asyncio.Queue()
        self._cuts: deque[PlatformError] = deque()
        self._cut = asyncio.Event()
        self._numbers = 0

    # --- the contract ------------------------------------------------------------------------

    async def run(self, inbox: Inbox, ready: Callable[[], None]) -> None:
        """See `Adapter`."""
        ready()
