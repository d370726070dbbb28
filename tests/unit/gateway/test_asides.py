"""What can go wrong beside a conversation; what goes well is in tests/e2e/test_beside.py."""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from agent.settings import ModelSettings, TargetSettings, Timeouts
from agent.tools.contract import Tool
from gateway.access.policy import Role
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply, ReplyLater
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import read_body
from gateway.notices.compose import NoticeComposer
from gateway.settings import LimitSettings, Settings
from gateway.side_requests.service import REASONING_LEVELS, SideRequests
from gateway.spending.budgets import Budgets
from gateway.turns.choices import ModelChoices
from gateway.turns.models import Models, open_models
from sessions.changes import AppendMessages, EndAttempt, PutSummary, StartAttempt
from sessions.conversation.events import CommandContext, ConversationState, RunningTurn
from sessions.records import InboxEntry, InboxState, Message, OutboxItem
from sessions.store.database import Database
from sessions.store.readers import SessionReader
from sessions.store.store import SessionStore
from sessions.values.clock import Clock, SystemClock
from sessions.values.ids import Ids
from sessions.values.notices import NoticeId
from sessions.values.secret import Secret
from tests.contract.store_kit import ended, opened, started
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import Handler, ModelServer, always

pytestmark = pytest.mark.quick

KEY = "memory:7"
ADDRESS = '{"platform":"memory","chat":"7"}'
PERSON = "memory:1001"
LONG = "A long story about ships and harbours. " * 40
HOUR = 3_600_000


class SetClock(SystemClock):
    time: int | None = None

    def now(self) -> int:
        return super().now() if self.time is None else self.time


class Room:
    """Asides over a real store and a real client, with nobody to deliver to."""

    def __init__(
        self,
        store: SessionStore,
        asides: SideRequests,
        models: Models,
        server: ModelServer,
        clock: SetClock,
    ) -> None:
        self.store = store
        self.models = models
        self.server = server
        self.asides = asides
        self.clock = clock
        self.state = ConversationState(key=KEY, session="s1")
        self._numbers = 0

    async def call(self, word: str, args: str = "") -> CommandOutcome:
        """Use a command as the desk does, its row stored before."""
        self._numbers += 1
        inbox = f"i_{self._numbers}"
        await self.store.accept(
            InboxEntry(
                id=inbox,
                source="memory",
                event=inbox,
                key=KEY,
                address=ADDRESS,
                state=InboxState.COMMAND,
                payload=b"{}",
                received_at=1,
            )
        )
        desk: Any = self
        call = CommandCall(
            key=KEY,
            args=args,
            context=CommandContext(address=ADDRESS, person=PERSON, inbox=inbox),
            role=Role.MEMBER,
            principal=PERSON,
            name="Me",
            direct=True,
            command_template="/{word}",
            services=desk,
        )
        outcome: CommandOutcome = await getattr(self.asides, word)(call)
        return outcome

    async def read_state(self, _key: str) -> ConversationState:
        """See `Desk`."""
        return self.state

    async def shown(self) -> list[str]:
        """What is to be shown, once nothing is under way any more."""
        while tasks := set(self.asides._running):
            async with asyncio.timeout(5):
                await asyncio.wait(tasks)
        return [read_body(item).text for item in await self.items()]

    async def items(self) -> list[OutboxItem]:
        return list(await self.store.outbox.undelivered())


@contextlib.asynccontextmanager
async def room(
    home: Path,
    *scripts: Script | Handler,
    deadline: float = 5.0,
    kind: type[SessionStore] = SessionStore,
    **model: Any,
) -> AsyncIterator[Room]:
    clock = SetClock()
    async with ModelServer(*scripts) as server, asyncio.TaskGroup() as tasks:
        settings = ModelSettings(
            provider="openai",
            name="scripted",
            base_url=server.url,
            api_key=Secret("sk-none"),
            timeouts=Timeouts(backoff=0.01),
            **model,
        )
        store = await kind.open(f"sqlite:///{home / 'holdfast.db'}", clock=clock)
        models = await open_models(Settings(model=settings), home, clock=clock)
        choices = ModelChoices(store)
        models.choice_for = choices.get
        asides = SideRequests(
            store=store,
            clock=clock,
            models=models,
            budgets=Budgets(store, clock, LimitSettings()),
            choices=choices,
            announcer=NoticeComposer(Ids(clock), clock, lambda _: None),
            delivery=Delivery(store, clock),
            tasks=tasks,
            deadline_seconds=deadline,
            zone=dt.UTC,
        )
        try:
            with asides.closing():
                yield Room(store, asides, models, server, clock)
        finally:
            await models.aclose()
            await store.close()


async def talked(store: SessionStore, times: int = 3) -> None:
    await store.apply(opened("s1", key=KEY))
    for number in range(times):
        rows = (Message("user", f"{LONG} {number}"), Message("assistant", f"echo {number}"))
        turn = f"t{number}"
        await store.apply(
            started(turn, "s1", key=KEY, said=""),
            AppendMessages("s1", turn, rows, 2),
            ended(turn),
        )


