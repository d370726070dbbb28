"""Approval requests on a real store, delivered to chats in memory."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.access.people import People
from gateway.access.policy import Role
from gateway.access.settings import AccessSettings
from gateway.approvals.broker import ApprovalBroker, ApprovalSettings, RequestingTurn
from gateway.approvals.rules import approval_code
from gateway.approvals.wording import NO_ADMIN, PERMISSION_USED, UNATTENDED, refusal_text
from gateway.commands.contract import CommandCall, CommandOutcome, NoticeReply
from gateway.delivery.outbox import Delivery
from gateway.media.outgoing import OutgoingFiles
from gateway.notices.catalogue import render_notice
from platforms.core.contract import Address, Capabilities, Op, Receipt, Upload
from sessions.changes import AnswerApproval, EndTurn, OpenSession, PutItem, StartTurn
from sessions.conversation.events import CommandContext
from sessions.errors import StoreUnavailable
from sessions.records import (
    Approval,
    ApprovalState,
    ItemKind,
    ItemState,
    Message,
    OutboxItem,
    ToolCall,
    TurnState,
)
from sessions.store.store import SessionStore
from sessions.values.ids import Ids
from sessions.values.item_ids import question_id
from sessions.values.notices import NoticeId
from sessions.values.tasks import start_task
from tests.fakes.memory import MemoryAdapter, VisibleMessage
from tests.fakes.set_clock import SetClock

pytestmark = pytest.mark.quick

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


class Screen(MemoryAdapter):
    """Screen whose messages a test can wait for."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(burst=1000, **limits)
        self._changed = asyncio.Event()

    async def deliver(self, op: Op) -> Receipt:
        try:
            return await super().deliver(op)
        finally:
            self._changed.set()

    async def one(self, chat: str, *texts: str) -> VisibleMessage:
        """Wait until one message contains all of these texts, and return the message."""

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
    """Waiting futures by request; signals when one is added."""

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Event()

    def __setitem__(self, id_: str, answer: asyncio.Future[Approval]) -> None:
        super().__setitem__(id_, answer)
        self.more.set()


