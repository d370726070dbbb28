"""Test kit for scenarios: a scripted model, the whole gateway, and queries about the result.

Every scenario also asserts the invariants of the agent loop in `Stage.check`: no tool ran twice or
on partial arguments, the history holds only real messages, every call has one result, no text is
shown twice, and the turn ended with a visible text.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from agent.settings import ModelSettings, TargetSettings, Timeouts
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, LimitSettings, Settings
from platforms.core.contract import Edit, Live, Post, Repeat
from sessions.records import Message, ToolRun, Turn, TurnState
from sessions.store.schema import attempts
from sessions.store.store import SessionStore
from tests.e2e.gateway_kit import GatewayKit, Nothing, Screen, gateway
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import ProtocolName
from tests.fakes.model_script import Script
from tests.fakes.model_server import Handler, ModelServer, Received

CHAT = "7"
PATIENCE = 15.0

SCALED = Timeouts(
    connect=0.5,
    first_token_soft=0.3,
    first_token=1.0,
    notice_after=0.3,
    gap_text=0.6,
    gap_tool=0.8,
    gap_reasoning=0.8,
    wire_dead=0.5,
    lifetime=5.0,
    min_rate=0,
    min_rate_window=2.0,
    backoff=0.01,
)
"""Timeouts of a model request, scaled down."""

AT_ONCE = 0.3
"""Seconds within which `/stop` must take effect."""

UNHURRIED = msgspec.structs.replace(SCALED, notice_after=30.0, first_token_soft=30.0)
"""Scaled timeouts with late notices, so that quick recoveries stay silent on a busy machine."""

PROMPTS = (
    "[Your answer above",
    "This call was too large",
    "These calls were too large",
    "network error",
    "output length limit",
    "(empty)",
    "[System",
    "reconnecting",
    "New conversation",
)
"""Fragments of prompts and notices, which must never appear in a history."""


TOOL_SIGNS = ("🔧", "📝", "✏️", "📖")
"""Prefixes of the status line while a tool runs."""


def now() -> float:
    """Return the loop time, which the timers of a scenario use."""
    return asyncio.get_running_loop().time()


class Desk:
    """Tools of the scenarios, with a record of their effects."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.at: list[float] = []  # loop time of each effect
        self.begun = asyncio.Event()
        self.cancelled = 0

    def does(self, what: str) -> None:
        """Record an effect."""
        self.ran.append(what)
        self.at.append(now())

    def tools(self) -> tuple[Tool, ...]:
        desk = self

        @tool(risk=Risk.READ, label="path", parallel=True)
        async def read(_context: ToolContext, path: str) -> str:
            """Read something.

            Args:
                _context: Not part of the call.
                path: Where it is.
            """
            desk.does(f"read {path}")
            return f"content of {path}"

        @tool(risk=Risk.WRITE, label="amount")
        async def pay(_context: ToolContext, amount: int) -> str:
            """Pay.

            Args:
                _context: Not part of the call.
                amount: How much.
            """
            desk.does(f"pay {amount}")
            return f"paid {amount}"

        @tool(risk=Risk.WRITE)
        async def noop(_context: ToolContext) -> str:
            """Do nothing."""
            desk.does("noop")
            return "nothing"

        @tool(risk=Risk.WRITE)
        async def sleepy(_context: ToolContext, s: float) -> str:
            """Take a while.

            Args:
                _context: Not part of the call.
                s: Seconds.
            """
            desk.does(f"sleepy {s:g}")
            desk.begun.set()
            try:
                await asyncio.sleep(s)
            except asyncio.CancelledError:
                desk.cancelled += 1
                raise
            return "awake"

        return read, pay, noop, sleepy


