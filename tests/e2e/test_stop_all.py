"""`/stop all` stops running and starting turns, and notifies each chat."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from platforms.core.contract import Live, Sender
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, talkative
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHIEF = "9"
CHATS = tuple(f"2{number:03d}" for number in range(20))
ALLOWED: dict[str, Any] = {"allow": ("memory:*",), "admins": (f"memory:{CHIEF}",)}


def a_screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


async def says(kit: GatewayKit, chat: str, text: str) -> None:
    await kit.screen.say(chat, text, sender=Sender(chat, f"Person {chat}"))


def notices(screen: Screen, chat: str) -> list[str]:
    return [each.text for each in screen.messages(chat) if each.text.startswith("⏹")]


async def test_stop_all_notifies_each_chat_once_and_keeps_queued_messages(tmp_path: Path) -> None:
    screen = a_screen()
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, **ALLOWED) as kit,
    ):
        for chat in CHATS:
            await says(kit, chat, "hang here")
        for chat in CHATS:
            await screen.shows(chat, "so far")
        await says(kit, CHATS[0], "this waits")
        await says(kit, CHIEF, "hello")
        await screen.shows(CHIEF, "echo: hello")

        clock = asyncio.get_running_loop().time
        began = clock()
        await says(kit, CHIEF, "/stop all")
        for chat in (CHIEF, *CHATS):
            await screen.shows(chat, "⏹")
        assert clock() - began < 0.3

        assert notices(screen, CHIEF) == ["⏹ 20 tasks stopped."]
        assert all(len(notices(screen, chat)) == 1 for chat in CHATS)
        assert notices(screen, CHATS[0])[0].endswith("1 queued message is kept with it.")
        assert not any("No active task" in text for text in screen.screen(CHIEF))
        assert kit.runner.condition.running_turns() == 0
        await says(kit, CHIEF, "/stop all")
        await screen.shows(CHIEF, "⏹ 0 tasks stopped.")
        assert all(len(notices(screen, chat)) == 1 for chat in CHATS)


async def test_stop_all_includes_accepted_messages_without_a_turn(tmp_path: Path) -> None:
    screen = a_screen()
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, **ALLOWED) as kit,
    ):
        await says(kit, "2001", "hang here")
        assert kit.runner.condition.running_turns() == 0
        await says(kit, CHIEF, "/stop all")
        await screen.shows(CHIEF, "⏹ 1 task stopped.")
        await screen.shows("2001", "⏹ Stopped.")
        assert kit.runner.condition.running_turns() == 0


async def test_the_command_line_stops_one_conversation_or_all(tmp_path: Path) -> None:
    screen = a_screen()
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, **ALLOWED) as kit,
    ):
        operations: Any = kit.runner.operations
        for chat in CHATS[:3]:
            await says(kit, chat, "hang here")
            await screen.shows(chat, "so far")
        assert kit.runner._store
        (session,) = await kit.runner._store.sessions.list(key=f"memory:{CHATS[0]}")
        told = await operations["stop"](session=session.id)
        assert told == {"id": session.id, "state": "suspended", "stopped": True}
        told = await operations["stop"](session=session.id)
        assert told == {"id": session.id, "state": "suspended", "stopped": False}
        async with asyncio.TaskGroup() as group:  # a turn that is being stopped is counted once
            both = [group.create_task(operations["stop_all"]()) for _ in range(2)]
        assert sum(each.result()["stopped"] for each in both) == 2
        assert await operations["stop_all"]() == {"stopped": 0}
        for chat in CHATS[:3]:
            await screen.shows(chat, "⏹ Stopped.")
            assert len(notices(screen, chat)) == 1
