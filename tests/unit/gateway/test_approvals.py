"""Questions whether tools may run: on a real store, delivered to chats in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.access.people import People
from gateway.access.policy import Role
from gateway.access.settings import AccessSettings
from gateway.approvals.broker import ApprovalBroker, RequestingTurn
from gateway.approvals.rules import approval_code
from gateway.approvals.wording import NO_ADMIN, PERMISSION_USED, UNATTENDED, refusal_text
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply
from gateway.delivery.outbox import Delivery
from gateway.delivery.view import write_address
from gateway.notices.catalogue import render_notice
from gateway.notices.compose import NoticeComposer
from platforms.core.contract import Address, Capabilities, Op, Receipt
from sessions.changes import AnswerApproval, EndTurn, OpenSession, PutItem, StartTurn
from sessions.conversation.events import CommandContext
from sessions.errors import StoreUnavailable
from sessions.records import (
    Approval,
    ApprovalState,
    ItemState,
    Message,
    OutboxItem,
    ToolCall,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.ids import Ids
from sessions.values.notices import NoticeId
from tests.fakes.memory import MemoryAdapter, VisibleMessage

PATIENCE = 5.0
HALF_AN_HOUR = 1_800_000
YES, NO = "approve", "deny"
ANN, BOB, CHIEF = "memory:1", "memory:2", "memory:9"
MAY, MAY_NOT = (
    NoticeReply(NoticeId.ASK_MAY, {"tool": "run"}),
    NoticeReply(NoticeId.ASK_MAY_NOT, {"tool": "run"}),
)
NOTED, LATE, ANSWERED = (
    NoticeReply(NoticeId.ASK_NOTED),
    NoticeReply(NoticeId.ASK_LATE),
    NoticeReply(NoticeId.ASK_ANSWERED),
)


def a_tool(risk: Risk) -> Tool:
    @tool(risk=risk)
    async def run(context: ToolContext, command: str) -> str:
        """Do it.

        Args:
            context: Not part of the call.
            command: What to do.
        """
        msg = f"{command}: here it is only asked whether a call may run; none does"
        raise NotImplementedError(msg)

    return run


EXEC, NET, WRITE = a_tool(Risk.EXEC), a_tool(Risk.NET), a_tool(Risk.WRITE)


def call_of(command: str = "ls", id_: str = "c1") -> ToolCall:
    return ToolCall(id_, "run", f'{{"command": "{command}"}}')


class SetClock:
    def __init__(self) -> None:
        self.time = 1_000_000_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000


class Screen(MemoryAdapter):
    """Chats that can be waited for."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(burst=1000, **limits)
        self._changed = asyncio.Event()

    async def deliver(self, op: Op) -> Receipt:
        try:
            return await super().deliver(op)
        finally:
            self._changed.set()

    async def one(self, chat: str, *texts: str) -> VisibleMessage:
        """Wait until one message has all of these."""

        def found() -> list[VisibleMessage]:
            return [
                each for each in self.messages(chat) if all(text in each.text for text in texts)
            ]

        try:
            async with asyncio.timeout(PATIENCE):
                while not found():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(self.screen(chat)) from None
        return found()[0]


class Waiting(dict[str, asyncio.Future[Approval]]):
    """Who waits for which answer; tells when somebody begins to."""

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Event()

    def __setitem__(self, id_: str, answer: asyncio.Future[Approval]) -> None:
        super().__setitem__(id_, answer)
        self.more.set()