class Told(logging.Handler):
    """Log handler that collects the notices of a turn's status line."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)  # edited status lines are logged at this level
        self.notices: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, str) and record.msg.startswith("notice "):
            assert isinstance(record.args, tuple)
            notice, words = record.args  # logged by gateway.turns.run
            self.notices.append((str(notice), str(words)))
            self.news.set()

    @property
    def ids(self) -> list[str]:
        """Ids of the notices, without repetition, in order of first appearance."""
        return list(dict.fromkeys(notice for notice, _ in self.notices))


class Judged(msgspec.Struct, frozen=True):
    """Journal record of one request."""

    verdict: str
    phase: str
    received: int  # characters
    cause: str


class Stage:
    """Running gateway with a scripted model, and the queries of a scenario."""

    def __init__(self, kit: GatewayKit, desk: Desk, told: Told, home: Path) -> None:
        self.kit = kit
        self.desk = desk
        self.told = told
        self.home = home

    @property
    def requests(self) -> list[Received]:
        """Requests that the model received, in order."""
        return self.kit.model.requests

    @property
    def workspace(self) -> Path:
        """Folder of the file tools for the user of the scenarios."""
        return self.home / "workspace" / "memory%3A1001"

    @property
    def _store(self) -> SessionStore:
        store = self.kit.runner._store
        assert store is not None
        return store

    async def say(self, text: str = "go", chat: str = CHAT) -> None:
        """Send a message from the user."""
        await self.kit.screen.say(chat, text)

    async def stop(self) -> float:
        """Send /stop and wait for the answer; return the seconds until then."""
        began = now()
        await self.say("/stop")
        await self.kit.screen.shows(CHAT, "⏹ Stopped")
        return now() - began

    async def told_of(self, notice: str, seconds: float = PATIENCE) -> str:
        """Wait for a notice and return its text."""
        async with asyncio.timeout(seconds):
            while notice not in self.told.ids:
                self.told.news.clear()
                await self.told.news.wait()
        return next(words for known, words in self.told.notices if known == notice)

    async def ends(self, turns: int = 1, seconds: float = PATIENCE, chat: str = CHAT) -> Turn:
        """Wait until this many turns have ended and are delivered; return the last one."""
        async with asyncio.timeout(seconds):
            while True:
                ended = [turn for turn in await self.turns(chat) if turn.state != TurnState.RUNNING]
                if len(ended) >= turns and not await self._store.outbox.undelivered():
                    return ended[-1]
                await asyncio.sleep(0.1)

    async def go(self, text: str = "go", seconds: float = PATIENCE) -> Turn:
        """Send a message and wait for the end of its turn."""
        before = len([t for t in await self.turns() if t.state != TurnState.RUNNING])
        await self.say(text)
        return await self.ends(before + 1, seconds)

    async def turns(self, chat: str = CHAT) -> list[Turn]:
        """Return all turns of the chat, oldest first."""
        found: list[Turn] = []
        for session in reversed(await self._store.sessions.list(key=f"memory:{chat}")):
            found += await self._store.turns.of_session(session.id)
        return found

    async def tool_runs(self, turn: Turn) -> tuple[ToolRun, ...]:
        """Return the journal's records of a turn's tool calls."""
        return await self._store.turns.tool_runs(turn.id)

    async def judged(self) -> list[Judged]:
        """Return the journal's records of all requests, in order."""

        def read(connection: Connection) -> list[Judged]:
            kept = attempts.c
            wanted = sa.select(kept.verdict, kept.phase, kept.received, kept.cause)
            found = connection.execute(wanted.order_by(kept.turn_id, kept.number))
            return [Judged(*row) for row in found]

        return await self._store.database.read(read)

    async def sessions(self, chat: str = CHAT) -> list[str]:
        """Return the ids of the chat's sessions, newest first."""
        return [session.id for session in await self._store.sessions.list(key=f"memory:{chat}")]

    async def rows(self, chat: str = CHAT, back: int = 0) -> list[Message]:
        """Return the history of the newest session, or of the one `back` sessions earlier."""
        sessions = await self.sessions(chat)
        return list(await self._store.sessions.history(sessions[back])) if sessions else []

    async def history(self, chat: str = CHAT, back: int = 0) -> list[str]:
        """Return the history in short form: `U:go`, `A!:cut`, `A{read,pay}`, `T:result`."""
        return [_short(row) for row in await self.rows(chat, back)]

    def shown(self, chat: str = CHAT) -> list[str]:
        """Return the visible texts of the chat, without the user's messages."""
        return [each.text for each in self.kit.screen.messages(chat)]

    def asked(self, number: int) -> list[dict[str, Any]]:
        """Return the messages of the n-th request in a common format."""
        return self.requests[number - 1].messages

    async def check(self, *, readable: bool = True, taken_back: bool = False) -> None:
        """Assert the invariants that hold after every turn.

        Pass `readable=False` if the scripted arguments are not JSON objects, and `taken_back=True` if
        visible text must be removed again.
        """
        everything: list[Message] = []
        for session in await self._store.sessions.list():
            rows = list(await self._store.sessions.history(session.id))
            _check_rows(rows, readable=readable)
            everything += rows
            for turn in await self._store.turns.of_session(session.id):
                assert turn.state != TurnState.RUNNING
        self._check_effects(everything)
        assert any(text.strip() for text in self.shown()), "the user was left without a word"
        assert self.kit.screen.violations() == []
        if not taken_back:
            self._check_growth()

    def _check_growth(self) -> None:
        """I5: the visible text of an answer only grows."""
        before: dict[str, str] = {}
        for op in self.kit.screen.ops:
            if not isinstance(op, Post | Edit) or op.notice or op.text.startswith("💭"):
                continue
            message, text = op.op.removesuffix(".e"), self._without_status(op.text)
            assert text.startswith(before.get(message, "")), f"{before[message]!r}, then {text!r}"
            before[message] = text

    def _without_status(self, text: str) -> str:
        answer, _, last = text.rpartition("\n\n")
        told = last in {words for _, words in self.told.notices}
        return (answer if told or last.startswith(TOOL_SIGNS) else text).rstrip()

    def _check_effects(self, rows: Sequence[Message]) -> None:
        asked = [
            f"{call.name} {_only(call.arguments)}".strip()
            for row in rows
            for call in row.tool_calls
        ]
        for effect in set(self.desk.ran):
            made = asked.count(effect)
            assert self.desk.ran.count(effect) <= made, f"{effect} ran without being in the history"


