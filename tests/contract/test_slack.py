"""What the gateway relies on, seen through Slack's real client and a Slack of ours on loopback."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from platforms.core.contract import Accepted
from tests.contract import test_adapters as body
from tests.contract.adapter_kit import Stage
from tests.e2e.house import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.house import slack_house
from tests.fakes.slack.kit import adapter_for, slack_server
from tests.fakes.slack.server import Fault, SlackServer, rate_limited
from tests.fakes.slack.workspace import BOT_USER, STREAM_LIFE, TEAM


@contextlib.asynccontextmanager
async def stage_in_a_dm() -> AsyncIterator[Stage]:
    """A DM with the app."""
    async with SlackServer() as slack:

        async def say(text: str) -> Accepted:
            await slack.say("D1", text)
            return Accepted.STORED

        yield Stage(
            adapter_for(slack, account="second"),
            f"{TEAM}/D1",
            lambda: slack.workspace.screen("D1"),
            say,
            slack.violations,
        )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with stage_in_a_dm() as stage:
        yield stage
        assert stage.violations() == []


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with slack_server() as slack:
        yield slack


for _name in dir(body):
    if _name.startswith("test_"):
        globals()[_name] = getattr(body, _name)


# --- the whole gateway on Slack ------------------------------------------------------------------


async def test_a_message_in_a_dm_is_answered_there(tmp_path: Path, slack: SlackServer) -> None:
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        await slack.say("D1", "Hello")
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: Hello"])


async def test_a_mention_opens_a_thread_in_which_no_more_mention_is_needed(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        await slack.say("C1", "what a day")
        ts = await slack.say("C1", f"<@{BOT_USER}> hi")
        await slack.until(lambda: len(slack.workspace.screen("C1", ts)) == 1)
        await slack.say("C1", "and again", thread=ts)
        await slack.until(lambda: len(slack.workspace.screen("C1", ts)) == 2)
        first, second = slack.workspace.screen("C1", ts)
        assert first.endswith("hi")
        assert second.endswith("and again")
        assert len(slack.workspace.ours("C1")) == 2
        (asked,) = [
            each["content"] for each in model.requests[0].body["messages"] if each["role"] == "user"
        ]
        assert "Ada" in asked
        assert "what a day" in asked


async def test_a_long_answer_streams_in_a_thread_and_is_closed(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    script = "H " + " ".join(f'T"word{n} " W.2' for n in range(12)) + ' T"end" F stop U D'
    async with ModelServer(script) as model, slack_house(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> tell me")
        await slack.until(
            lambda: (
                any(text.endswith("end") for text in slack.workspace.screen("C1", ts))
                and not any(each.streaming for each in slack.workspace.ours("C1"))
            )
        )
        whole = "".join(f"word{n} " for n in range(12)) + "end"
        assert slack.workspace.screen("C1", ts) == [whole]
    assert slack.workspace.calls("chat.startStream")
    assert slack.workspace.calls("chat.appendStream")
    assert len(slack.workspace.calls("chat.stopStream")) == 1


async def test_an_answer_in_a_dm_is_written_before_their_eyes(
    tmp_path: Path, slack: SlackServer
) -> None:
    script = "H " + " ".join(f'T"word{n} " W.2' for n in range(12)) + ' T"end" F stop U D'
    async with ModelServer(script) as model, slack_house(tmp_path, slack, model):
        await slack.say("D1", "tell me")
        await slack.until(lambda: slack.workspace.screen("D1") == [f"{_words(12)}end"])
    assert len(slack.workspace.calls("chat.postMessage")) == 1
    assert len(slack.workspace.calls("chat.update")) >= 2


def _words(count: int) -> str:
    return "".join(f"word{n} " for n in range(count))


async def test_a_long_answer_is_several_messages_that_each_look_right(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    code = "\n".join(f"line_{n} = {n}" for n in range(1500))
    text = f"# Title\n\n```python\n{code}\n```\n\nDone."
    script = f"H T{json.dumps(text)} F stop U D"
    async with ModelServer(script) as model, slack_house(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> code please")
        await slack.until(
            lambda: (
                any("Done." in text for text in slack.workspace.screen("C1", ts))
                and not any(each.streaming for each in slack.workspace.ours("C1"))
            )
        )
        shown = slack.workspace.screen("C1", ts)
    assert len(shown) == len(text) // 11_000 + 1
    assert all(each.count("```") % 2 == 0 for each in shown)
    assert all(f"line_{n} = {n}" in "\n".join(shown) for n in range(1500))


@pytest.mark.parametrize("drop", ["before", "after"])
@pytest.mark.parametrize("place", ["D1", "C1"])
async def test_an_answer_whose_post_was_cut_is_there_exactly_once(
    tmp_path: Path, slack: SlackServer, place: str, drop: str
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        for method in ("chat.postMessage", "chat.startStream"):
            slack.fail(method, Fault(drop=drop))
        await slack.say(place, f"<@{BOT_USER}> hello")
        await slack.until(
            lambda: any(text.endswith("hello") for text in slack.workspace.screen(place))
        )
        await slack.until(lambda: len(slack.workspace.log) > 0)
    assert len(slack.workspace.screen(place)) == 1


@pytest.mark.parametrize(
    "method", ["chat.postMessage", "chat.update", "chat.startStream", "chat.stopStream"]
)
async def test_a_429_on_any_method_only_delays_the_answer(
    tmp_path: Path, slack: SlackServer, method: str
) -> None:
    slack.add_channel("C1")
    script = "H " + " ".join(f'T"word{n} " W.1' for n in range(8)) + ' T"end" F stop U D'
    async with ModelServer(script, script) as model, slack_house(tmp_path, slack, model):
        slack.fail(method, rate_limited(1))
        for place in ("D1", "C1"):
            await slack.say(place, f"<@{BOT_USER}> tell me")
        await slack.until(
            lambda: (
                all(slack.workspace.screen(place) == [f"{_words(8)}end"] for place in ("D1", "C1"))
                and not any(each.streaming for each in slack.workspace.ours("C1"))
            )
        )


async def test_another_word_for_a_command_is_known_where_nobody_called_us(
    tmp_path: Path, slack: SlackServer
) -> None:
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        root = await slack.say("C1", f"<@{BOT_USER}> hello")
        await slack.until(lambda: "hello" in " ".join(slack.workspace.screen("C1", root)))
        await slack.say("C1", "!reset")  # acts on the thread the person was in
        await slack.until(lambda: "🆕 New conversation." in slack.workspace.screen("C1", root))


async def test_stop_in_a_thread_ends_the_turn_and_names_no_command_that_slack_lacks(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> hang")
        await slack.until(lambda: bool(slack.workspace.screen("C1", ts)))
        await slack.command("C1", "stop")  # acts on the thread the person was in
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: not any(each.streaming for each in slack.workspace.ours("C1")))
        await slack.say("C1", "!help", thread=ts)
        await slack.until(lambda: "!status" in " ".join(slack.workspace.screen("C1", ts)))
    assert {message.thread for message in slack.workspace.ours("C1")} == {ts}


async def test_a_button_of_a_notice_works_after_a_restart(
    tmp_path: Path, slack: SlackServer
) -> None:
    async with ModelServer(talkative) as model:
        async with slack_house(tmp_path, slack, model):
            await slack.say("D1", "hang")
            await _shows(slack, "D1", 1)
        async with slack_house(tmp_path, slack, model):
            await slack.until(lambda: any(each.buttons for each in slack.workspace.ours("D1")))
            (message,) = (each for each in slack.workspace.ours("D1") if each.buttons)
            labels = [button["text"]["text"] for button in message.buttons]
            asked = len(model.requests)
            await slack.press("D1", message.ts, labels[-1])
            async with asyncio.timeout(8):
                await model.request(asked + 1)


async def test_after_a_restart_everything_said_meanwhile_is_answered_once(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model:
        async with slack_house(tmp_path, slack, model):
            await slack.say("D1", "one")
            ts = await slack.say("C1", f"<@{BOT_USER}> two")
            await slack.until(lambda: bool(slack.workspace.screen("C1", ts)))
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: one"])
        slack.write("D1", "three")
        slack.write("C1", "four", thread=ts)
        for seconds in (1, 60, 300):
            await slack.pass_time(seconds)
        assert slack.pending == 0  # forgotten
        async with slack_house(tmp_path, slack, model):
            await slack.until(
                lambda: (
                    len(slack.workspace.screen("D1")) == 2
                    and len(slack.workspace.screen("C1", ts)) == 2
                )
            )
            await slack.say("D1", "five")
            await slack.until(lambda: len(slack.workspace.screen("D1")) == 3)
    assert slack.workspace.screen("D1") == ["echo: one", "echo: three", "echo: five"]
    assert slack.workspace.screen("C1", ts)[1].endswith("four")


async def test_a_cut_connection_loses_and_doubles_nothing(
    tmp_path: Path, slack: SlackServer
) -> None:
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        await slack.say("D1", "0")
        for number in range(1, 4):
            await _shows(slack, "D1", number)
            slack.cut()
            slack.write("D1", f"{number}")  # in the gap: Slack tries again after a minute
            await slack.connected.wait()
        await _shows(slack, "D1", 4)
        await slack.pass_time(61)
        await slack.settle()
    assert slack.workspace.screen("D1") == [f"echo: {number}" for number in range(4)]


async def _shows(slack: SlackServer, channel: str, count: int) -> None:
    await slack.until(lambda: len(slack.workspace.screen(channel)) >= count)


async def test_strangers_get_a_code_in_a_dm_and_silence_in_a_room(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    slack.workspace.channels["D2"] = []
    house = slack_house(tmp_path, slack, model := ModelServer(talkative), allow=("slack:T1/*",))
    async with model, house:
        await slack.say("C1", f"<@{BOT_USER}> hi", user="U2")
        await slack.say("D2", "hi", user="U2")
        await slack.until(lambda: bool(slack.workspace.screen("D2")))
        await slack.say("D1", "hi")  # a full member
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hi"])
    assert slack.workspace.screen("C1") == []


async def test_two_daemons_on_one_token_answer_each_message_once_and_it_is_said(
    tmp_path: Path, slack: SlackServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ModelServer(talkative) as model,
        slack_house(tmp_path / "one", slack, model),
        slack_house(tmp_path / "two", slack, model),
    ):
        await slack.until(lambda: len(slack.sockets) == 2)
        await slack.say("D1", "hello")
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hello"])
    assert "another program uses the same app token" in caplog.text


async def test_an_edited_message_that_waits_is_answered_as_it_is_now(
    tmp_path: Path, slack: SlackServer
) -> None:
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        await slack.say("D1", "hang")
        await slack.until(lambda: bool(slack.workspace.screen("D1")))
        ts = await slack.say("D1", "wrogn")
        await slack.change("D1", ts, "right")
        gone = await slack.say("D1", "never mind")
        await slack.erase("D1", gone)
        await slack.command("D1", "stop")
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("D1")))
        await slack.command("D1", "resume")
        await slack.until(lambda: "echo: right" in slack.workspace.screen("D1"))
    assert "never mind" not in " ".join(slack.workspace.screen("D1"))


async def test_slacks_own_stop_below_a_stream_ends_the_turn(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> hang")
        await slack.until(lambda: any(each.streaming for each in slack.workspace.ours("C1", ts)))
        (message,) = slack.workspace.ours("C1", ts)
        await slack.stop("C1", message.ts)
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")


async def test_a_stream_that_a_crash_left_open_is_closed_after_the_restart(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model:
        async with slack_house(tmp_path, slack, model) as house:
            ts = await slack.say("C1", f"<@{BOT_USER}> hang")
            await slack.until(lambda: any(each.streaming for each in slack.workspace.ours("C1")))
            await house.crash()
        async with slack_house(tmp_path, slack, model):
            await slack.until(lambda: any(each.buttons for each in slack.workspace.ours("C1")))
            await slack.until(
                lambda: not any(each.streaming for each in slack.workspace.ours("C1"))
            )
    assert {message.thread for message in slack.workspace.ours("C1")} == {ts}
    assert slack.workspace.screen("C1", ts)[0].startswith("so far")


# --- as an agent ---------------------------------------------------------------------------------


class Shelf:
    """A tool that reads for as long as a test wants."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.tool = self._tool()

    def _tool(self) -> Tool:
        @tool(risk=Risk.READ, emoji="📖", label="name")
        async def look(context: ToolContext, name: str) -> str:  # noqa: ARG001 - every tool has one
            """Look into a book.

            Args:
                context: Not part of the call.
                name: Which.
            """
            await self.open.wait()
            if name == "bad":
                msg = "There is no such book."
                raise ValueError(msg)
            return "It says so."

        return look