class Office:
    """What a gateway has of questions, and a person to play with it."""

    def __init__(self, store: SessionStore, screen: Screen, clock: SetClock) -> None:
        self.store = store
        self.screen = screen
        self.clock = clock
        self.owned: list[asyncio.Task[None]] = []
        self.others: list[asyncio.Task[str | None]] = []
        self.waiting = Waiting()
        self.approvals: ApprovalBroker
        self.delivery: Delivery
        self.tasks: asyncio.TaskGroup

    def own(self, work: object) -> None:
        self.owned.append(self.tasks.create_task(work))  # type: ignore[arg-type]  # a coroutine

    def asks(
        self,
        how: Tool = EXEC,
        call: ToolCall | None = None,
        *,
        person: str = ANN,
        chat: str = "1",
        session: str = "s1",
        turn: str = "t1",
        key: str = "",
    ) -> asyncio.Task[str | None]:
        """Let a tool ask; the task ends when it knows."""
        where = write_address(Address("memory", chat))
        asking = RequestingTurn(
            key=key or f"memory:{chat}",
            session_id=session,
            turn_id=turn,
            address=where,
            person=person,
        )
        return self.tasks.create_task(
            self.approvals.request_approval(asking, how, call or call_of())
        )

    def begins(
        self,
        how: Tool = EXEC,
        call: ToolCall | None = None,
        *,
        person: str = ANN,
        session: str = "s1",
    ) -> None:
        """Let a tool ask whose answer is of no interest."""
        self.others.append(self.asks(how, call, person=person, session=session))

    async def waited(self, number: int = 1) -> str:
        """Wait until so many answers are waited for; give the newest question's id."""
        async with asyncio.timeout(PATIENCE):
            while len(self.waiting) < number:
                self.waiting.more.clear()
                await self.waiting.more.wait()
        return list(self.waiting)[-1]

    async def asked(self, number: int = 1) -> Approval:
        """Wait until so many questions are shown and waited for; give the newest."""
        id_ = await self.waited(number)
        await self.screen.one("1", approval_code(id_))
        found = await self.store.approvals.get(id_)
        assert found
        return found

    async def says(
        self, word: str, args: str = "", *, person: str = ANN, admin: bool = False, chat: str = ""
    ) -> CommandOutcome:
        """Answer by a command, in private unless a chat is named."""
        where = write_address(Address("memory", chat or person.partition(":")[2]))
        call = CommandCall(
            key=f"memory:{chat or person.partition(':')[2]}",
            args=args,
            context=CommandContext(address=where, person=person, admin=admin, inbox="i1"),
            role=Role.ADMIN if admin else Role.MEMBER,
            principal=person,
            name="",
            direct=not chat,
            command_template="/{word}",
            services=None,  # type: ignore[arg-type]  # not used
        )
        return await self.approvals.answer(call, allow=word == YES)

    async def presses(
        self, id_: str, word: str, *, person: str = ANN, admin: bool = False
    ) -> CommandOutcome:
        place = Address("memory", person.partition(":")[2])
        return await self.approvals.on_button(
            id_,
            CommandContext(address=write_address(place), person=person, admin=admin),
            role=Role.ADMIN if admin else Role.MEMBER,
            allow=word == YES,
        )

    async def state(self, id_: str) -> ApprovalState:
        found = await self.store.approvals.get(id_)
        assert found
        return found.state

    async def ends(self, state: TurnState, turn: str = "t1") -> None:
        await self.store.apply(EndTurn(turn, state, self.clock.now()))


@contextlib.asynccontextmanager
async def office(
    home: Path,
    screen: Screen | None = None,
    *,
    admins: tuple[str, ...] = (CHIEF,),
    mode: Literal["ask", "never"] = "ask",
    wait: float = HALF_AN_HOUR / 1000,
    clock: SetClock | None = None,
    tasks: Callable[[object], object] | None = None,
) -> AsyncIterator[Office]:
    """A running part of a gateway; at the end what still asks is cut off, as by a crash."""
    clock, screen = clock or SetClock(), screen or Screen()
    store = await SessionStore.open(f"sqlite:///{home / 'holdfast.db'}", clock=clock)
    made = Office(store, screen, clock)
    if await store.sessions.get("s1") is None:
        address = write_address(Address("memory", "1"))
        await store.apply(
            OpenSession("s1", "memory:1", address, 1),
            StartTurn(
                id="t1",
                session_id="s1",
                key="memory:1",
                address=address,
                inbox=(),
                messages=(Message("user", "go"),),
                request="go",
                at=1,
                person=ANN,
            ),
        )

    def capabilities(place: Address) -> Capabilities | None:
        return screen.capabilities if place.platform == "memory" else None

    ids, people = Ids(clock), People(store, clock, AccessSettings(admins=admins))
    await people.load()
    made.delivery = Delivery(store, clock)
    made.delivery.attach(screen)
    await made.delivery.recover()
    made.approvals = ApprovalBroker(
        store,
        clock,
        ids,
        NoticeComposer(ids, clock, capabilities),
        made.delivery,
        people,
        mode=lambda: mode,
        capabilities=capabilities,
        create_task=tasks or made.own,
        timeout_seconds=wait,
    )
    made.approvals._waiters = made.waiting
    made.delivery.on_connected("memory")
    async with asyncio.TaskGroup() as outside:
        running = outside.create_task(made.delivery.run())
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as made.tasks:
                yield made
                await made.delivery.flush(PATIENCE)
                for each in [each for each in made.tasks._tasks if each not in made.owned]:
                    each.cancel()
        running.cancel()
    await store.close()


