"""Failures of side requests; tests/e2e/test_side_commands.py has the rest."""

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from agent.settings import TargetSettings
from agent.tools.contract import Tool
from gateway.access.policy import Role
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply, ReplyLater
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import read_body
from gateway.notices.compose import NoticeComposer
from gateway.settings import LimitSettings, Settings
from gateway.side_requests.jobs import CommandJobs
from gateway.side_requests.service import REASONING_LEVELS, SideRequests
from gateway.spending.budgets import Budgets
from gateway.turns.choices import ModelChoices
from gateway.turns.models import ExternalTools, Models, open_targets
from sessions.changes import AppendMessages, EndAttempt, PutSummary, StartAttempt
from sessions.conversation.events import CommandContext, ConversationState, RunningTurn
from sessions.records import InboxEntry, InboxState, Message, OutboxItem
from sessions.store.database import Database
from sessions.store.readers import SessionReader
from sessions.store.store import SessionStore, StoreObserver
from sessions.values.address import Address
from sessions.values.clock import Clock
from sessions.values.ids import Ids
from sessions.values.notices import NoticeId
from tests.contract.store_kit import ended, opened, started
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script, ok
from tests.fakes.model_server import Handler, ModelServer, always
from tests.fakes.quick_time import TimerClock

pytestmark = pytest.mark.quick

KEY = "memory:7"
ADDRESS = Address("memory", "7")
PERSON = "memory:1001"
LONG = "A long story about ships and harbours. " * 40
HOUR = 3_600_000


class SetClock(TimerClock):
    time: int | None = None

    def now(self) -> int:
        return super().now() if self.time is None else self.time


class SideRequestKit:
    """Side requests on a real store and a real client, without a platform."""

    def __init__(
        self,
        store: SessionStore,
        side_requests: SideRequests,
        jobs: CommandJobs,
        server: ModelServer,
        clock: SetClock,
    ) -> None:
        self.store = store
        self.jobs = jobs
        self.server = server
        self.side_requests = side_requests
        self.clock = clock
        self.state = ConversationState(key=KEY, session="s1")
        self._numbers = 0

    async def call(self, word: str, args: str = "") -> CommandOutcome:
        """Run a command as the dispatcher does, after its row is stored."""
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
        services: Any = self
        call = CommandCall(
            key=KEY,
            args=args,
            context=CommandContext(address=ADDRESS, person=PERSON, inbox=inbox),
            role=Role.MEMBER,
            principal=PERSON,
            name="Me",
            direct=True,
            command_template="/{word}",
            services=services,
        )
        outcome: CommandOutcome = await getattr(self.side_requests, word)(call)
        return outcome

    async def read_state(self, _key: str) -> ConversationState:
        """See `CommandServices`."""
        return self.state

    async def shown(self) -> list[str]:
        """Wait until all jobs have ended, and return the texts to be shown."""
        while tasks := set(self.jobs._running):
            async with asyncio.timeout(5):
                await asyncio.wait(tasks)
        return [read_body(item).text for item in await self.items()]

    async def items(self) -> list[OutboxItem]:
        return list(await self.store.outbox.undelivered())


@contextlib.asynccontextmanager
async def side_request_kit(
    home: Path,
    *scripts: Script | Handler,
    deadline: float = 5.0,
    kind: type[SessionStore] = SessionStore,
    mcp_tools: Callable[[], Sequence[Tool]] = lambda: (),
    **model: Any,
) -> AsyncIterator[SideRequestKit]:
    clock = SetClock()
    async with ModelServer(*scripts) as server, asyncio.TaskGroup() as tasks:
        settings = scripted_model(
            server,
            **model,
        )
        store = await kind.open(f"sqlite:///{home / 'holdfast.db'}", clock=clock)
        used = Settings(model=settings)
        choices = ModelChoices(store)
        models = Models(
            used,
            home,
            await open_targets(used),
            clock=clock,
            external=ExternalTools(tools=lambda _person: mcp_tools()),
            choice_for=choices.get,
        )

        async def has_access(_: CommandCall) -> bool:
            return True

        jobs = CommandJobs(
            clock,
            NoticeComposer(Ids(clock), clock, lambda _: None),
            Delivery(store, clock, home / "sent"),
            tasks,
            has_access=has_access,
        )
        side_requests = SideRequests(
            store=store,
            clock=clock,
            models=models,
            budgets=Budgets(store, clock, LimitSettings(), zone=dt.UTC),
            choices=choices,
            jobs=jobs,
            deadline_seconds=deadline,
        )
        try:
            with jobs.closing():
                yield SideRequestKit(store, side_requests, jobs, server, clock)
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