def test_the_levels_are_those_of_the_configuration() -> None:
    (field,) = (f for f in msgspec.structs.fields(TargetSettings) if f.name == "reasoning_effort")
    literals = [
        value
        for part in (field.type, *get_args(field.type))
        for each in (part, *get_args(part))
        for value in get_args(each)
        if isinstance(value, str)
    ]
    assert set(REASONING_LEVELS) == set(literals)


# --- deadlines and failures --------------------------------------------------------------------


async def test_a_question_that_takes_too_long_is_given_up_and_its_cost_kept(
    tmp_path: Path,
) -> None:
    async with room(tmp_path, always('H T"so far" HANG'), deadline=0.3) as made:
        await talked(made.store)
        assert await made.call("btw", "and?") == ReplyLater()
        assert await made.shown() == [
            "💬 I could not answer your question on the side: it took longer than 0.005 minutes."
        ]
        assert (await made.store.spending.totals(session_id="s1", person=PERSON)).requests == 1
        assert await made.store.inbox.pending_commands() == ()


async def test_a_summary_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async with room(tmp_path, always("H HANG"), deadline=0.3) as made:
        await talked(made.store)
        await made.call("compact")
        (text,) = await made.shown()
        assert "could not be summarised: it took longer than" in text
        assert (await made.store.sessions.context("s1"))[0] == ""


async def test_an_answer_on_the_side_is_delivered_like_any_answer_and_not_like_a_notice(
    tmp_path: Path,
) -> None:
    async with room(tmp_path, ok("fine"), 'S400"closed"') as made:
        await talked(made.store)
        await made.call("btw", "and?")
        assert await made.shown() == ["💬 fine"]
        await made.call("btw", "and then?")
        assert "closed" in (await made.shown())[1]
        assert [item.kind for item in await made.items()] == ["answer", "notice"]


async def test_a_question_on_the_side_sees_the_summary_of_what_was_shortened(
    tmp_path: Path,
) -> None:
    async with room(tmp_path, ok("fine")) as made:
        await talked(made.store)
        await made.store.apply(PutSummary(session_id="s1", keep=2, summary="They talked.", at=3))
        await made.call("btw", "and?")
        assert await made.shown() == ["💬 fine"]
        asked = made.server.requests[0].messages[0]["content"]
    assert asked.startswith("[Summary of the conversation so far: They talked.]")


async def test_an_answer_without_a_word_is_a_failure(tmp_path: Path) -> None:
    async with room(tmp_path, always("H F stop U D")) as made:
        await talked(made.store)
        await made.call("btw", "and?")
        (text,) = await made.shown()
        assert text.startswith("💬 I could not answer your question on the side: ")
        assert not text.endswith("..")


async def test_what_breaks_takes_nothing_else_down_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> tuple[Tool, ...]:
        msg = "nobody expected this"
        raise RuntimeError(msg)

    async with room(tmp_path) as made:
        made.models.extra_tools = broken
        with caplog.at_level(logging.ERROR):
            await made.call("btw", "and?")
            assert await made.shown() == [
                "This could not be done just now. Please try again in a moment."
            ]
        assert "/btw broke" in caplog.text
        assert await made.store.inbox.pending_commands() == ()


async def test_what_cannot_be_stored_is_left_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, 'H W.2 T"fine" F stop U D') as made:
        await made.call("btw", "and?")
        async with asyncio.timeout(5):
            await made.server.request(1)
            made.store.database.stop()
            with caplog.at_level(logging.WARNING):
                await asyncio.wait(set(made.asides._running))
        assert "left to the next start" in caplog.text
    again = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=SystemClock())
    (left,) = await again.inbox.pending_commands()
    assert left.state is InboxState.COMMAND
    assert await again.outbox.undelivered() == ()
    await again.close()


async def test_once_it_is_closing_everything_is_left_to_the_next_start(tmp_path: Path) -> None:
    async with room(tmp_path, always("H HANG")) as made:
        await made.call("btw", "one")
        with made.asides.closing():
            pass
        assert await made.shown() == []
        assert await made.call("btw", "two") == ReplyLater()
        assert await made.shown() == []
        assert len(await made.store.inbox.pending_commands()) == 2


# --- what is said at once ----------------------------------------------------------------------


async def test_nothing_is_shortened_while_a_turn_runs_or_without_a_conversation(
    tmp_path: Path,
) -> None:
    async with room(tmp_path) as made:
        turn = RunningTurn(
            id="t1", session="s1", address=ADDRESS, person=PERSON, request="go", started_at=1
        )
        made.state = ConversationState(key=KEY, session="s1", turn=turn)
        assert await made.call("compact") == NoticeReply(NoticeId.BUSY)
        made.state = ConversationState(key=KEY)
        assert await made.call("compact") == NoticeReply(NoticeId.COMPACT_NOTHING)


