"""Tools of a server of the configuration, as people meet them: a real program, the whole gateway."""

import asyncio
import base64
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agent.settings import McpSettings
from platforms.core.contract import Live, Sender
from tests.e2e.api_kit import named, served, text_of
from tests.e2e.gateway_kit import GatewayKit, Screen, gateway, talkative
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.usefixtures("patient_start")

ANN, CHAT = Sender("1001", "Ann"), "1001"
ADMINS = ("memory:9",)
SERVER = Path(__file__).parents[1] / "fakes" / "mcp_server.py"
SEND = 'H C(0,c1,post_send,{"to":"bob","text":"hi"}) F tool_calls U D'


def server(home: Path, *more: str) -> McpSettings:
    arguments = (str(SERVER), "stdio", str(effects_file(home)), *more)
    return McpSettings(name="post", command=sys.executable, args=arguments)


def effects_file(home: Path) -> Path:
    return home / "effects"


def effects(home: Path) -> list[str]:
    """What the server did, without the keys of the calls."""
    file = effects_file(home)
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.rpartition(" ")[0] if line.startswith("send ") else line for line in lines]


def calling(*scripts: str) -> Callable[[dict[str, object]], Script]:
    """A model that makes these calls, then talks."""
    left = iter(scripts)

    def answer(body: dict[str, object]) -> Script:
        return next(left, None) or talkative(body)

    return answer


def a_screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


async def result(kit: GatewayKit, number: int = 2) -> str:
    """What the model read of its last call."""
    rows = [each for each in await kit.asked(number) if each["role"] == "tool"]
    return str(rows[-1]["content"])


async def code_of_question(screen: Screen) -> str:
    messages = await screen.shows(CHAT, "/deny ")
    found = re.search(r"/deny (\w{4})", "\n".join(each.text for each in messages))
    assert found
    return found[1]


async def test_a_call_with_side_effects_asks_is_allowed_and_runs_once(tmp_path: Path) -> None:
    async with (
        ModelServer(calling(SEND)) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "write to bob", sender=ANN)
        await code_of_question(kit.screen)
        assert effects(tmp_path) == []
        await kit.screen.say(CHAT, "/approve", sender=ANN)
        await kit.screen.shows(CHAT, "✅ Allowed: post_send runs once.", "echo: write to bob")
        assert await result(kit) == "sent to bob"
        offered = {each["function"]["name"] for each in model.requests[0].body["tools"]}
        assert {"post_look", "post_send", "read_file"} <= offered
    assert effects(tmp_path) == ["send bob hi"]
    (line,) = effects_file(tmp_path).read_text().splitlines()
    assert re.fullmatch(r"send bob hi \S+:\S+:c1", line)  # with the key of this very call
    assert kit.screen.violations() == []


async def test_a_denied_call_does_not_run_and_the_model_is_told_why(tmp_path: Path) -> None:
    async with (
        ModelServer(calling(SEND)) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "write to bob", sender=ANN)
        code = await code_of_question(kit.screen)
        await kit.screen.say(CHAT, f"/deny {code} he is on holiday", sender=ANN)
        await kit.screen.shows(CHAT, "echo: write to bob")
        told = await result(kit)
        assert told == "post_send has NOT run: denied by memory:1001: he is on holiday"
    assert effects(tmp_path) == []