def test_the_reasoning_levels_match_the_configuration() -> None:
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


async def test_a_side_question_times_out_and_its_cost_is_kept(
    tmp_path: Path,
) -> None:
    async with side_request_kit(tmp_path, always('H T"so far" HANG'), deadline=0.3) as kit:
        await talked(kit.store)
        assert await kit.call("btw", "and?") == ReplyLater()
        assert await kit.shown() == [
            "💬 Sorry, I couldn't answer your side question: no answer within 0.005 minutes."
        ]
        assert (await kit.store.spending.totals(session_id="s1", person=PERSON)).requests == 1
        assert await kit.store.inbox.pending_commands() == ()


async def test_a_summary_times_out(tmp_path: Path) -> None:
    async with side_request_kit(tmp_path, always("H HANG"), deadline=0.3) as kit:
        await talked(kit.store)
        await kit.call("compact")
        (text,) = await kit.shown()
        assert "couldn't summarise the conversation: no answer within" in text
        assert (await kit.store.sessions.context("s1"))[0] == ""


async def test_the_answer_of_btw_is_delivered_as_an_answer_not_as_a_notice(
    tmp_path: Path,
) -> None:
    async with side_request_kit(tmp_path, ok("fine"), 'S400"closed"') as kit:
        await talked(kit.store)
        await kit.call("btw", "and?")
        assert await kit.shown() == ["💬 fine"]
        await kit.call("btw", "and then?")
        assert "closed" in (await kit.shown())[1]
        assert [item.kind for item in await kit.items()] == ["answer", "notice"]


async def test_a_side_question_includes_the_summary_of_the_session(
    tmp_path: Path,
) -> None:
    async with side_request_kit(tmp_path, ok("fine")) as kit:
        await talked(kit.store)
        await kit.store.apply(PutSummary(session_id="s1", keep=2, summary="They talked.", at=3))
        await kit.call("btw", "and?")
        assert await kit.shown() == ["💬 fine"]
        asked = kit.server.requests[0].messages[0]["content"]
    assert asked.startswith("[Summary of the conversation so far: They talked.]")


async def test_an_empty_answer_is_a_failure(tmp_path: Path) -> None:
    async with side_request_kit(tmp_path, always("H F stop U D")) as kit:
        await talked(kit.store)
        await kit.call("btw", "and?")
        (text,) = await kit.shown()
        assert text.startswith("💬 Sorry, I couldn't answer your side question: ")
        assert not text.endswith("..")


async def test_an_unexpected_error_in_a_side_request_is_reported_and_contained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> tuple[Tool, ...]:
        msg = "nobody expected this"
        raise RuntimeError(msg)

    async with side_request_kit(tmp_path, mcp_tools=broken) as kit:
        with caplog.at_level(logging.ERROR):
            await kit.call("btw", "and?")
            assert await kit.shown() == [
                "Sorry, that didn't work just now. Please try again in a moment."
            ]
        assert "/btw failed" in caplog.text
        assert await kit.store.inbox.pending_commands() == ()


async def test_a_side_request_whose_answer_cannot_be_stored_runs_again_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with side_request_kit(tmp_path, 'H W.2 T"fine" F stop U D') as kit:
        await kit.call("btw", "and?")
        async with asyncio.timeout(5):
            await kit.server.request(1)
            kit.store.database.stop()
            with caplog.at_level(logging.WARNING):
                await asyncio.wait(set(kit.jobs._running))
        assert "will run again at the next start" in caplog.text
    again = await SessionStore.open(f"sqlite:///{tmp_path / 'holdfast.db'}", clock=TimerClock())
    (left,) = await again.inbox.pending_commands()
    assert left.state is InboxState.COMMAND
    assert await again.outbox.undelivered() == ()
    await again.close()