async def said(task: asyncio.Task[str | None]) -> str | None:
    async with asyncio.timeout(PATIENCE):
        return await task


# --- whether anybody is asked --------------------------------------------------------------------


async def test_where_nobody_is_to_be_asked_everything_may_run_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    async with office(tmp_path, mode="never") as desk:
        assert await said(desk.asks()) is None
        assert await said(desk.asks(key="api:x")) is None
        assert await desk.store.approvals.open() == ()
        assert desk.screen.messages("1") == []


@pytest.mark.parametrize(
    ("how", "key", "person", "admins", "why"),
    [
        pytest.param(NET, "api:x", "api:key", (CHIEF,), UNATTENDED, id="a program asked"),
        pytest.param(NET, "schedule:x", ANN, (CHIEF,), UNATTENDED, id="at an hour"),
        pytest.param(EXEC, "", ANN, (), NO_ADMIN, id="there is no admin"),
        pytest.param(EXEC, "", ANN, ("other:5",), NO_ADMIN, id="of a platform that is not there"),
        pytest.param(EXEC, "", ANN, ("other:G/role:R",), NO_ADMIN, id="by a role elsewhere"),
    ],
)
async def test_where_nobody_can_answer_it_does_not_run_and_nothing_is_asked(
    tmp_path: Path, how: Tool, key: str, person: str, admins: tuple[str, ...], why: str
) -> None:
    async with office(tmp_path, admins=admins) as desk:
        assert await said(desk.asks(how, key=key, person=person)) == why
        assert await desk.store.approvals.open() == ()


@pytest.mark.parametrize(
    ("how", "person", "admins"),
    [
        pytest.param(NET, ANN, (), id="the requester may answer"),
        pytest.param(EXEC, "web:owner", (), id="the owner at the page asked, alone"),
        pytest.param(EXEC, "web:owner", (CHIEF,), id="the owner at the page asked"),
        pytest.param(EXEC, ANN, (ANN,), id="an admin asked"),
        pytest.param(EXEC, ANN, ("memory:G/role:R",), id="somebody there may have the role"),
    ],
)
async def test_where_somebody_in_the_chat_can_answer_nobody_else_is_asked(
    tmp_path: Path, how: Tool, person: str, admins: tuple[str, ...]
) -> None:
    async with office(tmp_path, admins=admins) as desk:
        desk.begins(how, person=person)
        asked = await desk.asked()
        assert (await desk.screen.one("1", "wants to run")).buttons
        assert [chat for chat in desk.screen._chats if desk.screen.messages(chat)] == ["1"]
        assert asked.expires_at - asked.asked_at == HALF_AN_HOUR


# --- the question --------------------------------------------------------------------------------


