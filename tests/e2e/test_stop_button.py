"""The Stop button below a streaming answer: it stops this turn and no other."""

import asyncio
from pathlib import Path

import pytest

from platforms.core.contract import Address, InboundAction, InboundMessage, Live, Sender, Text
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, talkative
from tests.fakes.memory import VisibleMessage
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

ROOM = "room"
HERE = Address("memory", ROOM)
ANN, BOB, EVE = Sender("1001", "Ann"), Sender("1002", "Bob"), Sender("1003", "Eve")
ALLOW, ADMINS = ("memory:1001", "memory:1002"), ("memory:1003",)


async def ask(screen: Screen, who: Sender, event: str, text: str) -> None:
    await screen.inject(
        InboundMessage(
            event,
            screen._clock.now(),
            address=HERE,
            sender=who,
            parts=(Text(text),),
            addressed=True,
        )
    )


async def press(screen: Screen, who: Sender, event: str, action: str) -> None:
    await screen.inject(
        InboundAction(event, screen._clock.now(), address=HERE, sender=who, action=action)
    )


async def growing(kit: GatewayKit, number: int) -> list[VisibleMessage]:
    """Wait until exactly `number` messages have buttons; return them."""
    found = await kit.screen.until(
        ROOM, lambda shown: sum(bool(each.buttons) for each in shown) == number
    )
    return [each for each in found if each.buttons]


def stop_of(answers: list[VisibleMessage], event: str) -> str:
    """Return the action of the Stop button below the answer to a message."""
    (answer,) = (each for each in answers if each.reply_to == event)
    (button,) = answer.buttons
    assert button.label == "Stop"
    return button.action


async def closed(model: ModelServer, number: int) -> None:
    async with asyncio.timeout(8):
        await model.requests[number].closed.wait()


async def test_in_a_room_only_the_requester_or_an_admin_can_stop_an_answer(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, allow=ALLOW, admins=ADMINS) as kit,
    ):
        screen = kit.screen
        await ask(screen, ANN, "m1", "hang")
        await growing(kit, 1)
        await ask(screen, BOB, "m2", "hang")
        answers = await growing(kit, 2)
        await press(screen, BOB, "p1", stop_of(answers, "m1"))
        await screen.shows(ROOM, "Only the person who asked last, or an admin, can do that.")
        assert len(await growing(kit, 2)) == 2
        await press(screen, ANN, "p2", stop_of(answers, "m1"))
        await closed(model, 0)
        (left,) = await growing(kit, 1)
        assert left.reply_to == "m2"
        await press(screen, EVE, "p3", stop_of(answers, "m2"))
        await closed(model, 1)
        shown = await growing(kit, 0) or screen.messages(ROOM)
        assert sum("⏹ Stopped" in each.text for each in shown) == 2


async def test_an_old_stop_button_does_not_stop_the_current_turn(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, allow=ALLOW) as kit,
    ):
        screen = kit.screen
        await ask(screen, ANN, "m1", "hang")
        old = stop_of(await growing(kit, 1), "m1")
        await press(screen, ANN, "p1", old)
        await screen.shows(ROOM, "⏹ Stopped")
        await ask(screen, ANN, "m2", "hang")
        new = stop_of(await growing(kit, 1), "m2")
        await press(screen, ANN, "p2", old)
        await screen.shows(ROOM, "No active task to stop.")
        assert not model.requests[1].closed.is_set()
        await press(screen, ANN, "p3", new)
        await closed(model, 1)
        assert await growing(kit, 0) == []


async def test_after_a_crash_no_message_keeps_its_stop_button(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen, allow=ALLOW) as kit:
            await ask(screen, ANN, "m1", "hang")
            await growing(kit, 1)
            await kit.crash()
        async with gateway(tmp_path, model, screen, allow=ALLOW) as kit:
            await screen.shows(ROOM, "♻️ I was restarted")
            shown = await screen.until(
                ROOM,
                lambda messages: (
                    not any(button.label == "Stop" for each in messages for button in each.buttons)
                ),
            )
            assert shown[0].text.strip() == "so far"