def _only(arguments: str) -> str:
    try:
        values = list(json.loads(arguments).values())
    except (ValueError, AttributeError):
        return "(unreadable)"
    return str(values[0]) if values else ""


def _short(row: Message) -> str:
    mark = "!" if row.interrupted else ""
    if row.role == "user":
        return f"U:{row.content}"
    if row.role == "tool":
        return f"T:{row.content}"
    calls = ",".join(call.name for call in row.tool_calls)
    return f"A{mark}{f'{{{calls}}}' if calls else ''}:{row.content}".removesuffix(
        ":" * (not row.content)
    )


def _check_rows(rows: Sequence[Message], *, readable: bool) -> None:
    """I3 and I4: rows alternate, every call has one result, and no prompt or notice is stored."""
    open_calls: list[str] = []
    ids: set[str] = set()
    before = "assistant"
    for row in rows:
        if row.role == "tool":
            assert row.tool_call_id in open_calls, f"a result without its call: {row}"
            open_calls.remove(row.tool_call_id)
        else:
            assert not open_calls, f"calls without a result: {open_calls}"
            if row.role == "assistant":
                assert before != "assistant" or row.content or row.tool_calls
                assert row.content.strip() or row.tool_calls, "an empty row"
                open_calls = [call.id for call in row.tool_calls]
                assert not ids.intersection(open_calls), "an id used twice"
                ids.update(open_calls)
                for call in row.tool_calls:
                    assert not readable or isinstance(json.loads(call.arguments), dict)
        before = row.role
        for words in PROMPTS:
            assert words not in row.content or row.role == "user", f"{words!r} in the history"
            assert row.role != "user" or words not in row.content, f"{words!r} in the history"
    assert not open_calls, f"calls without a result: {open_calls}"


@contextlib.asynccontextmanager
async def stage(
    home: Path,
    protocol: ProtocolName,
    *scripts: Script | Handler,
    fallbacks: Sequence[ModelServer] = (),
    fallback_protocol: ProtocolName | None = None,
    timeouts: Timeouts = SCALED,
    tools: Sequence[Tool] = (),
    screen: Screen | None = None,
    model: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Stage]:
    """Run a gateway whose model follows the scripts, until the block ends."""
    told = Told()
    logger = logging.getLogger("gateway.turns.run")
    logger.addHandler(told)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    desk = Desk()
    used = screen or Screen(live=Live.EDIT, repeat=Repeat.ALWAYS, live_interval=0.01, burst=1000)
    try:
        async with ModelServer(*scripts) as server:
            base = settings_for(protocol, server.url, timeouts)
            others = tuple(
                _named(
                    settings_for(fallback_protocol or protocol, each.url, timeouts), f"f{number}"
                )
                for number, each in enumerate(fallbacks, 1)
            )
            configured = ModelSettings(
                **{f: getattr(base, f) for f in base.__struct_fields__} | (model or {}),
                fallback=others,
            )
            settings = Settings(
                gateway=GatewaySettings(drain_seconds=0),
                model=configured,
                access=AccessSettings(allow=("memory:1001",)),
                limits=LimitSettings(messages_per_minute=10_000),
                platforms={"memory": Nothing()},
            )
            async with gateway(
                home,
                server,
                used,
                settings=msgspec.structs.replace(settings, **changes),
                tools=(*desk.tools(), *tools),
            ) as kit:
                yield Stage(kit, desk, told, home)
    finally:
        logger.removeHandler(told)
        logger.setLevel(level)


def _named(settings: TargetSettings, name: str) -> TargetSettings:
    return msgspec.structs.replace(settings, name=name)