async def test_a_question_shows_the_call_and_how_to_answer_it(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        desk.begins(NET)
        asked = await desk.asked()
        code = approval_code(asked.id)
        shown = await desk.screen.one("1", "wants to run")
        assert shown.text == (
            '🔐 run wants to run:\n```json\n{\n  "command": "ls"\n}\n```\n'
            f"/approve {code} or /deny {code}, within 30 minutes"
        )
        assert [(each.label, each.action) for each in shown.buttons] == [
            ("Allow", f"approve:{asked.id}"),
            ("Deny", f"deny:{asked.id}"),
        ]
        assert all(len(each.action.encode()) <= 64 for each in shown.buttons)
        assert (asked.key, asked.session_id, asked.turn_id) == ("memory:1", "s1", "t1")
        assert (asked.call_id, asked.tool, asked.arguments) == ("c1", "run", '{"command": "ls"}')
        assert (asked.person, asked.by_requester) == (ANN, True)
    assert desk.screen.violations() == []


async def test_what_only_admins_may_answer_is_asked_of_them_in_private_too(tmp_path: Path) -> None:
    async with office(tmp_path, admins=(CHIEF, "memory:8", "other:7")) as desk:
        desk.begins(EXEC)
        await desk.asked()
        await desk.screen.one("1", "An admin has to answer within 30 minutes:")
        await desk.screen.one("9", "🔐 run wants to run for memory:1:", "/approve ")
        await desk.screen.one("8", "🔐 run wants to run for memory:1:")


async def test_a_call_that_may_have_had_its_effect_says_so_to_the_requester(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as desk:
        again = desk.asks(WRITE)
        await desk.asked()
        await desk.screen.one("1", "once more; the time before it may have taken effect:")
        assert await desk.says(YES) == MAY
        assert await said(again) is None


async def test_where_there_are_too_few_buttons_there_are_none(tmp_path: Path) -> None:
    async with office(tmp_path, Screen(buttons=1)) as desk:
        desk.begins(NET)
        await desk.asked()
        assert (await desk.screen.one("1", "/approve")).buttons == ()


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_button", [False, True], ids=["command", "button"])
async def test_an_allowed_call_runs_once_and_every_chat_says_who_allowed_it(
    tmp_path: Path, by_button: bool
) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        asked = await desk.asked()
        if by_button:
            answer = await desk.presses(asked.id, YES, person=CHIEF, admin=True)
            assert answer == NoticeReply(NoticeId.ASK_SILENT)
            assert render_notice(NoticeId.ASK_SILENT, {}, "/{word}") == ""
        else:
            assert await desk.says(YES, person=CHIEF, admin=True) == MAY
        assert await said(task) is None
        assert await desk.state(asked.id) is ApprovalState.USED
        for chat in ("1", "9"):
            shown = await desk.screen.one(chat, "✅ Allowed by memory:9.", '"command": "ls"')
            assert shown.buttons == ()
            assert len(desk.screen.messages(chat)) == 1
        second = desk.asks()  # one answer serves one run
        assert (await desk.asked()).id != asked.id
        assert not second.done()


async def test_a_denied_call_tells_the_model_who_and_why(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        asked = await desk.asked()
        assert await desk.says(NO, f"{approval_code(asked.id).lower()} too  dear") == MAY_NOT
        assert await said(task) == "denied by memory:1: too dear"
        await desk.screen.one("1", "🚫 Denied by memory:1: too dear.")
        desk.begins(NET)  # that somebody said no once is asked again in a new turn
        assert (await desk.asked()).id != asked.id


async def test_a_reason_has_an_end(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        await desk.asked()
        await desk.says(NO, "no " * 1000)
        assert len(await said(task) or "") < 600


async def test_nobody_answering_in_time_is_a_no(tmp_path: Path) -> None:
    async with office(tmp_path, wait=0.2) as desk:
        task = desk.asks()
        asked = await desk.asked()
        assert await said(task) == (
            "it needs somebody's approval, and nobody answered within the time there was."
        )
        assert await desk.state(asked.id) is ApprovalState.EXPIRED
        for chat in ("1", "9"):
            assert (await desk.screen.one(chat, "⌛ Nobody answered in time")).buttons == ()
        assert await desk.presses(asked.id, YES, person=CHIEF, admin=True) == LATE


@pytest.mark.parametrize(
    ("how", "person", "admin", "told"),
    [
        pytest.param(
            EXEC, ANN, False, NoticeReply(NoticeId.ADMINS_ONLY), id="a member, for a program"
        ),
        pytest.param(NET, BOB, False, NoticeReply(NoticeId.NOT_YOURS), id="another member"),
    ],
)
async def test_who_is_not_entitled_changes_nothing(
    tmp_path: Path, how: Tool, person: str, admin: bool, told: NoticeReply
) -> None:
    async with office(tmp_path) as desk:
        desk.begins(how)
        asked = await desk.asked()
        for word in (YES, NO):
            assert (
                await desk.says(word, approval_code(asked.id), person=person, admin=admin) == told
            )
            assert await desk.presses(asked.id, word, person=person, admin=admin) == told
        assert await desk.state(asked.id) is ApprovalState.OPEN


async def test_without_a_code_the_only_question_is_meant_and_several_are_listed(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as desk:
        assert await desk.says(YES) == NoticeReply(NoticeId.ASK_NONE)
        desk.begins(NET, call_of("one"))
        first = await desk.asked()
        desk.clock.time += 1
        two = desk.asks(NET, call_of("two"))
        second = await desk.asked(2)
        several = await desk.says(YES)
        assert isinstance(several, NoticeReply)
        assert several.fields["list"] == (
            f'{approval_code(first.id)} run `{{"command": "one"}}`\n'
            f'{approval_code(second.id)} run `{{"command": "two"}}`'
        )
        assert await desk.says(YES, "please") == NoticeReply(
            NoticeId.ASK_UNKNOWN, {"code": "please"}
        )
        assert await desk.says(YES, f"{approval_code(second.id)} please") == MAY
        assert await said(two) is None
        assert await desk.says(YES) == MAY
        assert await desk.says(YES, approval_code(first.id)) == NoticeReply(
            NoticeId.ASK_UNKNOWN, {"code": approval_code(first.id)}
        )


async def test_codes_of_open_questions_differ(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        numbers = iter([7, 7, 7 + 32**4, 8])
        desk.approvals._ids = Ids(SteppingClock(), lambda _: next(numbers))
        desk.begins(NET, call_of("one"))
        first = await desk.asked()
        desk.begins(NET, call_of("two"))
        second = await desk.asked(2)
        assert approval_code(first.id) != approval_code(second.id)
        assert next(numbers, None) is None


class SteppingClock(SetClock):
    def now(self) -> int:
        self.time += 1
        return self.time


async def test_of_two_who_answer_at_once_one_is_first(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        asked = await desk.asked()
        async with asyncio.TaskGroup() as group:
            yes = group.create_task(desk.says(YES, person=CHIEF, admin=True))
            no = group.create_task(desk.presses(asked.id, NO, person="web:owner", admin=True))
        why = await said(task)
        if why is None:
            assert (yes.result(), no.result()) == (MAY, ANSWERED)
        else:
            assert why == "denied by web:owner."
            assert (yes.result(), no.result()) == (ANSWERED, NoticeReply(NoticeId.ASK_SILENT))
        assert await desk.presses(asked.id, YES, person=CHIEF, admin=True) == ANSWERED


async def test_of_many_who_saw_it_open_all_but_one_are_told_that_they_are_late(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        asked = await desk.asked()
        async with asyncio.TaskGroup() as group:
            answers = [
                group.create_task(
                    desk.approvals._record_answer(asked, f"memory:{who}", allow=who % 2 > 0)
                )
                for who in range(10)
            ]
        assert sorted(str(each.result()) for each in answers) == ["None", *[str(ANSWERED)] * 9]
        first = next(who for who, each in enumerate(answers) if each.result() is None)
        assert await said(task) == (None if first % 2 else f"denied by memory:{first}.")


async def test_a_button_of_no_question_says_so(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        assert await desk.presses("p_12345", YES) == NoticeReply(
            NoticeId.ASK_UNKNOWN, {"code": "2345"}
        )


async def test_an_answer_in_the_moment_in_which_the_time_is_over_counts(tmp_path: Path) -> None:
    async with office(tmp_path, wait=0.3) as desk:
        task = desk.asks(NET)
        asked = await desk.asked()
        now = desk.clock.now()  # as another writer would: nobody tells who waits
        await desk.store.apply(
            AnswerApproval(id=asked.id, state=ApprovalState.ALLOWED, by=ANN, at=now)
        )
        assert await said(task) is None
        assert await desk.state(asked.id) is ApprovalState.USED


async def test_a_permission_that_is_found_used_up_is_called_that(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        asked = await desk.asked()
        assert not task.done()
        used = msgspec.structs.replace(asked, state=ApprovalState.USED)
        assert refusal_text(used) == PERMISSION_USED


async def test_a_permission_that_somebody_else_used_up_serves_no_second_call(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        asked = await desk.asked()
        now = desk.clock.now()
        allowed = msgspec.structs.replace(asked, state=ApprovalState.ALLOWED, answered_at=now)
        for state in (ApprovalState.ALLOWED, ApprovalState.USED):
            await desk.store.apply(AnswerApproval(id=asked.id, state=state, by=ANN, at=now))
        desk.approvals._waiters[asked.id].set_result(allowed)
        assert await said(task) == PERMISSION_USED


# --- a stop --------------------------------------------------------------------------------------


async def cut(desk: Office, task: asyncio.Task[str | None], state: TurnState) -> None:
    """As the owner of a conversation does it: cancel first, store second."""
    task.cancel()
    await desk.ends(state)
    with pytest.raises(asyncio.CancelledError):
        await said(task)
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(desk.owned)


async def test_a_stop_closes_the_question_beside(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        asked = await desk.asked()
        await cut(desk, task, TurnState.STOPPED)
        assert await desk.state(asked.id) is ApprovalState.EXPIRED
        for chat in ("1", "9"):
            assert (await desk.screen.one(chat, "⏹ This is over")).buttons == ()
        assert await desk.says(YES, person=CHIEF, admin=True) == NoticeReply(NoticeId.ASK_NONE)
        assert await desk.presses(asked.id, YES, person=CHIEF, admin=True) == LATE


@pytest.mark.parametrize("state", [TurnState.INTERRUPTED, TurnState.RUNNING])
async def test_a_turn_that_may_go_on_keeps_its_question(tmp_path: Path, state: TurnState) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        asked = await desk.asked()
        await cut(desk, task, state)
        assert await desk.state(asked.id) is ApprovalState.OPEN


async def test_a_permission_that_a_stop_overtook_does_not_count_later(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        asked = await desk.asked()
        now = desk.clock.now()
        await desk.store.apply(
            AnswerApproval(id=asked.id, state=ApprovalState.ALLOWED, by=ANN, at=now)
        )
        await cut(desk, task, TurnState.STOPPED)
        assert await desk.state(asked.id) is ApprovalState.USED


async def test_a_stop_before_the_question_is_stored_leaves_nothing_open(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        await desk.waited()
        await cut(desk, task, TurnState.STOPPED)
        assert await desk.store.approvals.open() == ()


async def test_a_store_that_fails_beside_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks()
        asked = await desk.asked()
        desk.approvals._store = Broken(desk.store)  # type: ignore[assignment]  # only one method
        await cut(desk, task, TurnState.STOPPED)
        assert "stays open" in caplog.text
        desk.approvals._store = desk.store
        await desk.approvals.close_expired()  # the next hour finds it
        assert await desk.state(asked.id) is ApprovalState.EXPIRED
        await desk.screen.one("1", "⏹ This is over")


class Broken:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def check_writable(self) -> None:
        raise StoreUnavailable


async def test_an_end_of_the_process_needs_no_owner_for_what_is_beside(tmp_path: Path) -> None:
    def none_left(_: object) -> object:
        raise RuntimeError

    async with office(tmp_path, tasks=none_left) as desk:
        task = desk.asks()
        asked = await desk.asked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await said(task)
        assert await desk.state(asked.id) is ApprovalState.OPEN


# --- over a restart ------------------------------------------------------------------------------


async def asked_and_crashed(home: Path, screen: Screen, clock: SetClock, how: Tool = NET) -> str:
    async with office(home, screen, clock=clock) as desk:
        desk.begins(how)
        return (await desk.asked()).id


async def test_an_open_question_is_waited_for_again_instead_of_asked_twice(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        task = desk.asks(NET, call_of(id_="another"))
        assert (await desk.asked()).id == id_
        assert len(screen.messages("1")) == 1
        assert await desk.says(YES) == MAY
        assert await said(task) is None
        await screen.one("1", "✅ Allowed by memory:1.")
        assert len(screen.messages("1")) == 1


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ("call", call_of("rm")),
        ("session", "s2"),
        ("person", BOB),
        ("call", ToolCall("c1", "walk", call_of().arguments)),
    ],
    ids=["arguments", "session", "person", "tool"],
)
@pytest.mark.parametrize("settled", [None, "approve", "deny"], ids=["open", "allowed", "denied"])
async def test_only_the_very_same_call_of_the_same_session_and_person_is_meant(
    tmp_path: Path, changed: str, value: object, settled: str | None
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        if settled is not None:
            assert await desk.says(settled) == NOTED
        desk.begins(NET, **{changed: value})  # type: ignore[arg-type]  # its own arguments
        assert await desk.waited() != id_


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize("by_button", [False, True], ids=["command", "button"])
async def test_an_answer_while_nothing_waits_counts_once_when_the_call_comes_again(
    tmp_path: Path, word: str, by_button: bool
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        if by_button:
            assert await desk.presses(id_, word) == NOTED
        else:
            assert await desk.says(word) == NOTED
        await screen.one("1", "✅ Allowed by" if word == YES else "🚫 Denied by")
        assert len(screen.messages("1")) == 1
        assert await desk.presses(id_, word) == ANSWERED
    async with office(tmp_path, screen, clock=clock) as desk:
        clock.time += HALF_AN_HOUR - 1
        await desk.approvals.close_expired()
        assert await said(desk.asks(NET)) == (None if word == YES else "denied by memory:1.")
        assert await desk.state(id_) is (
            ApprovalState.USED if word == YES else ApprovalState.DENIED
        )
        desk.begins(NET)
        assert (await desk.asked()).id != id_


@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_what_counts_is_when_it_was_answered_not_when_it_was_asked(
    tmp_path: Path, word: str
) -> None:
    screen, clock = Screen(), SetClock()
    await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        clock.time += HALF_AN_HOUR - 1
        assert await desk.says(word) == NOTED
        clock.time += HALF_AN_HOUR - 1
        assert await said(desk.asks(NET)) == (None if word == YES else "denied by memory:1.")


async def test_a_question_that_a_later_turn_waits_for_is_not_over_with_its_own(
    tmp_path: Path,
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        task = desk.asks(NET, turn="t2")
        assert await desk.waited() == id_
        await desk.ends(TurnState.FAILED)
        await desk.approvals.close_expired()
        assert await desk.says(YES) == MAY
        assert await said(task) is None


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "not swept"])
async def test_an_old_answer_does_not_count(tmp_path: Path, word: str, swept: bool) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        clock.time += 1000
        assert await desk.says(word) == NOTED
        clock.time += HALF_AN_HOUR
        if swept:
            await desk.approvals.close_expired()
            assert await desk.store.values("denied") == {}
        desk.begins(NET)
        assert (await desk.asked()).id != id_


async def test_a_note_of_a_denial_that_never_was_is_no_denial(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        assert await desk.says(NO) == NOTED
        (name,) = await desk.store.values("denied")
        desk.clock.time += HALF_AN_HOUR
        task = desk.asks(NET)
        asked = await desk.asked()
        assert asked.id != id_
        await desk.store.put_value("denied", name, asked.id)  # as if it had died in between
        await desk.says(YES)
        assert await said(task) is None
        desk.begins(NET)
        asked = await desk.asked()
        assert asked.state is ApprovalState.OPEN
        await desk.store.put_value("denied", "gone", "p_gone")
        await desk.store.put_value("denied", "open", asked.id)
        await desk.approvals.close_expired()
        assert await desk.store.values("denied") == {"open": asked.id}


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize(
    "look", ["open_approvals", "allowed_approval", "get_value", "approval", "put_value"]
)
async def test_an_answer_that_comes_while_the_call_looks_for_its_question_is_not_missed(
    tmp_path: Path, word: str, look: str
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        desk.approvals._store = held = Held(desk.store, look)  # type: ignore[assignment]  # the same
        task = desk.asks(NET)
        async with asyncio.TaskGroup() as group:
            reached = group.create_task(held.reached.wait())
            await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            answer = group.create_task(desk.says(word))
            await asyncio.wait({answer}, timeout=0.2)
            held.go.set()
            held.reached.set()
        assert answer.result() in (MAY, MAY_NOT, NOTED)
        assert await said(task) == (None if word == YES else "denied by memory:1.")
        assert await desk.store.values("denied") == {}
        assert await desk.store.approvals.open() == ()
        assert await desk.state(id_) in {ApprovalState.USED, ApprovalState.DENIED}


class Held:
    """A store that keeps the result of the first look of a kind for a while."""

    def __init__(self, store: SessionStore, look: str) -> None:
        self._store = store
        self._look = look
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name != self._look or self.reached.is_set():
            return found

        async def held(*args: object) -> object:
            seen = await found(*args)
            self.reached.set()
            await self.go.wait()
            return seen

        return held


async def test_an_answer_for_a_turn_that_is_over_changes_nothing(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        await desk.ends(TurnState.STOPPED)
        assert await desk.says(YES) == LATE
        assert await desk.state(id_) is ApprovalState.EXPIRED
        await screen.one("1", "⏹ This is over")


async def test_an_interrupted_turn_can_still_get_its_answer(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with office(tmp_path, screen, clock=clock) as desk:
        await desk.ends(TurnState.INTERRUPTED)
        await desk.approvals.close_expired()
        assert await desk.says(YES) == NOTED
        assert await desk.state(id_) is ApprovalState.ALLOWED


async def test_a_question_whose_time_ended_while_nobody_was_there_is_closed_at_the_start(
    tmp_path: Path,
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock, EXEC)
    clock.time += HALF_AN_HOUR - 1
    async with office(tmp_path, screen, clock=clock) as desk:
        await desk.approvals.close_expired()
        assert await desk.state(id_) is ApprovalState.OPEN
        clock.time += 1
        assert await desk.presses(id_, YES, person=CHIEF, admin=True) == LATE
        assert await desk.state(id_) is ApprovalState.EXPIRED
        for chat in ("1", "9"):
            assert (await screen.one(chat, "⌛ Nobody answered in time")).buttons == ()
            assert len(screen.messages(chat)) == 1


async def test_the_hour_ends_a_wait_that_the_clock_has_overtaken(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        await desk.asked()
        await desk.approvals.close_expired()
        assert not task.done()
        desk.clock.time += HALF_AN_HOUR  # as after a machine's sleep
        await desk.approvals.close_expired()
        assert await said(task) == (
            "it needs somebody's approval, and nobody answered within 30 minutes."
        )


async def test_after_its_time_a_question_is_asked_anew(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    clock.time += HALF_AN_HOUR
    async with office(tmp_path, screen, clock=clock) as desk:
        desk.begins(NET)
        assert (await desk.asked()).id != id_


async def test_a_chat_that_is_asked_much_is_shown_each_answer_in_its_place(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        task = desk.asks(NET)
        asked = await desk.asked()
        notes = [f"n_{number}" for number in range(40)]  # more than delivery keeps in mind
        for note in notes:
            await tell(desk, note)
        assert await desk.says(YES) == MAY
        assert await said(task) is None
        await desk.screen.one("1", "✅ Allowed by")
        assert len(desk.screen.messages("1")) == len(notes) + 1
        assert "✅ Allowed by" in desk.screen.messages("1")[0].text
        assert await desk.state(asked.id) is ApprovalState.USED


async def tell(desk: Office, note: str) -> None:
    address = write_address(Address("memory", "1"))
    item = OutboxItem(
        id=note,
        address=address,
        kind="notice",
        state=ItemState.PENDING,
        body=b'{"text":"a note"}',
        created_at=1,
    )
    await desk.store.apply(PutItem(item))
    desk.delivery.enqueue([item])
    async with asyncio.timeout(PATIENCE):
        await desk.delivery.wait_sent(note)