async def test_a_call_that_nobody_answers_does_not_run_and_the_model_is_told_why(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(calling(SEND)) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        kit.conversations.approvals._timeout_ms = 200
        await kit.screen.say(CHAT, "write to bob", sender=ANN)
        await kit.screen.shows(CHAT, "⌛ No answer in time", "echo: write to bob")
        told = await result(kit)
        assert told.startswith("post_send has NOT run: ")
        assert "the question was not answered" in told
    assert effects(tmp_path) == []


async def test_a_question_that_is_open_when_the_daemon_ends_does_not_let_the_call_run(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(calling(SEND)) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "write to bob", sender=ANN)
        await code_of_question(kit.screen)
    assert effects(tmp_path) == []


async def test_a_call_that_only_reads_runs_without_a_question(tmp_path: Path) -> None:
    look = 'H C(0,c1,post_look,{"path":"a"}) F tool_calls U D'
    async with (
        ModelServer(calling(look)) as model,
        gateway(tmp_path, model, a_screen(), mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "look at a", sender=ANN)
        await kit.screen.shows(CHAT, "echo: look at a")
        assert await result(kit) == "seen a"


async def test_a_call_over_the_api_does_not_run_and_the_model_is_told_why(tmp_path: Path) -> None:
    """Nobody reads a question there, also where admins could: whoever asks for the answer waits."""
    look = 'H C(0,c2,post_look,{"path":"a"}) F tool_calls U D'
    async with (
        ModelServer(calling(SEND, look)) as model,
        served(tmp_path, model, admins=ADMINS, mcp=(server(tmp_path),)) as api,
    ):
        found = await api.wire.stream("write to bob")
        assert text_of(found) == "echo: write to bob"
        told = await result(api.kit)
        assert told.startswith("post_send has NOT run: it needs a person's approval")
        assert "this conversation has no person to ask" in told
        progress = named(found, "hermes.tool.progress")
        assert [(each["toolCallId"], each["status"]) for each in progress] == [
            ("c2", "running"),
            ("c2", "completed"),
        ]
        assert await result(api.kit, 3) == "seen a"  # what only reads does run
        assert api.kit.screen.messages("9") == []  # no admin is asked
    assert effects(tmp_path) == []


async def test_a_call_by_the_name_of_an_older_version_runs_the_same_tool(tmp_path: Path) -> None:
    look = 'H C(0,c1,look,{"path":"a"}) F tool_calls U D'
    async with (
        ModelServer(calling(look)) as model,
        gateway(tmp_path, model, a_screen(), mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "look at a", sender=ANN)
        await kit.screen.shows(CHAT, "echo: look at a")
        assert await result(kit) == "seen a"


async def test_a_picture_of_a_result_is_shown_to_the_model_and_kept_as_a_file(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(
            calling("H C(0,c1,post_draw,{}) F tool_calls U D", 'H T"a cat" F stop U D')
        ) as model,
        gateway(tmp_path, model, a_screen(), mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "draw", sender=ANN)
        await kit.screen.shows(CHAT, "a cat")
        messages = await kit.asked(2)
        (result,) = [each for each in messages if each["role"] == "tool"]
        found = re.search(r"\[Picture: (received/\w{10}/picture.png) ", str(result["content"]))
        assert found
        (shown,) = tmp_path.glob(f"**/{found[1]}")  # noqa: ASYNC240 - a test
        picture = messages[-1]["content"][1]["image_url"]["url"]
        assert picture == f"data:image/png;base64,{base64.b64encode(shown.read_bytes()).decode()}"
        system = str(model.requests[0].body["messages"][0]["content"])
        assert "the user: post]\n> Look before you send." in system


async def test_a_form_of_a_server_is_answered_with_words_and_buttons(tmp_path: Path) -> None:
    order = "H C(0,c1,post_order,{}) F tool_calls U D"
    async with (
        ModelServer(calling(order)) as model,
        gateway(
            tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path, "--old"),)
        ) as kit,
    ):
        screen = kit.screen

        async def asked(words: str) -> dict[str, str]:
            """Wait for a question; return the actions of its buttons."""
            messages = await screen.shows(CHAT, words)
            (shown,) = [each for each in messages if words in each.text and each.buttons]
            assert "The MCP server **post** asks:" in shown.text
            return {button.label: button.action for button in shown.buttons}

        await screen.say(CHAT, "order", sender=ANN)
        await code_of_question(screen)
        await screen.say(CHAT, "/approve", sender=ANN)
        assert set(await asked("Name: On the parcel")) == {"Decline"}
        await screen.say(CHAT, "/approve", sender=ANN)
        await screen.shows(CHAT, "Please add one of the possible answers, or your own words")
        await screen.say(CHAT, "/approve Ann", sender=ANN)
        await asked("Number?")
        await screen.say(CHAT, "/approve 3", sender=ANN)
        buttons = await asked("Small · Large")
        assert set(buttons) == {"Small", "Large", "Decline"}
        await screen.press(CHAT, buttons["Large"], sender=Sender("5", "Eve"))
        await screen.press(CHAT, buttons["Large"], sender=ANN)
        await screen.shows(CHAT, "✅ Answered by memory:1001: Large")
        buttons = await asked("Yes · No · Skip")
        await screen.press(CHAT, buttons["Skip"], sender=ANN)
        await screen.shows(CHAT, "echo: order")
        assert await result(kit) == "Ann 3 l None"
    assert kit.screen.violations() == []


async def test_a_question_that_is_open_at_a_restart_is_closed_by_its_answer(tmp_path: Path) -> None:
    order = "H C(0,c1,post_order,{}) F tool_calls U D"
    screen = a_screen()
    settings = msgspec.structs.replace(server(tmp_path, "--old"), approval="never")
    async with (
        ModelServer(calling(order)) as model,
        gateway(tmp_path, model, screen, admins=ADMINS, mcp=(settings,)),
    ):
        await screen.say(CHAT, "order", sender=ANN)
        messages = await screen.shows(CHAT, "Name: On the parcel")
        (shown,) = [each for each in messages if each.buttons]
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, screen, admins=ADMINS, mcp=(settings,)),
    ):
        await screen.press(CHAT, shown.buttons[-1].action, sender=ANN)
        await screen.shows(CHAT, "This question is already closed.")