class ApprovalKit:
    """The parts of a gateway that handle approval requests, and helpers that act as people."""

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
        """Start a task in which a tool asks; the task returns the outcome."""
        where = Address("memory", chat)
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
        """Start a request whose outcome the test does not need."""
        self.others.append(self.asks(how, call, person=person, session=session))

    async def waited(self, count: int = 1) -> str:
        """Wait until `count` requests have a waiter, and return the id of the newest."""
        async with asyncio.timeout(PATIENCE):
            while len(self.waiting) < count:
                self.waiting.more.clear()
                await self.waiting.more.wait()
        return list(self.waiting)[-1]

    async def asked(self, count: int = 1) -> Approval:
        """Wait until `count` requests are shown and have a waiter, and return the newest."""
        id_ = await self.waited(count)
        await self.screen.one("1", approval_code(id_))
        found = await self.store.approvals.get(id_)
        assert found
        return found

    async def says(
        self, word: str, args: str = "", *, person: str = ANN, admin: bool = False, chat: str = ""
    ) -> CommandOutcome:
        """Answer by a command, in the private chat unless another is given."""
        where = Address("memory", chat or person.partition(":")[2])
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
            CommandContext(address=place, person=person, admin=admin),
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
async def approval_kit(
    home: Path,
    screen: Screen | None = None,
    *,
    admins: tuple[str, ...] = (CHIEF,),
    mode: Literal["ask", "never"] = "ask",
    wait: float | None = None,
    clock: SetClock | None = None,
    tasks: Callable[[Coroutine[Any, Any, None]], object] | None = None,
) -> AsyncIterator[ApprovalKit]:
    """Open an `ApprovalKit`; pending requests are cancelled at the end, as by a crash."""
    clock, screen = clock or SetClock(), screen or Screen()
    store = await SessionStore.open(f"sqlite:///{home / 'holdfast.db'}", clock=clock)
    made = ApprovalKit(store, screen, clock)
    if await store.sessions.get("s1") is None:
        address = Address("memory", "1")
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

    settings = ApprovalSettings(mode=lambda: mode)
    if wait is not None:
        settings = msgspec.structs.replace(settings, timeout_seconds=wait)
    ids, people = Ids(clock), People(store, clock, AccessSettings(admins=admins))
    await people.load()
    made.delivery = Delivery(store, clock, home / "outgoing" / "sent")
    made.delivery.attach(screen)
    await made.delivery.recover()
    made.approvals = ApprovalBroker(
        store,
        clock,
        ids,
        made.delivery,
        people,
        settings=settings,
        capabilities=capabilities,
        start_task=tasks or made.own,
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


# --- cases without a request ---------------------------------------------------------------------


async def test_in_never_mode_tools_run_without_a_request(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path, mode="never") as kit:
        assert await said(kit.asks()) is None
        assert await said(kit.asks(key="api:x")) is None
        assert await kit.store.approvals.open() == ()
        assert kit.screen.messages("1") == []


async def test_in_never_mode_a_call_that_may_have_taken_effect_still_asks(tmp_path: Path) -> None:
    async with approval_kit(tmp_path, mode="never") as kit:
        again = kit.asks(WRITE)
        await kit.asked()
        assert await kit.says(NO) == MAY_NOT
        assert await said(again) == "denied by memory:1."


@pytest.mark.parametrize(
    ("how", "key", "person", "admins", "why"),
    [
        pytest.param(NET, "api:x", "api:key", (CHIEF,), UNATTENDED, id="an API client asked"),
        pytest.param(NET, "schedule:x", ANN, (CHIEF,), UNATTENDED, id="a schedule asked"),
        pytest.param(EXEC, "", ANN, (), NO_ADMIN, id="there is no admin"),
        pytest.param(
            EXEC, "", ANN, ("other:5",), NO_ADMIN, id="the admin's platform is not connected"
        ),
        pytest.param(
            EXEC, "", ANN, ("other:G/role:R",), NO_ADMIN, id="an admin role on another platform"
        ),
    ],
)
async def test_a_call_that_no_person_can_approve_is_refused_without_a_request(
    tmp_path: Path, how: Tool, key: str, person: str, admins: tuple[str, ...], why: str
) -> None:
    async with approval_kit(tmp_path, admins=admins) as kit:
        assert await said(kit.asks(how, key=key, person=person)) == why
        assert await kit.store.approvals.open() == ()


@pytest.mark.parametrize(
    ("how", "person", "admins"),
    [
        pytest.param(NET, ANN, (), id="the requester may answer"),
        pytest.param(EXEC, "web:owner", (), id="the owner at the page asked, alone"),
        pytest.param(EXEC, "web:owner", (CHIEF,), id="the owner at the page asked"),
        pytest.param(EXEC, ANN, (ANN,), id="an admin asked"),
        pytest.param(EXEC, ANN, ("memory:G/role:R",), id="a role there may make people admins"),
    ],
)
async def test_admins_are_not_asked_if_a_person_in_the_chat_can_answer(
    tmp_path: Path, how: Tool, person: str, admins: tuple[str, ...]
) -> None:
    async with approval_kit(tmp_path, admins=admins) as kit:
        kit.begins(how, person=person)
        asked = await kit.asked()
        assert (await kit.screen.one("1", "May I use")).buttons
        assert [chat for chat in kit.screen._chats if kit.screen.messages(chat)] == ["1"]
        assert asked.expires_at - asked.asked_at == HALF_AN_HOUR


# --- messages of a request -----------------------------------------------------------------------


async def test_a_request_shows_the_call_and_how_to_answer(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        kit.begins(NET)
        asked = await kit.asked()
        code = approval_code(asked.id)
        shown = await kit.screen.one("1", "May I use")
        assert shown.text == (
            '🔐 May I use **run**?\n```json\n{\n  "command": "ls"\n}\n```\n'
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
    assert kit.screen.violations() == []


async def test_every_chat_that_is_asked_gets_long_arguments_as_a_file(tmp_path: Path) -> None:
    screen = Screen(files=10**6)
    async with approval_kit(tmp_path, screen) as kit:
        files = OutgoingFiles(
            kit.store,
            kit.delivery,
            kit.clock,
            tmp_path / "outgoing",
            lambda _: screen.capabilities,
            keep_seconds=0,
            redact=str,
        )
        kit.approvals._attach_text = files.attach_text
        command = "begin " + "x" * 5000 + " end"
        kit.begins(EXEC, call_of(command))
        await kit.asked()
        for chat in ("1", CHIEF.partition(":")[2]):
            shown = await screen.one(chat, "May I use", "the attached file has the whole call")
            assert "characters are not shown" in shown.text
        await kit.delivery.flush(PATIENCE)
    uploads = _uploads(screen)
    assert [op.name for op in uploads] == ["run.json", "run.json"]
    texts = await asyncio.to_thread(lambda: [Path(op.path).read_text("utf-8") for op in uploads])
    assert texts == [f'{{\n  "command": "{command}"\n}}'] * 2


async def _attach(item: OutboxItem, name: str, _text: str) -> OutboxItem:
    return msgspec.structs.replace(item, id=f"{item.id}.{name}")


async def test_a_request_in_a_disconnected_chat_has_no_file_and_no_buttons(tmp_path: Path) -> None:
    far = Address("other", "5")
    async with approval_kit(tmp_path, wait=0.2) as kit:
        kit.approvals._attach_text = _attach
        turn = RequestingTurn(key="other:5", session_id="s1", turn_id="t1", address=far, person=ANN)
        task = kit.tasks.create_task(kit.approvals.request_approval(turn, NET, call_of("x" * 5000)))
        assert "was not answered" in (await said(task) or "")
        (item,) = await kit.store.timeline(far, 0, 100)
        assert isinstance(item, OutboxItem)
        assert b"buttons" not in item.body
        assert (item.turn_id, item.kind) == ("t1", ItemKind.ASK)


async def test_every_chat_that_is_asked_shows_how_the_tool_has_changed(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        kit.begins(msgspec.structs.replace(EXEC, change="now it deletes"))
        await kit.asked()
        for chat in ("1", "9"):
            await kit.screen.one(chat, "now it deletes")


@pytest.mark.parametrize(
    ("files", "command"),
    [pytest.param(None, "x" * 5000, id="no files"), pytest.param(10**6, "x", id="short")],
)
async def test_short_arguments_and_chats_without_files_have_no_file(
    tmp_path: Path, files: int | None, command: str
) -> None:
    async with approval_kit(tmp_path, Screen(files=files)) as kit:
        kit.approvals._attach_text = _attach
        kit.begins(NET, call_of(command))
        shown = await kit.screen.one("1", "May I use")
        assert "attached" not in shown.text
        assert [row.id for row in await kit.store.timeline(Address("memory", "1"), 0, 9)] == [
            question_id(await kit.waited(), 0)
        ]
        assert not _uploads(kit.screen)


async def test_long_arguments_without_a_place_for_files_mention_no_file(tmp_path: Path) -> None:
    async with approval_kit(tmp_path, Screen(files=10**6)) as kit:
        kit.begins(NET, call_of("x" * 5000))
        shown = await kit.screen.one("1", "May I use", "characters are not shown")
        assert "attached" not in shown.text


async def test_without_disk_space_a_request_is_shown_without_its_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(_item: OutboxItem, _name: str, _text: str) -> OutboxItem:
        raise OSError(errno.ENOSPC, "disk full")

    async with approval_kit(tmp_path) as kit:
        kit.approvals._attach_text = full
        kit.begins(NET, call_of("x" * 5000))
        asked = await kit.asked()
        assert asked.state is ApprovalState.OPEN
        assert "has no file" in caplog.text


def _uploads(screen: Screen) -> list[Upload]:
    return [op for op in screen.ops if isinstance(op, Upload)]


async def test_a_request_for_admins_is_also_sent_to_their_private_chats(tmp_path: Path) -> None:
    async with approval_kit(tmp_path, admins=(CHIEF, "memory:8", "other:7")) as kit:
        kit.begins(EXEC)
        await kit.asked()
        await kit.screen.one("1", "An admin has to answer within 30 minutes:")
        await kit.screen.one("9", "🔐 May I use **run** for memory:1?", "/approve ")
        await kit.screen.one("8", "🔐 May I use **run** for memory:1?")


async def test_a_repeated_call_warns_that_the_previous_one_may_have_taken_effect(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path) as kit:
        again = kit.asks(WRITE)
        await kit.asked()
        await kit.screen.one("1", "again? The previous call may have taken effect.")
        assert await kit.says(YES) == MAY
        assert await said(again) is None


@pytest.mark.parametrize(("possible", "shown"), [(1, 0), (2, 2)])
async def test_no_buttons_are_shown_on_a_platform_with_too_few(
    tmp_path: Path, possible: int, shown: int
) -> None:
    async with approval_kit(tmp_path, Screen(buttons=possible)) as kit:
        kit.begins(NET)
        await kit.asked()
        assert len((await kit.screen.one("1", "/approve")).buttons) == shown


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_button", [False, True], ids=["command", "button"])
async def test_an_allowed_call_runs_once_and_every_chat_shows_who_allowed_it(
    tmp_path: Path, by_button: bool
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        asked = await kit.asked()
        if by_button:
            answer = await kit.presses(asked.id, YES, person=CHIEF, admin=True)
            assert answer == NoticeReply(NoticeId.ASK_SILENT)
            assert render_notice(NoticeId.ASK_SILENT, {}, "/{word}") == ""
        else:
            assert await kit.says(YES, person=CHIEF, admin=True) == MAY
        assert await said(task) is None
        assert await kit.state(asked.id) is ApprovalState.USED
        for chat in ("1", "9"):
            shown = await kit.screen.one(chat, "✅ Allowed by memory:9.", '"command": "ls"')
            assert shown.buttons == ()
            assert len(kit.screen.messages(chat)) == 1
        second = kit.asks()  # one answer serves one run
        assert (await kit.asked()).id != asked.id
        assert not second.done()


async def test_the_model_reads_who_denied_a_call_and_why(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        asked = await kit.asked()
        assert await kit.says(NO, f"{approval_code(asked.id).lower()} too  dear") == MAY_NOT
        assert await said(task) == "denied by memory:1: too dear"
        await kit.screen.one("1", "🚫 Denied by memory:1: too dear.")
        kit.begins(NET)  # a denial counts once, so a new turn asks again
        assert (await kit.asked()).id != asked.id


async def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        await kit.asked()
        await kit.says(NO, "no" * 1000)
        assert await said(task) == f"denied by memory:1: {'no' * 250}"


async def test_a_request_without_an_answer_expires_and_the_call_does_not_run(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path, wait=0.2) as kit:
        task = kit.asks()
        asked = await kit.asked()
        assert await said(task) == (
            "it needs a person's approval, and the question was not answered within the time there was."
        )
        stored = await kit.store.approvals.get(asked.id)
        assert stored
        assert (stored.state, stored.answered_by) == (ApprovalState.EXPIRED, "")
        for chat in ("1", "9"):
            assert (await kit.screen.one(chat, "⌛ No answer in time")).buttons == ()
        assert await kit.presses(asked.id, YES, person=CHIEF, admin=True) == LATE


@pytest.mark.parametrize(
    ("how", "person", "admin", "told"),
    [
        pytest.param(
            EXEC, ANN, False, NoticeReply(NoticeId.ADMINS_ONLY), id="a member, for a program"
        ),
        pytest.param(NET, BOB, False, NoticeReply(NoticeId.NOT_YOURS), id="another member"),
    ],
)
async def test_an_answer_of_a_person_without_the_right_changes_nothing(
    tmp_path: Path, how: Tool, person: str, admin: bool, told: NoticeReply
) -> None:
    async with approval_kit(tmp_path) as kit:
        kit.begins(how)
        asked = await kit.asked()
        for word in (YES, NO):
            assert await kit.says(word, approval_code(asked.id), person=person, admin=admin) == told
            assert await kit.presses(asked.id, word, person=person, admin=admin) == told
        assert await kit.state(asked.id) is ApprovalState.OPEN


async def test_an_answer_without_a_code_means_the_only_request_or_lists_several(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path) as kit:
        assert await kit.says(YES) == NoticeReply(NoticeId.ASK_NONE)
        kit.begins(NET, call_of("one"))
        first = await kit.asked()
        kit.clock.time += 1
        two = kit.asks(NET, call_of("two"))
        second = await kit.asked(2)
        several = await kit.says(YES)
        assert isinstance(several, NoticeReply)
        assert several.fields["list"] == (
            f'{approval_code(first.id)} run `{{"command": "one"}}`\n'
            f'{approval_code(second.id)} run `{{"command": "two"}}`'
        )
        assert await kit.says(YES, "please") == NoticeReply(
            NoticeId.ASK_UNKNOWN, {"code": "please"}
        )
        assert await kit.says(YES, f"{approval_code(second.id)} please") == MAY
        assert await said(two) is None
        allowed = await kit.store.approvals.get(second.id)
        assert allowed
        assert allowed.reason == ""
        assert await kit.says(YES) == MAY
        assert await kit.says(YES, approval_code(first.id)) == NoticeReply(
            NoticeId.ASK_UNKNOWN, {"code": approval_code(first.id)}
        )


async def test_two_equal_calls_at_once_have_requests_of_their_own(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        one = kit.asks(NET, call_of(id_="c1"))
        first = await kit.asked()
        two = kit.asks(NET, call_of(id_="c2"))
        second = await kit.asked(2)
        assert await kit.says(YES, approval_code(second.id)) == MAY
        assert await kit.says(NO, approval_code(first.id)) == MAY_NOT
        assert (await said(one), await said(two)) == ("denied by memory:1.", None)


async def test_open_requests_have_different_codes(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        numbers = iter([7, 7, 7 + 32**4, 8])
        kit.approvals._ids = Ids(SteppingClock(), lambda _: next(numbers))
        kit.begins(NET, call_of("one"))
        first = await kit.asked()
        kit.begins(NET, call_of("two"))
        second = await kit.asked(2)
        assert approval_code(first.id) != approval_code(second.id)
        assert next(numbers, None) is None


async def test_a_new_request_has_another_code_than_one_that_no_turn_waits_for(
    tmp_path: Path,
) -> None:
    screen, clock = Screen(), SetClock()
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        kit.approvals._ids = Ids(SteppingClock(), lambda _: 7)
        kit.begins(NET, call_of("one"))
        first = await kit.asked()
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        numbers = iter([7 + 32**4, 8])
        kit.approvals._ids = Ids(SteppingClock(), lambda _: next(numbers))
        kit.begins(NET, call_of("two"))
        assert approval_code(await kit.waited()) != approval_code(first.id)


class SteppingClock(SetClock):
    def now(self) -> int:
        self.time += 1
        return self.time


async def test_of_two_simultaneous_answers_the_first_counts(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        asked = await kit.asked()
        async with asyncio.TaskGroup() as group:
            yes = group.create_task(kit.says(YES, person=CHIEF, admin=True))
            no = group.create_task(kit.presses(asked.id, NO, person="web:owner", admin=True))
        why = await said(task)
        if why is None:
            assert (yes.result(), no.result()) == (MAY, ANSWERED)
        else:
            assert why == "denied by web:owner."
            assert (yes.result(), no.result()) == (ANSWERED, NoticeReply(NoticeId.ASK_SILENT))
        assert await kit.presses(asked.id, YES, person=CHIEF, admin=True) == ANSWERED


async def test_all_but_the_first_of_many_answers_are_told_that_the_request_is_answered(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        asked = await kit.asked()
        async with asyncio.TaskGroup() as group:
            answers = [
                group.create_task(
                    kit.approvals._record_answer(asked, f"memory:{who}", allow=who % 2 > 0)
                )
                for who in range(10)
            ]
        assert sorted(str(each.result()) for each in answers) == ["None", *[str(ANSWERED)] * 9]
        first = next(who for who, each in enumerate(answers) if each.result() is None)
        assert await said(task) == (None if first % 2 else f"denied by memory:{first}.")


async def test_a_button_of_an_unknown_request_is_answered(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        assert await kit.presses("p_12345", YES) == NoticeReply(
            NoticeId.ASK_UNKNOWN, {"code": "2345"}
        )


async def test_an_answer_at_the_moment_of_expiry_counts(tmp_path: Path) -> None:
    async with approval_kit(tmp_path, wait=0.3) as kit:
        kit.approvals._store = held = Held(kit.store, "approvals.get")  # type: ignore[assignment]  # the same
        task = kit.asks(NET)
        asked = await kit.asked()
        async with asyncio.timeout(PATIENCE):
            await held.reached.wait()  # the request is known to be open
        now = kit.clock.now()  # as another writer would, without waking the waiter
        await kit.store.apply(
            AnswerApproval(id=asked.id, state=ApprovalState.ALLOWED, by=ANN, at=now)
        )
        held.go.set()
        assert await said(task) is None
        assert await kit.state(asked.id) is ApprovalState.USED


async def test_a_used_permission_is_reported_as_used(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        asked = await kit.asked()
        assert not task.done()
        used = msgspec.structs.replace(asked, state=ApprovalState.USED)
        assert refusal_text(used) == PERMISSION_USED


async def test_a_permission_serves_only_one_of_two_calls(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        asked = await kit.asked()
        now = kit.clock.now()
        allowed = msgspec.structs.replace(asked, state=ApprovalState.ALLOWED, answered_at=now)
        for state in (ApprovalState.ALLOWED, ApprovalState.USED):
            await kit.store.apply(AnswerApproval(id=asked.id, state=state, by=ANN, at=now))
        kit.approvals._waiters[asked.id].set_result(allowed)
        assert await said(task) == PERMISSION_USED


# --- a stop --------------------------------------------------------------------------------------


async def cut(kit: ApprovalKit, task: asyncio.Task[str | None], state: TurnState) -> None:
    """Stop a turn as the actor does: cancel first, store second."""
    task.cancel()
    await kit.ends(state)
    with pytest.raises(asyncio.CancelledError):
        await said(task)
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(kit.owned)


async def test_a_stop_closes_the_request_in_the_background(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        asked = await kit.asked()
        await cut(kit, task, TurnState.STOPPED)
        assert await kit.state(asked.id) is ApprovalState.EXPIRED
        for chat in ("1", "9"):
            assert (await kit.screen.one(chat, "⏹ The task has ended")).buttons == ()
        assert await kit.says(YES, person=CHIEF, admin=True) == NoticeReply(NoticeId.ASK_NONE)
        assert await kit.presses(asked.id, YES, person=CHIEF, admin=True) == LATE


@pytest.mark.parametrize("state", [TurnState.INTERRUPTED, TurnState.RUNNING])
async def test_an_interrupted_turn_keeps_its_request(tmp_path: Path, state: TurnState) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        asked = await kit.asked()
        await cut(kit, task, state)
        assert await kit.state(asked.id) is ApprovalState.OPEN


@pytest.mark.parametrize(
    ("answered", "kept"),
    [
        pytest.param(ApprovalState.ALLOWED, ApprovalState.USED, id="a permission"),
        pytest.param(ApprovalState.DENIED, ApprovalState.DENIED, id="a denial"),
    ],
)
async def test_a_permission_of_a_stopped_turn_does_not_count_later(
    tmp_path: Path,
    answered: ApprovalState,
    kept: ApprovalState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        asked = await kit.asked()
        now = kit.clock.now()
        await kit.store.apply(AnswerApproval(id=asked.id, state=answered, by=ANN, at=now))
        await cut(kit, task, TurnState.STOPPED)
        assert await kit.state(asked.id) is kept
    assert "stays open" not in caplog.text


async def test_a_stop_while_the_request_is_stored_leaves_no_open_request(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        await kit.waited()
        await cut(kit, task, TurnState.STOPPED)
        assert await kit.store.approvals.open() == ()


async def test_a_stop_before_the_request_is_stored_leaves_no_request(tmp_path: Path) -> None:
    async def hang(item: OutboxItem, _name: str, _text: str) -> OutboxItem:
        await asyncio.Event().wait()
        return item

    async with approval_kit(tmp_path, Screen(files=10**6)) as kit:
        kit.approvals._attach_text = hang
        task = kit.asks(NET, call_of("x" * 5000))
        id_ = await kit.waited()
        await cut(kit, task, TurnState.STOPPED)
        assert await kit.store.approvals.get(id_) is None


async def test_a_store_error_in_the_background_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks()
        asked = await kit.asked()
        kit.approvals._store = Broken(kit.store)  # type: ignore[assignment]  # only one method
        await cut(kit, task, TurnState.STOPPED)
        assert "stays open" in caplog.text
        kit.approvals._store = kit.store
        await kit.approvals.close_expired()  # the hourly cleanup closes the request
        assert await kit.state(asked.id) is ApprovalState.EXPIRED
        await kit.screen.one("1", "⏹ The task has ended")


class Broken:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def check_writable(self) -> None:
        raise StoreUnavailable


async def test_background_work_is_dropped_while_the_process_stops(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as ended:
        pass
    async with approval_kit(tmp_path, tasks=partial(start_task, ended)) as kit:
        task = kit.asks()
        asked = await kit.asked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await said(task)
        assert await kit.state(asked.id) is ApprovalState.OPEN


# --- over a restart ------------------------------------------------------------------------------


async def asked_and_crashed(home: Path, screen: Screen, clock: SetClock, how: Tool = NET) -> str:
    async with approval_kit(home, screen, clock=clock) as kit:
        kit.begins(how)
        return (await kit.asked()).id


async def test_a_resumed_turn_waits_for_its_open_request_again(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        task = kit.asks(NET, call_of(id_="another"))
        assert (await kit.asked()).id == id_
        assert len(screen.messages("1")) == 1
        assert await kit.says(YES) == MAY
        assert await said(task) is None
        await screen.one("1", "✅ Allowed by memory:1.")
        assert len(screen.messages("1")) == 1


async def test_an_open_request_stays_when_the_last_admin_has_gone(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock, EXEC)
    async with approval_kit(tmp_path, screen, clock=clock, admins=()) as kit:
        task = kit.asks(EXEC)
        assert await kit.waited() == id_
        assert not task.done()


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
async def test_an_earlier_answer_counts_only_for_the_same_call_session_and_person(
    tmp_path: Path, changed: str, value: object, settled: str | None
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        if settled is not None:
            assert await kit.says(settled) == NOTED
        kit.begins(NET, **{changed: value})  # type: ignore[arg-type]  # its own arguments
        assert await kit.waited() != id_


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize("by_button", [False, True], ids=["command", "button"])
async def test_an_answer_between_two_turns_counts_once_for_the_same_call(
    tmp_path: Path, word: str, by_button: bool
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        if by_button:
            assert await kit.presses(id_, word) == NOTED
        else:
            assert await kit.says(word) == NOTED
        await screen.one("1", "✅ Allowed by" if word == YES else "🚫 Denied by")
        assert len(screen.messages("1")) == 1
        assert await kit.presses(id_, word) == ANSWERED
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        clock.time += HALF_AN_HOUR - 1
        await kit.approvals.close_expired()
        assert await said(kit.asks(NET)) == (None if word == YES else "denied by memory:1.")
        assert await kit.state(id_) is (ApprovalState.USED if word == YES else ApprovalState.DENIED)
        kit.begins(NET)
        assert (await kit.asked()).id != id_


async def test_the_reason_of_a_denial_reaches_a_later_turn(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        assert await kit.says(NO, f"{approval_code(id_)} too dear") == NOTED
        assert await said(kit.asks(NET)) == "denied by memory:1: too dear"


@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_the_age_of_an_answer_counts_not_the_age_of_the_request(
    tmp_path: Path, word: str
) -> None:
    screen, clock = Screen(), SetClock()
    await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        clock.time += HALF_AN_HOUR - 1
        assert await kit.says(word) == NOTED
        clock.time += HALF_AN_HOUR - 1
        assert await said(kit.asks(NET)) == (None if word == YES else "denied by memory:1.")


async def test_a_request_stays_open_while_a_later_turn_waits_for_it(
    tmp_path: Path,
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        task = kit.asks(NET, turn="t2")
        assert await kit.waited() == id_
        await kit.ends(TurnState.FAILED)
        await kit.approvals.close_expired()
        assert await kit.says(YES) == MAY
        assert await said(task) is None


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "not swept"])
async def test_an_old_answer_does_not_count(tmp_path: Path, word: str, swept: bool) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        clock.time += 1000
        assert await kit.says(word) == NOTED
        clock.time += HALF_AN_HOUR
        if swept:
            await kit.approvals.close_expired()
            assert await kit.store.values("denied") == {}
        kit.begins(NET)
        assert (await kit.asked()).id != id_


async def test_a_stored_denial_of_an_open_request_is_ignored(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        assert await kit.says(NO) == NOTED
        (name,) = await kit.store.values("denied")
        kit.clock.time += HALF_AN_HOUR
        task = kit.asks(NET)
        asked = await kit.asked()
        assert asked.id != id_
        await kit.store.put_value(
            "denied", name, asked.id
        )  # as if the process had died between the two writes
        await kit.says(YES)
        assert await said(task) is None
        kit.begins(NET)
        asked = await kit.asked()
        assert asked.state is ApprovalState.OPEN
        await kit.store.put_value("denied", "gone", "p_gone")
        await kit.store.put_value("denied", "open", asked.id)
        await kit.approvals.close_expired()
        assert await kit.store.values("denied") == {"open": asked.id}


@pytest.mark.parametrize("word", ["approve", "deny"])
@pytest.mark.parametrize(
    "look",
    ["approvals.open", "approvals.find_allowed", "get_value", "approvals.get", "put_value"],
)
async def test_an_answer_during_the_search_for_an_earlier_request_is_found(
    tmp_path: Path, word: str, look: str
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        kit.approvals._store = held = Held(kit.store, look)  # type: ignore[assignment]  # the same
        task = kit.asks(NET)
        async with asyncio.TaskGroup() as group:
            reached = group.create_task(held.reached.wait())
            await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            answer = group.create_task(kit.says(word))
            await asyncio.wait({answer}, timeout=0.2)
            held.go.set()
            held.reached.set()
        assert answer.result() in (MAY, MAY_NOT, NOTED)
        assert await said(task) == (None if word == YES else "denied by memory:1.")
        assert await kit.store.values("denied") == {}
        assert await kit.store.approvals.open() == ()
        assert await kit.state(id_) in {ApprovalState.USED, ApprovalState.DENIED}


class Held:
    """A store, or a part of one, that delays the result of the first read of a kind."""

    def __init__(self, store: object, look: str, whole: "Held | None" = None) -> None:
        self._store = store
        self._look = look
        self.reached: asyncio.Event = whole.reached if whole else asyncio.Event()
        self.go: asyncio.Event = whole.go if whole else asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if self._look.startswith(f"{name}."):
            return Held(found, self._look.partition(".")[2], self)
        if name != self._look or self.reached.is_set():
            return found

        async def held(*args: object) -> object:
            seen = await found(*args)
            self.reached.set()
            await self.go.wait()
            return seen

        return held


@pytest.mark.parametrize("state", [TurnState.DONE, TurnState.FAILED, TurnState.STOPPED])
async def test_an_answer_for_an_ended_turn_changes_nothing(
    tmp_path: Path, state: TurnState
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        await kit.ends(state)
        assert await kit.says(YES) == LATE
        assert await kit.state(id_) is ApprovalState.EXPIRED
        await screen.one("1", "⏹ The task has ended")


async def test_an_interrupted_turn_can_still_get_its_answer(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        await kit.ends(TurnState.INTERRUPTED)
        await kit.approvals.close_expired()
        assert await kit.says(YES) == NOTED
        assert await kit.state(id_) is ApprovalState.ALLOWED


async def test_a_request_that_expired_while_the_process_was_down_is_closed_at_the_start(
    tmp_path: Path,
) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock, EXEC)
    clock.time += HALF_AN_HOUR - 1
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        await kit.approvals.close_expired()
        assert await kit.state(id_) is ApprovalState.OPEN
        clock.time += 1
        assert await kit.presses(id_, YES, person=CHIEF, admin=True) == LATE
        assert await kit.state(id_) is ApprovalState.EXPIRED
        for chat in ("1", "9"):
            assert (await screen.one(chat, "⌛ No answer in time")).buttons == ()
            assert len(screen.messages(chat)) == 1


async def test_the_hourly_cleanup_closes_a_request_after_a_clock_jump(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        await kit.asked()
        await kit.approvals.close_expired()
        assert not task.done()
        kit.clock.time += HALF_AN_HOUR  # as after a machine's sleep
        await kit.approvals.close_expired()
        assert await said(task) == (
            "it needs a person's approval, and the question was not answered within 30 minutes."
        )


async def test_a_new_request_is_sent_after_the_old_one_expired(tmp_path: Path) -> None:
    screen, clock = Screen(), SetClock()
    id_ = await asked_and_crashed(tmp_path, screen, clock)
    clock.time += HALF_AN_HOUR
    async with approval_kit(tmp_path, screen, clock=clock) as kit:
        kit.begins(NET)
        assert (await kit.asked()).id != id_


async def test_an_answer_changes_only_the_message_of_its_request(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        await tell(kit, "n_1")
        await tell(kit, "unknown")  # not in the form of an item's id
        kit.begins(NET, call_of("one"))
        first = await kit.asked()
        kit.begins(NET, call_of("two"))
        await kit.asked(2)
        assert await kit.says(YES, approval_code(first.id)) == MAY
        await kit.screen.one("1", '"one"', "✅ Allowed by")
        await kit.delivery.flush(PATIENCE)
        note, unknown, answered, still_open = kit.screen.messages("1")
        assert (note.text, unknown.text, answered.buttons) == ("a note", "a note", ())
        assert "May I use" in still_open.text
        assert len(still_open.buttons) == 2


async def test_an_answer_in_the_chat_of_an_admin_leaves_the_requests_of_that_admin_open(
    tmp_path: Path,
) -> None:
    async with approval_kit(tmp_path) as kit:
        kit.others.append(kit.asks(EXEC, call_of("own"), person=CHIEF, chat="9"))
        await kit.screen.one("9", '"own"')
        kit.begins(EXEC, call_of("of Ann"))
        asked = await kit.asked(2)
        assert await kit.presses(asked.id, YES, person=CHIEF, admin=True) == NoticeReply(
            NoticeId.ASK_SILENT
        )
        await kit.screen.one("1", '"of Ann"', "✅ Allowed by")
        await kit.screen.one("9", '"of Ann"', "✅ Allowed by")
        await kit.delivery.flush(PATIENCE)
        own, answered = kit.screen.messages("9")
        assert (len(own.buttons), answered.buttons) == (2, ())


async def test_a_call_with_half_a_character_is_asked_about(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET, call_of("\ud800"))
        await kit.asked()
        assert await kit.says(NO) == MAY_NOT
        assert await said(task) == "denied by memory:1."


async def test_the_request_of_a_person_without_access_is_closed(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        asked = await kit.asked()
        await kit.approvals.close_question(asked)
        assert await kit.state(asked.id) is ApprovalState.EXPIRED
        await kit.screen.one("1", "⏹ The task has ended")
        assert "was not answered" in (await said(task) or "")


async def test_each_of_many_requests_in_a_chat_shows_its_own_answer(tmp_path: Path) -> None:
    async with approval_kit(tmp_path) as kit:
        task = kit.asks(NET)
        asked = await kit.asked()
        notes = [f"n_{number}" for number in range(40)]  # more than delivery keeps in memory
        for note in notes:
            await tell(kit, note)
        assert await kit.says(YES) == MAY
        assert await said(task) is None
        await kit.screen.one("1", "✅ Allowed by")
        assert len(kit.screen.messages("1")) == len(notes) + 1
        assert "✅ Allowed by" in kit.screen.messages("1")[0].text
        assert await kit.state(asked.id) is ApprovalState.USED


async def tell(kit: ApprovalKit, note: str) -> None:
    address = Address("memory", "1")
    item = OutboxItem(
        id=note,
        address=address,
        kind=ItemKind.NOTICE,
        state=ItemState.PENDING,
        body=b'{"text":"a note"}',
        created_at=1,
    )
    await kit.store.apply(PutItem(item))
    kit.delivery.enqueue([item])
    async with asyncio.timeout(PATIENCE):
        await kit.delivery.wait_sent(note)
