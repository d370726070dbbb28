"""Commands whose answer concerns only the person who asked, and all others."""

from pathlib import Path

import pytest

from gateway.commands.registry import COMMANDS
from platforms.core.contract import Address, InboundMessage, Post, Sender, Text
from tests.e2e.gateway_kit import Screen, gateway, talkative
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

PRIVATE = [
    "/status",
    "/mcp",
    "/usage",
    "/sessions",
    "/whoami",
    "/pair list",
    "/pair approve AAAA-AAAA",
]
VISIBLE = ["/stop", "/new", "/undo", "/model", "/compact", "/nonsense"]


async def answer(screen: Screen, text: str, *, direct: bool) -> Post:
    """Send a command, and return the op that answers it."""
    before = len(screen.ops)
    await screen.inject(
        InboundMessage(
            f"e{before}",
            0,
            address=Address("memory", "-100"),
            sender=Sender("1001", "Ann"),
            parts=(Text(text),),
            direct=direct,
            addressed=True,
        )
    )

    def posts() -> list[Post]:
        return [op for op in screen.ops[before:] if isinstance(op, Post)]

    while not posts():
        await screen.until("-100", lambda _: bool(posts()))
    return posts()[0]


@pytest.mark.parametrize("direct", [False, True])
async def test_in_a_room_private_answers_are_only_for_the_person_who_asked(
    tmp_path: Path, *, direct: bool
) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, admins=("memory:1001",)) as kit,
    ):
        for text in (*PRIVATE, *VISIBLE):
            op = await answer(kit.screen, text, direct=direct)
            private = text in PRIVATE and not direct
            assert op.only_for == ("1001" if private else ""), text
            assert bool(op.reply_to) == private, text


def test_the_menu_tells_which_commands_have_private_answers() -> None:
    private = {entry.word for entry in COMMANDS.menu() if entry.private}
    assert private == {text.split()[0].removeprefix("/") for text in PRIVATE}
