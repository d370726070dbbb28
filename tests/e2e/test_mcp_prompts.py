"""Prompts of MCP servers as commands in chats: a real program, the whole gateway."""

import sys
from pathlib import Path

import msgspec
import pytest

from agent.settings import McpSettings
from platforms.core.contract import Address, InboundMessage, Sender, Text
from tests.contract.test_mcp_servers import Bell
from tests.e2e.gateway_kit import gateway, talkative
from tests.e2e.test_mcp_turns import a_screen, calling
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.usefixtures("patient_start")

ANN, BEA, CHAT = Sender("1001", "Ann"), Sender("2002", "Bea"), "1001"
ADMINS = ("memory:9",)
SERVER = Path(__file__).parents[1] / "fakes" / "mcp_server.py"
LABEL = "[The request of this message, made from the prompt digest of the MCP server post]"


def server(home: Path, *arguments: str, **more: object) -> McpSettings:
    arguments = (str(SERVER), "stdio", str(home / "effects"), *arguments)
    base = McpSettings(name="post", command=sys.executable, args=arguments)
    return msgspec.structs.replace(base, **more)  # type: ignore[arg-type]  # fields of the record


async def test_a_prompt_is_a_command_whose_text_becomes_the_request(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "/digest style=short the long story", sender=ANN)
        (asked,) = await kit.asked(1)
        assert asked["content"] == (
            f"{LABEL}\n> Digest this, short:\n> (Owner (1001)] the long story"
        )
        await kit.screen.until(CHAT, bool)
    assert kit.screen.violations() == []


async def test_a_missing_argument_is_answered_with_the_usage(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "/digest style=short", sender=ANN)
        await kit.screen.shows(CHAT, "“text” is missing. Use: /digest TEXT [style=STYLE]")
        await kit.screen.say(CHAT, "!digest", sender=ANN)
        assert model.requests == []


async def test_own_commands_win_and_the_prompt_has_the_name_of_its_server(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "/stop", sender=ANN)
        await kit.screen.shows(CHAT, "No active task to stop.")
        await kit.screen.say(CHAT, "/post_stop and tell me how", sender=ANN)
        (asked,) = await kit.asked(1)
        assert asked["content"].endswith(
            "> How do I stop?\n>\n> (an answer as an example)\n> Slowly.\n>\n> Why?\n"
            "and tell me how"
        )


async def test_help_lists_the_prompts_under_a_heading(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "/help", sender=ANN)
        (shown,) = await kit.screen.shows(CHAT, "Prompts from MCP servers")
        lines = shown.text.splitlines()
        listed = lines[lines.index(next(each for each in lines if "Prompts from" in each)) + 1 :]
        assert listed == [
            "/digest TEXT [style=STYLE] · Digest a text. (post)",
            "/post_stop · Say how to stop. (post)",
            "/broken · Fail. (post)",
            "/patient · Wait for ever the first time. (post)",
        ]


async def test_a_prompt_that_the_server_cannot_give_is_answered_with_the_cause(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "/broken", sender=ANN)
        await kit.screen.shows(CHAT, "Sorry, the MCP server post did not give me this text")
        assert model.requests == []
        await kit.screen.say(CHAT, "still there?", sender=ANN)
        await kit.screen.shows(CHAT, "echo: still there?")


async def test_a_new_prompt_is_a_command_at_once(tmp_path: Path) -> None:
    teach = 'H C(0,c1,post_teach,{"name":"juggling"}) F tool_calls U D'
    async with (
        ModelServer(calling(teach)) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        kit.screen.menu_refreshed.clear()
        await kit.screen.say(CHAT, "learn", sender=ANN)
        await kit.screen.shows(CHAT, "echo: learn")
        await kit.screen.menu_refreshed.wait()
        await kit.screen.say(CHAT, "/juggling", sender=ANN)
        assert (await kit.asked(3))[-1]["content"].endswith("\n> Teach me juggling.")


async def test_prompts_can_be_switched_off(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(
            tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path, prompts=False),)
        ) as kit,
    ):
        await kit.screen.say(CHAT, "/digest a text", sender=ANN)
        await kit.screen.shows(CHAT, "I don't know /digest.")


async def test_people_without_access_cannot_use_prompts(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say("2002", "/digest a text", sender=BEA)
        await kit.screen.say(CHAT, "hello", sender=ANN)
        await kit.screen.shows(CHAT, "echo: hello")
        assert len(model.requests) == 1


async def test_a_prompt_that_arrives_too_late_is_not_run(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.inject(
            InboundMessage(
                id="m1",
                at=1_000,
                address=Address("memory", CHAT),
                sender=ANN,
                parts=(Text("/digest a text"),),
                direct=True,
                addressed=True,
            )
        )
        await kit.screen.shows(CHAT, "it's too old to answer")
        assert model.requests == []


async def test_a_prompt_interrupted_before_its_text_arrived_runs_after_the_restart(
    tmp_path: Path,
) -> None:
    ringing = server(tmp_path, "--bell", str(tmp_path / "bell"))
    async with ModelServer(talkative) as model, Bell(tmp_path / "bell").listening() as bell:
        async with gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(ringing,)) as kit:
            await kit.screen.say(CHAT, "/patient", sender=ANN)
            await bell.rings("patient began")
            await kit.crash()
        async with gateway(
            tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)
        ) as kit:
            assert (await kit.asked(1))[-1]["content"].endswith("\n> Be patient.")