def reading(*names: str, says: str = "") -> Callable[[dict[str, Any]], str]:
    """A model that looks into books, one after the other, then says what it found."""

    def answer(body: dict[str, Any]) -> str:
        after = body["messages"]
        done = sum(each["role"] == "tool" for each in after)
        if done < len(names):
            call = json.dumps({"name": names[done]})
            said = f"T{json.dumps(says)}" if says and not done else ""
            return f"H {said} C(0,c{done},look,{call}) F tool_calls U D"
        return 'H T"It is " W.2 T"so." F stop U D'

    return answer


async def test_tool_calls_are_cards_of_the_stream_and_the_words_around_them_stay(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    shelf = Shelf()
    model = ModelServer(reading("good", "bad", says="Let me see."))
    async with model, slack_house(tmp_path, slack, model, tools=(shelf.tool,)):
        ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
        await slack.until(
            lambda: any("◌ 📖 good" in each.drawn for each in slack.workspace.ours("C1", ts))
        )
        (message,) = slack.workspace.ours("C1", ts)
        assert message.shown == "Let me see."
        assert slack.workspace.sessions["C1", ts] == "processing"
        shelf.open.set()
        await slack.until(lambda: message.shown.endswith("so.") and not message.streaming)
        assert message.shown.split() == ["Let", "me", "see.", "It", "is", "so."]
        assert list(message.cards.values()) == [("📖 good", "complete"), ("📖 bad", "error")]
    assert slack.workspace.ours("C1") == [message]
    assert slack.workspace.calls("chat.update") == []


async def test_in_a_dm_a_line_below_the_answer_says_which_tool_runs(
    tmp_path: Path, slack: SlackServer
) -> None:
    shelf = Shelf()
    model = ModelServer(reading("good", says="Let me see."))
    async with model, slack_house(tmp_path, slack, model, tools=(shelf.tool,)):
        await slack.say("D1", "is it so?")
        await slack.until(lambda: "📖 good" in "".join(slack.workspace.screen("D1")))
        shelf.open.set()
        await slack.until(lambda: slack.workspace.screen("D1") == ["Let me see.\n\nIt is so."])


async def test_a_stream_that_expires_in_the_middle_of_an_answer_is_whole_in_the_end(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    shelf = Shelf()
    model = ModelServer(reading("good", says="Let me see."))
    async with model, slack_house(tmp_path, slack, model, tools=(shelf.tool,)):
        ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
        await slack.until(lambda: "Let me see." in slack.workspace.screen("C1", ts))
        slack.workspace.offset += STREAM_LIFE + 1
        shelf.open.set()
        await slack.until(lambda: slack.workspace.screen("C1", ts) == ["Let me see.\n\nIt is so."])
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")
    assert len(slack.workspace.calls("chat.startStream")) == 1


async def test_slacks_own_stop_works_before_there_is_a_word_of_an_answer(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer("HANG") as model, slack_house(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> hello?")
        await slack.until(lambda: slack.workspace.sessions.get(("C1", ts)) == "processing")
        await slack.stop_session("C1", ts)
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")


async def test_a_stranger_who_presses_stop_ends_the_stream_but_not_the_answer(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    shelf = Shelf()
    model = ModelServer(reading("good", says="Let me see."))
    async with model, slack_house(tmp_path, slack, model, tools=(shelf.tool,)):
        ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
        await slack.until(lambda: "Let me see." in slack.workspace.screen("C1", ts))
        await slack.stop_session("C1", ts, user="U2")
        shelf.open.set()
        await slack.until(lambda: slack.workspace.screen("C1", ts) == ["Let me see.\n\nIt is so."])
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")


@pytest.mark.parametrize("asks", ["fail", "short"], ids=str)
async def test_when_a_turn_is_over_nothing_says_that_we_are_at_work(
    tmp_path: Path, slack: SlackServer, asks: str
) -> None:
    slack.add_channel("C1")
    script = 'W.6 S400"no"' if asks == "fail" else 'H W.6 T"so" F stop U D'
    async with ModelServer(script) as model, slack_house(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> {asks}")
        await slack.until(lambda: bool(slack.workspace.statuses.get(("C1", ts))))
        await slack.until(lambda: bool(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")
        assert slack.workspace.statuses.get(("C1", ts), ("",))[0] == ""


@pytest.mark.parametrize("cards", [False, True], ids=["nothing shown", "cards shown"])
async def test_after_a_crash_nothing_says_that_we_are_still_at_work(
    tmp_path: Path, slack: SlackServer, cards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.delivery.outbox.ABANDONED_AFTER", 0.2)
    slack.add_channel("C1")
    shelf = Shelf()
    reads = reading("good")

    def answer(body: dict[str, Any]) -> Any:
        if "hi there" in str(body["messages"][-1]["content"]):
            return talkative(body)
        return reads(body) if cards else "HANG"

    async with ModelServer(answer) as model:
        async with slack_house(tmp_path, slack, model, tools=(shelf.tool,)) as house:
            ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
            await slack.until(lambda: slack.workspace.sessions.get(("C1", ts)) == "processing")
            if cards:
                await slack.until(lambda: any(m.cards for m in slack.workspace.ours("C1", ts)))
            await slack.say("D1", "hi there")  # meanwhile it is written down what is shown
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hi there"])
            await house.crash()
        assert slack.workspace.sessions["C1", ts] == "processing"
        async with slack_house(tmp_path, slack, model, tools=(shelf.tool,)):
            await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")
            await slack.until(
                lambda: (
                    len(shown := slack.workspace.ours("C1", ts)) == 1
                    and "restarted" in shown[0].shown
                )
            )


async def test_who_opens_the_app_is_greeted_once_and_a_stranger_is_paired(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.workspace.channels["D2"] = []
    async with ModelServer(talkative) as model, slack_house(tmp_path, slack, model):
        for _ in range(2):
            await slack.open_home("D1")
            await slack.open_home("D2", user="U2")
        await slack.until(
            lambda: bool(slack.workspace.screen("D1") and slack.workspace.screen("D2"))
        )
        await slack.say("D1", "hi")
        await slack.until(lambda: "echo: hi" in slack.workspace.screen("D1"))
    greeting, answer = slack.workspace.screen("D1")
    assert "!help" in greeting
    assert answer == "echo: hi"
    (code,) = slack.workspace.screen("D2")
    assert "with this code" in code
    assert set(slack.workspace.prompts) == {("D1", "")}


async def test_the_daemons_own_port_takes_signed_requests(
    tmp_path: Path, slack: SlackServer
) -> None:
    http = {"mode": "http", "app_token": None}
    async with (
        ModelServer(talkative) as model,
        slack_house(tmp_path, slack, model, platform=http, served=True) as house,
    ):
        assert house.runner.url
        slack.requests_to = f"{house.runner.url}slack/events"
        await slack.say("D1", "hello")
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hello"])