async def test_side_requests_during_shutdown_run_at_the_next_start(tmp_path: Path) -> None:
    async with side_request_kit(tmp_path, always("H HANG")) as kit:
        await kit.call("btw", "one")
        with kit.jobs.closing():
            pass
        assert await kit.shown() == []
        assert await kit.call("btw", "two") == ReplyLater()
        assert await kit.shown() == []
        assert len(await kit.store.inbox.pending_commands()) == 2


# --- immediate replies -------------------------------------------------------------------------


async def test_compact_is_refused_while_a_turn_runs_or_without_a_session(
    tmp_path: Path,
) -> None:
    async with side_request_kit(tmp_path) as kit:
        turn = RunningTurn(
            id="t1", session="s1", address=ADDRESS, person=PERSON, request="go", started_at=1
        )
        kit.state = ConversationState(key=KEY, session="s1", turn=turn)
        assert await kit.call("compact") == NoticeReply(NoticeId.BUSY)
        kit.state = ConversationState(key=KEY)
        assert await kit.call("compact") == NoticeReply(NoticeId.COMPACT_NOTHING)


async def test_an_unknown_reasoning_level_changes_nothing(tmp_path: Path) -> None:
    async with side_request_kit(tmp_path, reasoning_effort="low") as kit:
        for written, near in (("hgih", "high"), ("zzz", "")):
            outcome = await kit.call("reasoning", written)
            assert isinstance(outcome, NoticeReply)
            assert outcome.notice == "reasoning_unknown"
            assert (outcome.fields["name"], outcome.fields["nearest"]) == (written, near)
        assert await kit.call("reasoning") == NoticeReply(
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
        kit.state = ConversationState(key=KEY, session="s1", turn=leaving)
        assert await kit.call("reasoning", "XHIGH") == NoticeReply(
            NoticeId.REASONING_SET, {"level": "xhigh", "running": 0}
        )


async def test_a_long_unknown_model_name_is_quoted_on_one_short_line(tmp_path: Path) -> None:
    async with side_request_kit(tmp_path) as kit:
        await kit.call("model", "zz\n" * 400)
        (text,) = await kit.shown()
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


async def test_usage_shows_the_last_answer_the_conversation_and_the_persons_day(
    tmp_path: Path,
) -> None:
    now = 1_795_003_200_000  # noon
    async with side_request_kit(tmp_path) as kit:
        kit.clock.time = now
        await kit.store.apply(
            opened("s1", key=KEY),
            *request("t1", 1, PERSON, now - 13 * HOUR, "s1"),
            *request("t2", 10, PERSON, now - 11 * HOUR, "s1"),
            *request("t3", 100, "memory:2002", now - HOUR, "s1"),
        )
        outcome = await kit.call("usage")
    assert isinstance(outcome, NoticeReply)
    lines = [line.split() for line in str(outcome.fields["text"]).splitlines()]
    assert ["requests", "1", "3", "1"] in lines
    assert ["tokens", "in", "100", "111", "10"] in lines


async def test_usage_without_a_session_is_zero(tmp_path: Path) -> None:
    async with side_request_kit(tmp_path) as kit:
        outcome = await kit.call("usage")
        assert isinstance(outcome, NoticeReply)
        assert "requests          0        0        0" in str(outcome.fields["text"])
        await kit.store.apply(opened("s1", key=KEY))
        assert await kit.call("usage") == outcome


# --- changes during a summary ------------------------------------------------------------------


class Moving(SessionStore):
    """A store in which a turn adds a row after every read of the context."""

    more = 0  # rows that will still be added
    added_by = ""

    def __init__(
        self, database: Database, clock: Clock, observer: StoreObserver | None = None
    ) -> None:
        super().__init__(database, clock, observer)
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
        pytest.param(3, "% shorter", "They talked.", id="a few rows"),
        pytest.param(1000, "changed while I was summarising it", "", id="rows without end"),
    ],
)
async def test_rows_added_during_compaction_are_kept_or_compaction_is_given_up(
    tmp_path: Path, more: int, told: str, summary: str
) -> None:
    async with side_request_kit(tmp_path, always(ok("They talked.")), kind=Moving) as kit:
        store = kit.store
        assert isinstance(store, Moving)
        await talked(store)
        await store.apply(started("t9", "s1", key=KEY, said="more"))
        store.added_by, store.more = "t9", more
        await kit.call("compact")
        (text,) = await kit.shown()
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