async def test_a_level_of_reasoning_that_is_none_changes_nothing(tmp_path: Path) -> None:
    async with room(tmp_path, reasoning_effort="low") as made:
        for written, near in (("hgih", "high"), ("zzz", "")):
            outcome = await made.call("reasoning", written)
            assert isinstance(outcome, NoticeReply)
            assert outcome.notice == "reasoning_unknown"
            assert (outcome.fields["name"], outcome.fields["nearest"]) == (written, near)
        assert await made.call("reasoning") == NoticeReply(
            NoticeId.REASONING_LEVEL, {"level": "low", "levels": ", ".join(REASONING_LEVELS)}
        )
        leaving = RunningTurn(
            id="t1",
            session="s1",
            address=ADDRESS,
            person=PERSON,
            request="go",
            started_at=1,
            cancelling=True,
        )
        made.state = ConversationState(key=KEY, session="s1", turn=leaving)
        assert await made.call("reasoning", "XHIGH") == NoticeReply(
            NoticeId.REASONING_SET, {"level": "xhigh", "running": 0}
        )


async def test_a_long_name_of_no_model_is_quoted_on_one_short_line(tmp_path: Path) -> None:
    async with room(tmp_path) as made:
        await made.call("model", "zz\n" * 400)
        (text,) = await made.shown()
        assert len(text) < 200
        assert "\n" not in text


# --- /usage ------------------------------------------------------------------------------------


def request(turn: str, tokens: int, person: str, at: int, session: str) -> tuple[Any, ...]:
    return (
        started(turn, session, key=KEY, person=person, at=at),
        StartAttempt(turn, 1, "openai/scripted", at),
        EndAttempt(
            turn_id=turn, number=1, verdict="complete", at=at, input_tokens=tokens, output_tokens=1
        ),
        ended(turn, at=at),
    )


async def test_usage_knows_the_last_answer_the_conversation_and_ones_own_day(
    tmp_path: Path,
) -> None:
    now = 1_795_003_200_000  # noon
    async with room(tmp_path) as made:
        made.clock.time = now
        await made.store.apply(
            opened("s1", key=KEY),
            *request("t1", 1, PERSON, now - 13 * HOUR, "s1"),
            *request("t2", 10, PERSON, now - 11 * HOUR, "s1"),
            *request("t3", 100, "memory:2002", now - HOUR, "s1"),
        )
        outcome = await made.call("usage")
    assert isinstance(outcome, NoticeReply)
    lines = [line.split() for line in str(outcome.fields["text"]).splitlines()]
    assert ["requests", "1", "3", "1"] in lines
    assert ["tokens", "in", "100", "111", "10"] in lines


async def test_usage_before_anything_was_said_is_nothing(tmp_path: Path) -> None:
    async with room(tmp_path) as made:
        outcome = await made.call("usage")
        assert isinstance(outcome, NoticeReply)
        assert "requests          0        0        0" in str(outcome.fields["text"])
        await made.store.apply(opened("s1", key=KEY))
        assert await made.call("usage") == outcome


# --- a conversation that does not stand still --------------------------------------------------


class Moving(SessionStore):
    """A store in which a turn adds a row right after every read of a conversation."""

    more = 0  # rows still to come
    added_by = ""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self.sessions = MovingSessions(database, self)


class MovingSessions(SessionReader):
    def __init__(self, database: Database, store: Moving) -> None:
        super().__init__(database)
        self._store = store

    async def context(self, session_id: str) -> tuple[str, tuple[Message, ...]]:
        seen = await super().context(session_id)
        if self._store.more:
            self._store.more -= 1
            row = Message("assistant", f"{self._store.more} are left")
            await self._store.apply(AppendMessages(session_id, self._store.added_by, (row,), 4))
        return seen


@pytest.mark.parametrize(
    ("more", "told", "summary"),
    [
        pytest.param(3, "% shorter now", "They talked.", id="a few"),
        pytest.param(1000, "changed while it was being summarised", "", id="without end"),
    ],
)
async def test_rows_that_come_meanwhile_stay_in_view_or_nothing_is_shortened(
    tmp_path: Path, more: int, told: str, summary: str
) -> None:
    async with room(tmp_path, always(ok("They talked.")), kind=Moving) as made:
        store = made.store
        assert isinstance(store, Moving)
        await talked(store)
        await store.apply(started("t9", "s1", key=KEY, said="more"))
        store.added_by, store.more = "t9", more
        await made.call("compact")
        (text,) = await made.shown()
        assert told in text
        added, store.more = more - store.more, 0
        found, rows = await store.sessions.context("s1")
        assert found == summary
        assert [row.content for row in rows[-added - 1 :]] == [
            "more",
            *(f"{more - number} are left" for number in range(1, added + 1)),
        ]
        assert len(rows) == (added + 1 if summary else added + 7)
        assert (await store.spending.totals(session_id="s1")).requests == 1
