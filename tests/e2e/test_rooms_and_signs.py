"""Reactions on messages, and replies that link an answer to its message."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import GatewaySettings
from platforms.core.contract import Address, InboundMessage, Live, React, Sender, Text
from sessions.changes import Checkpoint
from sessions.settings import SessionSettings
from tests.e2e.gateway_kit import ME, Screen, gateway, talkative
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

ROOM = "room"


async def ask(screen: Screen, event: str, text: str, *, direct: bool = False) -> None:
    """Send a message addressed to the agent."""
    here = Address("memory", ROOM)
    who = Sender(ME, "Somebody")
    parts = (Text(text),)
    await screen.inject(
        InboundMessage(
            event, 2**52, address=here, sender=who, parts=parts, direct=direct, addressed=True
        )
    )


async def signed(screen: Screen, **signs: str) -> None:
    """Wait until the messages have exactly these reactions."""
    await screen.until(ROOM, lambda _: screen.reactions(ROOM) == signs)


def replies(screen: Screen) -> dict[str, str | None]:
    return {message.text: message.reply_to for message in screen.messages(ROOM)}


@pytest.mark.parametrize("live", list(Live))
async def test_in_a_room_an_answer_replies_to_its_message(tmp_path: Path, live: Live) -> None:
    screen = Screen(live=live, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen):
        await ask(screen, "m1", "one")
        await screen.shows(ROOM, "echo: one")
        await ask(screen, "m2", "two")
        await screen.shows(ROOM, "echo: two")
    assert replies(screen) == {"echo: one": "m1", "echo: two": "m2"}


async def test_in_a_private_chat_an_answer_is_not_a_reply(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        await ask(kit.screen, "m1", "one", direct=True)
        await kit.screen.shows(ROOM, "echo: one")
        await signed(kit.screen, m1="✅")
    assert replies(kit.screen) == {"echo: one": None}


async def test_a_steered_answer_replies_to_the_last_message(tmp_path: Path) -> None:
    calls = iter(["H W.3 C(0,c1,current_time,{}) F tool_calls U D"])

    def scripted(body: dict[str, Any]) -> Script:
        return next(calls, None) or talkative(body)

    screen = Screen(live=Live.NONE, burst=1000)
    async with ModelServer(scripted) as model, gateway(tmp_path, model, screen):
        await ask(screen, "m1", "turn right")
        await ask(screen, "m2", "/steer no, left")
        shown = await screen.shows(ROOM, "echo: ")
        await signed(screen, m1="✅", m2="✅")
    assert [each.reply_to for each in shown if "echo: " in each.text] == ["m2"]


async def test_reactions_show_that_a_message_was_accepted_and_how_it_ended(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await ask(screen, "m1", "hang")
        await signed(screen, m1="👀")
        await ask(screen, "m2", "/stop")
        await signed(screen, m1="❌")
        await ask(screen, "m3", "hello")
        await signed(screen, m1="❌", m3="✅")
        await ask(screen, "m3", "hello")  # redelivered
        await ask(screen, "m4", "fail")
        await signed(screen, m1="❌", m3="✅", m4="❌")
    signs = [(op.message, op.emoji) for op in screen.ops if isinstance(op, React)]
    assert len(signs) == len(set(signs)) <= 6
    assert screen.violations() == []


async def test_a_message_refused_by_a_full_queue_gets_a_failure_reaction(tmp_path: Path) -> None:
    settings = GatewaySettings(drain_seconds=0, queue_limit=1)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, gateway=settings) as kit:
        await ask(kit.screen, "m1", "hang")
        await kit.screen.shows(ROOM, "so far")  # the first message has left the queue
        await ask(kit.screen, "m2", "wait")
        await ask(kit.screen, "m3", "too much")
        await signed(kit.screen, m1="👀", m2="👀", m3="❌")


async def test_the_queue_limit_holds_for_messages_that_arrive_before_the_conversation_is_loaded(
    tmp_path: Path,
) -> None:
    settings = GatewaySettings(drain_seconds=0, queue_limit=3)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, gateway=settings) as kit:
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(ask(kit.screen, f"m{number}", f"hang {number}"))
        await kit.screen.shows(ROOM, "so far", "⛔ 3 messages are already queued here")
        taken = {f"m{number}": "👀" for number in range(4)}
        refused = {f"m{number}": "❌" for number in range(4, 10)}
        await signed(kit.screen, **taken, **refused)


async def test_messages_not_addressed_or_not_allowed_get_no_reaction(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen, here = kit.screen, Address("memory", ROOM)
        stranger, me = Sender("666"), Sender(ME)
        await screen.inject(
            InboundMessage(
                "m1", 2**52, address=here, sender=stranger, parts=(Text("x"),), addressed=True
            )
        )
        await screen.inject(
            InboundMessage("m2", 2**52, address=here, sender=me, parts=(Text("x"),))
        )
        await ask(screen, "m3", "hello")
        await signed(screen, m3="✅")


@pytest.mark.parametrize("switched_off", ["settings", "platform"])
async def test_reactions_can_be_switched_off_by_settings_or_platform(
    tmp_path: Path, switched_off: str
) -> None:
    screen = Screen(reactions=switched_off != "platform", burst=1000)
    settings = GatewaySettings(drain_seconds=0, reactions=switched_off != "settings")
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, gateway=settings),
    ):
        await ask(screen, "m1", "one")
        await screen.shows(ROOM, "echo: one")
        await ask(screen, "m2", "two")
        await screen.shows(ROOM, "echo: two")
    assert not [op for op in screen.ops if isinstance(op, React)]
    assert screen.violations() == []


@pytest.mark.parametrize("resume", [True, False], ids=["resumed", "suspended"])
async def test_after_a_crash_an_answer_is_still_a_reply_with_a_reaction(
    tmp_path: Path, resume: bool
) -> None:
    screen = Screen(live=Live.NONE, burst=1000)
    settings = SessionSettings(on_interrupted="resume" if resume else "suspend")
    calls = iter(['H T"so far " HANG'])

    def scripted(body: dict[str, Any]) -> Script:
        return next(calls, None) or talkative(body)

    async with ModelServer(scripted) as model:
        async with gateway(tmp_path, model, screen, sessions=settings) as kit:
            await ask(screen, "m1", "one")
            async with asyncio.timeout(8):
                await model.request(1)
            await signed(screen, m1="👀")
            if not resume:
                store = kit.runner._store
                assert store
                (turn,) = await store.turns.running()
                await store.apply(Checkpoint(turn.id, "so far"))  # the host does this every 2 s
            await kit.crash()
        async with gateway(tmp_path, model, screen, sessions=settings):
            if resume:
                await signed(screen, m1="✅")
                shown = await screen.shows(ROOM, "echo: one")
                assert [each.reply_to for each in shown if "echo" in each.text] == ["m1"]
            else:
                await screen.shows(ROOM, "restarted", "so far")
                assert replies(screen)["so far"] == "m1"
                await signed(screen, m1="❌")
                await ask(screen, "m2", "/retry")
                shown = await screen.shows(ROOM, "echo: one")
                assert [each.reply_to for each in shown if "echo" in each.text] == ["m1"]