async def test_a_question_of_a_server_that_is_declined_or_cannot_be_asked(tmp_path: Path) -> None:
    order = "H C(0,c1,post_order,{}) F tool_calls U D"
    settings = msgspec.structs.replace(server(tmp_path, "--old"), approval="never")
    async with (
        ModelServer(calling(order, 'H T"ok" F stop U D', order)) as model,
        served(tmp_path, model, admins=ADMINS, mcp=(settings,)) as api,
    ):
        await api.wire.stream("order")
        assert await result(api.kit) == "decline"  # over the API no one can be asked
        await api.kit.screen.say(CHAT, "order", sender=ANN)
        messages = await api.kit.screen.shows(CHAT, "Name: On the parcel")
        (shown,) = [each for each in messages if each.buttons]
        await api.kit.screen.press(CHAT, shown.buttons[-1].action, sender=ANN)
        await api.kit.screen.shows(CHAT, "🚫 Declined by memory:1001.", "echo: order")
        assert await result(api.kit, 4) == "decline"


async def test_a_tool_that_later_claims_to_read_only_needs_an_admin_once(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)),
    ):
        pass
    harmless = server(tmp_path, "--harmless")
    async with (
        ModelServer(calling(SEND, 'H T"sent" F stop U D', SEND.replace("c1", "c2"))) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(harmless,)) as kit,
    ):
        await kit.screen.shows("9", "The MCP server post has changed a tool: send")
        await kit.screen.say(CHAT, "write to bob", sender=ANN)
        await code_of_question(kit.screen)
        for chat in (CHAT, "9"):
            await kit.screen.shows(chat, "was: may have effects, now: only reads")
        await kit.screen.say(CHAT, "/approve", sender=ANN)
        await kit.screen.shows(CHAT, "Only an admin can do that.")
        assert effects(tmp_path) == []
        await kit.screen.say("9", "/approve", sender=Sender("9", "Ada"))
        await kit.screen.shows(CHAT, "sent")
        assert effects(tmp_path) == ["send bob hi"]
        await kit.screen.say(CHAT, "once more", sender=ANN)
        await kit.screen.shows(CHAT, "echo: once more")
    assert effects(tmp_path) == ["send bob hi", "send bob hi"]


async def test_a_server_that_dies_in_a_call_does_not_take_the_turn_down(tmp_path: Path) -> None:
    die = "H C(0,c1,post_die,{}) F tool_calls U D"
    async with (
        ModelServer(calling(die)) as model,
        gateway(tmp_path, model, a_screen(), admins=ADMINS, mcp=(server(tmp_path),)) as kit,
    ):
        await kit.screen.say(CHAT, "die", sender=ANN)
        await code_of_question(kit.screen)
        await kit.screen.say(CHAT, "/approve", sender=ANN)
        await kit.screen.shows(CHAT, "echo: die")
        told = await result(kit)
        assert told.startswith("UNKNOWN")
        assert "may have taken effect" in told
    assert effects(tmp_path) == ["die"]


@pytest.mark.parametrize("name", ["read_file", "nothing"])
async def test_a_server_that_cannot_be_started_holds_up_nobody(tmp_path: Path, name: str) -> None:
    broken = McpSettings(name=name, command="/no/such/program")
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, a_screen(), mcp=(broken,)) as kit,
    ):
        await kit.screen.say(CHAT, "hello", sender=ANN)
        async with asyncio.timeout(5):
            await kit.screen.shows(CHAT, "echo: hello")
