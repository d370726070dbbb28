"""Several people in one conversation: each message is worked on with its sender's rights."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import pytest

from agent.tools.contract import Tool, ToolContext
from agent.tools.define import tool
from agent.tools.risk import Risk
from gateway.settings import GatewaySettings
from platforms.core.actions import ButtonAction, write_action
from platforms.core.contract import (
    Address,
    InboundAction,
    InboundEdit,
    InboundMessage,
    Live,
    Sender,
    Text,
)
from sessions.changes import SetInbox
from sessions.records import InboxState, TurnState
from sessions.settings import SessionSettings
from sessions.store.store import SessionStore
from sessions.values.clock import SystemClock
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, opened
from tests.fakes.model_script import Script, calls, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

ROOM = "room"
KEY = "memory:room:t=7"
PLACE = Address("memory", ROOM, "", "7")
CHIEF, ANN = Sender("9", "Chief"), Sender("1001", "Ann")


class SlowTool:
    """A tool that waits until the test goes on and records the workspace it was called in."""

    def __init__(self) -> None:
        self.workspaces: list[str] = []
        self.called = asyncio.Event()
        self.may_end = asyncio.Event()
        self.tool = self._tool()

    def _tool(self) -> Tool:
        @tool(risk=Risk.READ)
        async def look(context: ToolContext) -> str:
            """Look around.

            Args:
                context: Not part of the call.
            """
            self.workspaces.append(context.workspace.name)
            self.called.set()
            await self.may_end.wait()
            return "nothing special"

        return look


def looking(body: dict[str, Any]) -> Script:
    """Look around once for each request that asks for it, then repeat the newest user message."""
    rows = [each for each in body["messages"] if each["role"] != "system"]
    if rows[-1]["role"] == "user" and "look" in str(rows[-1]["content"]):
        return calls((f"c{len(rows)}", "look", "{}"))
    if rows[-1]["role"] == "user" and "hang" in str(rows[-1]["content"]):
        return 'H T"so far " HANG'
    if rows[-1]["role"] == "user" and "fail" in str(rows[-1]["content"]):
        return "S400"
    said = [str(each["content"]) for each in rows if each["role"] == "user"]
    return words(f"echo: {said[-1]}")


def people(kit: GatewayKit) -> Callable[..., Awaitable[None]]:
    """Return a function by which a person writes into the thread."""
    numbers = iter(range(1, 1000))

    async def say(sender: Sender, text: str, event: str = "") -> None:
        number = next(numbers)
        await kit.screen.inject(
            InboundMessage(
                id=event or f"in{number}",
                at=2**50,
                address=PLACE,
                sender=sender,
                parts=(Text(text),),
                addressed=True,
            )
        )

    return say


def running(
    tmp_path: Path,
    model: ModelServer,
    slow: SlowTool | None = None,
    busy: Literal["queue", "collect"] = "queue",
    **changes: Any,
) -> AbstractAsyncContextManager[GatewayKit]:
    return gateway(
        tmp_path,
        model,
        admins=("memory:9",),
        tools=(slow.tool,) if slow else (),
        gateway=GatewaySettings(drain_seconds=0, busy=busy),
        **changes,
    )


async def press(kit: GatewayKit, sender: Sender, action: ButtonAction, turn: str) -> None:
    await kit.screen.inject(
        InboundAction(
            id=f"press {sender.id} {action}",
            at=2**50,
            address=PLACE,
            sender=sender,
            action=write_action(action, turn),
        )
    )


async def test_another_person_cannot_steer_the_turn_of_an_admin(tmp_path: Path) -> None:
    slow = SlowTool()
    async with ModelServer(looking) as model, running(tmp_path, model, slow) as kit:
        say = people(kit)
        await say(CHIEF, "look")
        await slow.called.wait()
        await say(ANN, "/steer also read private.txt")
        await say(CHIEF, "/steer and be quick")
        slow.may_end.set()
        await kit.screen.shows(ROOM, "also read private.txt", "and be quick")
        second = await kit.asked(2)
        assert "private.txt" not in str(second)
        assert str(second[-1]["content"]) == "[Chief (9)] and be quick"
        third = await kit.asked(3)
        assert str(third[-1]["content"]) == "[Ann (1001)] also read private.txt"
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list(key=KEY)
        turns = await store.turns.of_session(session.id)
        assert [turn.person for turn in turns] == ["memory:9", "memory:1001"]


async def test_collected_messages_keep_their_senders_and_rights(tmp_path: Path) -> None:
    slow = SlowTool()
    async with (
        ModelServer(looking) as model,
        running(tmp_path, model, slow, busy="collect") as kit,
    ):
        say = people(kit)
        await say(CHIEF, "look")
        await slow.called.wait()
        await say(ANN, "look at private.txt")
        await say(ANN, "and tell me")
        await say(CHIEF, "thanks")
        slow.may_end.set()
        await kit.screen.shows(ROOM, "thanks")
        third = await kit.asked(3)
        assert str(third[-1]["content"]) == "[Ann (1001)] look at private.txt\n\nand tell me"
        last = await kit.asked(5)
        assert str(last[-1]["content"]) == "[Chief (9)] thanks"
        assert slow.workspaces == ["memory%3A9", "memory%3A1001"]


async def test_only_the_author_or_an_admin_continues_a_failed_turn_and_as_its_author(
    tmp_path: Path,
) -> None:
    async with ModelServer(looking) as model, running(tmp_path, model) as kit:
        say = people(kit)
        await say(CHIEF, "fail")
        await kit.screen.shows(ROOM, "❌ Sorry")
        async with opened(tmp_path) as store:
            (session,) = await store.sessions.list(key=KEY)
            (turn,) = await store.turns.of_session(session.id)
        await press(kit, ANN, ButtonAction.RESUME, turn.id)
        await press(kit, ANN, ButtonAction.RETRY, turn.id)
        await say(ANN, "/retry")
        await say(ANN, "/undo")
        await say(ANN, "/compact")
        await kit.screen.until(
            ROOM, lambda shown: sum("Only the person who asked" in m.text for m in shown) == 5
        )
        assert len(model.requests) == 1
        await say(ANN, "fail too")
        await kit.screen.until(ROOM, lambda shown: sum("❌" in m.text for m in shown) == 2)
        await say(CHIEF, "/retry")
        await kit.screen.until(ROOM, lambda shown: sum("❌" in m.text for m in shown) == 3)
    async with opened(tmp_path) as store:
        turns = await store.turns.of_session(session.id)
        assert [each.person for each in turns] == ["memory:9", "memory:1001", "memory:1001"]


async def test_only_the_author_edits_a_queued_message(tmp_path: Path) -> None:
    slow = SlowTool()
    async with ModelServer(looking) as model, running(tmp_path, model, slow) as kit:
        say = people(kit)
        await say(CHIEF, "look")
        await slow.called.wait()
        await say(CHIEF, "tidy up", event="m2")
        for number, (sender, text) in enumerate([(CHIEF, "tidy well"), (ANN, "delete all")]):
            await kit.screen.inject(
                InboundEdit(
                    f"e{number}",
                    2**50,
                    address=PLACE,
                    sender=sender,
                    message="m2",
                    parts=(Text(text),),
                )
            )
        slow.may_end.set()
        await kit.screen.shows(ROOM, "echo: [Chief (9)] tidy well")
    assert "delete all" not in str([request.body for request in model.requests])


async def test_a_side_question_names_its_sender(tmp_path: Path) -> None:
    async with ModelServer(looking) as model, running(tmp_path, model) as kit:
        say = people(kit)
        await say(CHIEF, "hello")
        await kit.screen.shows(ROOM, "echo: [Chief (9)] hello")
        await say(ANN, "/btw what did I miss")
        (*_, question) = await kit.asked(2)
        assert str(question["content"]).startswith("[Ann (1001)] [A question on the side.")


async def join_waiting_message(home: Path) -> None:
    """Give the waiting message to the running turn, as older versions did."""
    store = await SessionStore.open(f"sqlite:///{home / 'holdfast.db'}", clock=SystemClock())
    (turn,) = await store.turns.running()
    (waiting,) = (await store.conversation(KEY)).waiting
    await store.apply(
        SetInbox(
            ids=(waiting.id,),
            state=InboxState.RUNNING,
            at=1,
            session_id=turn.session_id,
            turn_id=turn.id,
        )
    )
    await store.close()


async def test_a_turn_with_messages_of_two_people_is_not_resumed_after_a_crash(
    tmp_path: Path,
) -> None:
    """An older version joined messages of several people into one turn."""
    resume = SessionSettings(on_interrupted="resume")
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(looking) as model:
        async with running(tmp_path, model, sessions=resume, screen=screen) as kit:
            say = people(kit)
            await say(CHIEF, "hang")
            await kit.asked(1)
            await say(ANN, "me too")
            await kit.screen.shows(ROOM, "1 message is queued")
            await kit.crash()
        await join_waiting_message(tmp_path)
        async with running(tmp_path, model, sessions=resume, screen=screen) as kit:
            await kit.screen.shows(ROOM, "I was restarted while working on “hang”")
            assert len(model.requests) == 1
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list(key=KEY)
        assert (await store.turns.of_session(session.id))[0].state is TurnState.INTERRUPTED
