"""Approval requests with the whole gateway and a platform in memory."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.settings import ModelSettings, ToolSettings
from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, Settings
from platforms.core.contract import Live, Sender
from sessions.records import ApprovalState
from sessions.settings import SessionSettings
from sessions.values.secret import Secret
from tests.e2e.gateway_kit import GatewayKit, Nothing, Screen, gateway, opened, talkative
from tests.fakes.memory import VisibleMessage
from tests.fakes.model_script import Script
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHAT, ELSEWHERE = "1001", "9"
ANN, CHIEF = Sender("1001", "Ann"), Sender("9", "Chief")
ADMINS = ("memory:9",)
RUN = 'H C(0,c1,run,{"command":"make tea"}) F tool_calls U D'


class Machine:
    """A tool that needs approval and counts its runs."""

    def __init__(self, risk: Risk = Risk.EXEC) -> None:
        self.ran: list[str] = []
        self.tool = self._tool(risk)

    def _tool(self, risk: Risk) -> Tool:
        @tool(risk=risk, label="command")
        async def run(context: ToolContext, command: str) -> str:  # noqa: ARG001 - every tool has one
            """Run a command.

            Args:
                context: Not part of the call.
                command: What to run.
            """
            self.ran.append(command)
            return f"{command}: done"

        return run


def calling(times: int = 1, then: str = RUN) -> Callable[[dict[str, object]], Script]:
    """Return a model that makes the same call `times` times, later ones as `then`, and then answers."""
    scripts = iter([RUN, *[then] * (times - 1)])

    def answer(body: dict[str, object]) -> Script:
        return next(scripts, None) or talkative(body)

    return answer


def a_screen() -> Screen:
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


async def question(screen: Screen, chat: str = CHAT) -> tuple[VisibleMessage, str]:
    """Return the open request of a chat and its code."""
    messages = await screen.until(chat, lambda found: any("/deny " in each.text for each in found))
    shown = next(each for each in messages if "/deny " in each.text)
    code = re.search(r"/deny (\w{4})", shown.text)
    assert code
    return shown, code[1]


async def result(kit: GatewayKit, number: int = 2) -> str:
    """Return the tool result that the model received."""
    (row,) = [each for each in await kit.asked(number) if each["role"] == "tool"]
    return str(row["content"])


async def test_a_program_runs_once_after_an_admin_allows_it_in_the_chat(tmp_path: Path) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=("memory:1001",), tools=(machine.tool,)) as kit,
    ):
        await kit.screen.say(CHAT, "tea, please")
        shown, _ = await question(kit.screen)
        assert '"command": "make tea"' in shown.text
        assert machine.ran == []
        await kit.screen.say(CHAT, "/approve")
        await kit.screen.shows(CHAT, "✅ Allowed by memory:1001.", "✅ Allowed: run runs once.")
        await kit.screen.shows(CHAT, "echo: tea, please")
        assert await result(kit) == "make tea: done"
        assert machine.ran == ["make tea"]
    assert kit.screen.violations() == []


async def test_only_an_admin_may_allow_a_program_also_from_another_chat(
    tmp_path: Path,
) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=ADMINS, tools=(machine.tool,)) as kit,
    ):
        screen = kit.screen
        await screen.say(CHAT, "tea, please", sender=ANN)
        shown, code = await question(screen)
        assert "An admin has to answer" in shown.text
        for text in ("/approve", f"/approve {code}", f"/deny {code}"):
            before = len(screen.messages(CHAT))
            await screen.say(CHAT, text, sender=ANN)
            messages = await screen.until(CHAT, lambda found, had=before: len(found) > had)  # type: ignore[misc]  # mypy knows no default here
            assert messages[-1].text == "Only an admin can do that."
        assert machine.ran == []
        asked, same = await question(screen, ELSEWHERE)
        assert same == code
        assert "for memory:1001" in asked.text
        await screen.say(ELSEWHERE, "/approve", sender=CHIEF)
        await screen.shows(ELSEWHERE, "✅ Allowed by memory:9.", "✅ Allowed: run runs once.")
        await screen.shows(CHAT, "✅ Allowed by memory:9.", "echo: tea, please")
        assert machine.ran == ["make tea"]


async def test_the_requester_may_allow_a_tool_that_sends(tmp_path: Path) -> None:
    machine = Machine(Risk.NET)
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=ADMINS, tools=(machine.tool,)) as kit,
    ):
        await kit.screen.say(CHAT, "tea, please", sender=ANN)
        await question(kit.screen)
        await kit.screen.say(CHAT, "/approve", sender=ANN)
        await kit.screen.shows(CHAT, "✅ Allowed by memory:1001.", "echo: tea, please")
        assert machine.ran == ["make tea"]
        assert kit.screen.messages(ELSEWHERE) == []


async def test_a_button_answers_the_request_and_disappears(tmp_path: Path) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=ADMINS, tools=(machine.tool,)) as kit,
    ):
        screen = kit.screen
        await screen.say(CHAT, "tea, please", sender=ANN)
        shown, _ = await question(screen, ELSEWHERE)
        allow, deny = shown.buttons
        await screen.press(CHAT, allow.action, sender=ANN)
        await screen.shows(CHAT, "Only an admin can do that.")
        await screen.press(ELSEWHERE, allow.action, sender=CHIEF)
        await screen.shows(CHAT, "echo: tea, please")
        (message,) = await screen.shows(ELSEWHERE, "✅ Allowed by memory:9.")
        assert message.buttons == ()
        await screen.press(ELSEWHERE, deny.action, sender=CHIEF)
        await screen.shows(ELSEWHERE, "This question is already answered.")
        assert machine.ran == ["make tea"]


async def test_the_model_receives_a_denial_and_its_reason(tmp_path: Path) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=ADMINS, tools=(machine.tool,)) as kit,
    ):
        await kit.screen.say(CHAT, "tea, please", sender=ANN)
        _, code = await question(kit.screen)
        await kit.screen.say(ELSEWHERE, f"/deny {code} we have coffee", sender=CHIEF)
        await kit.screen.shows(CHAT, "🚫 Denied by memory:9: we have coffee.", "echo: tea")
        assert await result(kit) == "run has NOT run: denied by memory:9: we have coffee"
    assert machine.ran == []


async def test_a_call_without_an_answer_does_not_run(tmp_path: Path) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=ADMINS, tools=(machine.tool,)) as kit,
    ):
        kit.conversations.approvals._timeout_ms = 200
        await kit.screen.say(CHAT, "tea, please", sender=ANN)
        await kit.screen.shows(CHAT, "⌛ No answer in time", "echo: tea, please")
        await kit.screen.shows(ELSEWHERE, "⌛ No answer in time")
        assert "the question was not answered" in await result(kit)
    assert machine.ran == []


async def test_without_an_admin_the_call_is_refused_at_once(tmp_path: Path) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, tools=(machine.tool,)) as kit,
    ):
        await kit.screen.say(CHAT, "tea, please", sender=ANN)
        await kit.screen.shows(CHAT, "echo: tea, please")
        assert "no admin can be reached" in await result(kit)
        assert len(kit.screen.messages(CHAT)) == 1
    assert machine.ran == []


async def test_a_stop_does_not_wait_for_an_answer_and_closes_the_request(tmp_path: Path) -> None:
    machine = Machine()
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=ADMINS, tools=(machine.tool,)) as kit,
    ):
        screen = kit.screen
        await screen.say(CHAT, "tea, please", sender=ANN)
        shown, code = await question(screen, ELSEWHERE)
        allow, _ = shown.buttons
        clock = asyncio.get_running_loop()
        began = clock.time()
        await screen.say(CHAT, "/stop", sender=ANN)
        await screen.shows(CHAT, "⏹ Stopped.")
        assert clock.time() - began < 1.0
        for chat in (CHAT, ELSEWHERE):
            messages = await screen.shows(chat, "⏹ The task has ended")
            assert not any(each.buttons for each in messages)
        await screen.say(ELSEWHERE, f"/approve {code}", sender=CHIEF)
        await screen.shows(ELSEWHERE, f"No open question has the code {code}")
        await screen.press(ELSEWHERE, allow.action, sender=CHIEF)
        await screen.shows(ELSEWHERE, "This question is already closed.")
        assert not any("may have taken effect" in text for text in screen.screen(CHAT))
    assert machine.ran == []
    async with opened(tmp_path) as store:
        assert await store.approvals.open() == ()


@pytest.mark.parametrize(
    ("again", "told"),
    [
        pytest.param(RUN, "", id="during or after the next request"),
        pytest.param(RUN.replace("H ", "H W.5 "), "📝 Saved.", id="before the next request"),
    ],
)
async def test_a_turn_resumed_after_a_crash_runs_an_allowed_call_once(
    tmp_path: Path, again: str, told: str
) -> None:
    machine, screen = Machine(), a_screen()
    settings = SessionSettings(on_interrupted="resume")
    async with ModelServer(calling(2, again)) as model:
        async with gateway(
            tmp_path, model, screen, admins=ADMINS, tools=(machine.tool,), sessions=settings
        ) as kit:
            await screen.say(CHAT, "tea, please", sender=ANN)
            await question(screen, ELSEWHERE)
            store = kit.runner._store
            assert store
            (asked,) = await store.approvals.open()
            await kit.crash()
        assert machine.ran == []
        async with gateway(
            tmp_path, model, screen, admins=ADMINS, tools=(machine.tool,), sessions=settings
        ) as kit:
            await screen.say(ELSEWHERE, "/approve", sender=CHIEF)
            await screen.shows(ELSEWHERE, "✅ Allowed by memory:9.", told)
            await screen.shows(CHAT, "✅ Allowed by memory:9.", "echo: tea, please")
            assert await kit.asked(3)
            assert machine.ran == ["make tea"]
            assert (
                len([each for each in screen.messages(CHAT) if "May I use **run**" in each.text])
                == 1
            )
    async with opened(tmp_path) as store:
        used = await store.approvals.get(asked.id)
        assert used
        assert used.state is ApprovalState.USED
        assert await store.approvals.open() == ()
        (run,) = await store.turns.tool_runs(used.turn_id)
        assert run.attempt == 2  # the first request was lost with the process that asked


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "restart"])
@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_an_answer_given_while_a_session_is_suspended_counts_after_resume(
    tmp_path: Path, word: str, crash: bool
) -> None:
    machine, screen = Machine(Risk.NET), a_screen()
    async with ModelServer(calling(2)) as model:
        async with gateway(tmp_path, model, screen, tools=(machine.tool,)) as kit:
            await screen.say(CHAT, "tea, please", sender=ANN)
            await question(screen)
            if crash:
                await kit.crash()
        async with gateway(tmp_path, model, screen, tools=(machine.tool,)) as kit:
            messages = await screen.shows(CHAT, "♻️ I was restarted")
            await screen.say(CHAT, f"/{word}", sender=ANN)
            await screen.shows(CHAT, "📝 Saved. Your answer counts when the conversation continues")
            go_on = next(each for each in messages if "I was restarted" in each.text).buttons[0]
            await screen.press(CHAT, go_on.action, sender=ANN)
            await screen.shows(CHAT, "echo: tea, please")
            assert machine.ran == (["make tea"] if word == "approve" else [])
            last = [each for each in await kit.asked(3) if each["role"] == "tool"][-1]
            expected = "make tea: done" if word == "approve" else "denied by memory:1001."
            assert str(last["content"]).endswith(expected)


async def test_with_approval_never_no_request_is_sent(tmp_path: Path) -> None:
    machine = Machine()
    async with ModelServer(calling()) as model:
        settings = Settings(
            gateway=GatewaySettings(drain_seconds=0),
            model=ModelSettings(
                provider="openai", name="scripted", base_url=model.url, api_key=Secret("sk-none")
            ),
            access=AccessSettings(allow=("memory:1001",)),
            tools=ToolSettings(approval="never"),
            platforms={"memory": Nothing()},
        )
        async with gateway(tmp_path, model, settings=settings, tools=(machine.tool,)) as kit:
            await kit.screen.say(CHAT, "tea, please", sender=ANN)
            await kit.screen.shows(CHAT, "echo: tea, please")
            assert machine.ran == ["make tea"]
            assert len(kit.screen.messages(CHAT)) == 1


async def test_the_first_of_two_simultaneous_answers_wins_and_the_other_is_informed(
    tmp_path: Path,
) -> None:
    machine, ben = Machine(), Sender("8", "Ben")
    async with (
        ModelServer(calling()) as model,
        gateway(tmp_path, model, admins=(*ADMINS, "memory:8"), tools=(machine.tool,)) as kit,
    ):
        screen = kit.screen
        await screen.say(CHAT, "tea, please", sender=ANN)
        shown, _ = await question(screen, ELSEWHERE)
        await question(screen, "8")
        allow, deny = shown.buttons
        async with asyncio.TaskGroup() as group:
            group.create_task(screen.press(ELSEWHERE, allow.action, sender=CHIEF))
            group.create_task(screen.press("8", deny.action, sender=ben))
        await screen.shows(CHAT, "echo: tea, please")
        allowed = machine.ran == ["make tea"]
        words = "✅ Allowed by memory:9." if allowed else "🚫 Denied by memory:8."
        for chat in (CHAT, ELSEWHERE, "8"):
            await screen.shows(chat, words)
        await screen.shows("8" if allowed else ELSEWHERE, "This question is already answered.")
