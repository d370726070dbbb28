"""Behaviour specific to Slack: the whole gateway in front of the fake Slack on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.tools.contract import Risk, Tool, ToolContext
from agent.tools.define import tool
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.gateway_kit import slack_gateway
from tests.fakes.slack.kit import slack_server
from tests.fakes.slack.server import SlackServer
from tests.fakes.slack.workspace import BOT_USER, STREAM_LIFE

pytestmark = pytest.mark.quick


@pytest.fixture(params=["socket mode", "signed requests"])
async def slack(request: pytest.FixtureRequest) -> AsyncIterator[SlackServer]:
    """The fake Slack in each of its two modes."""
    async with slack_server(over_http=request.param == "signed requests") as slack:
        yield slack


socket_mode = pytest.mark.parametrize("slack", ["socket mode"], indirect=True)


async def test_a_mention_opens_a_thread_in_which_no_more_mention_is_needed(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_gateway(tmp_path, slack, model):
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
    async with ModelServer(script) as model, slack_gateway(tmp_path, slack, model):
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


def _words(count: int) -> str:
    return "".join(f"word{n} " for n in range(count))


async def test_an_alias_of_a_command_works_without_a_mention(
    tmp_path: Path, slack: SlackServer
) -> None:
    async with ModelServer(talkative) as model, slack_gateway(tmp_path, slack, model):
        root = await slack.say("C1", f"<@{BOT_USER}> hello")
        await slack.until(lambda: "hello" in " ".join(slack.workspace.screen("C1", root)))
        await slack.say("C1", "!reset")  # acts on the person's last thread
        await slack.until(lambda: "🆕 New conversation." in slack.workspace.screen("C1", root))


@pytest.mark.parametrize(
    ("where", "shown_in"),
    [
        pytest.param("in the thread", "thread", id="in the thread"),
        pytest.param("in the channel", "", id="in the channel"),
        pytest.param("by the app's command", "", id="by the app's command"),
    ],
)
async def test_an_answer_for_one_person_is_shown_where_that_person_asked(
    tmp_path: Path, slack: SlackServer, where: str, shown_in: str
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_gateway(tmp_path, slack, model):
        root = await slack.say("C1", f"<@{BOT_USER}> hello")
        await slack.until(lambda: "hello" in " ".join(slack.workspace.screen("C1", root)))
        match where:
            case "in the thread":
                await slack.say("C1", "!whoami", thread=root)
            case "in the channel":
                await slack.say("C1", "!whoami")
            case _:
                await slack.command("C1", "whoami")
        await slack.until(lambda: bool(slack.workspace.ephemeral))
        ((channel, thread, person, text),) = slack.workspace.ephemeral
        assert (channel, thread, person) == ("C1", root if shown_in else "", "U1")
        assert "You are slack:T1/U1 (member)." in text
        await slack.say("D1", "!whoami")
        await slack.until(lambda: "You are" in " ".join(slack.workspace.screen("D1")))
        assert len(slack.workspace.ephemeral) == 1
        assert "You are" not in " ".join(slack.workspace.screen("C1"))
        assert slack.violations() == []


async def test_an_answer_for_one_person_that_is_pending_at_a_restart_stays_private(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model:
        async with slack_gateway(tmp_path, slack, model):
            root = await slack.say("C1", f"<@{BOT_USER}> hello")
            await slack.until(lambda: "hello" in " ".join(slack.workspace.screen("C1", root)))
            slack.refuse_for(20.0, 429, "chat.postEphemeral")
            await slack.say("C1", "!whoami", thread=root)
            await slack.until(lambda: ("chat.postEphemeral", "C1") in slack.calls)
        assert not slack.workspace.ephemeral
        async with slack_gateway(tmp_path, slack, model):
            await slack.until(lambda: bool(slack.workspace.ephemeral), seconds=30.0)
        ((channel, _, person, text),) = slack.workspace.ephemeral
    assert (channel, person) == ("C1", "U1")
    assert "You are slack:T1/U1 (member)." in text
    assert "You are" not in " ".join(slack.workspace.screen("C1", root))


async def test_stop_in_a_thread_ends_the_turn_and_names_only_commands_that_work_on_slack(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_gateway(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> hang")
        await slack.until(lambda: bool(slack.workspace.screen("C1", ts)))
        await slack.command("C1", "stop")  # acts on the person's last thread
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: not any(each.streaming for each in slack.workspace.ours("C1")))
        await slack.say("C1", "!help", thread=ts)
        await slack.until(lambda: "!status" in " ".join(slack.workspace.screen("C1", ts)))
    assert {message.thread for message in slack.workspace.ours("C1")} == {ts}


async def test_messages_sent_during_a_restart_are_answered_once(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model:
        async with slack_gateway(tmp_path, slack, model):
            await slack.say("D1", "one")
            ts = await slack.say("C1", f"<@{BOT_USER}> two")
            await slack.until(lambda: bool(slack.workspace.screen("C1", ts)))
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: one"])
        slack.write("D1", "three")
        slack.write("C1", "four", thread=ts)
        for seconds in (1, 60, 300):
            await slack.pass_time(seconds)
        assert slack.pending == 0  # Slack has given up
        async with slack_gateway(tmp_path, slack, model):
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


async def test_strangers_get_a_code_in_a_dm_and_silence_in_a_room(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    slack.workspace.channels["D2"] = []
    kit = slack_gateway(tmp_path, slack, model := ModelServer(talkative), allow=("slack:T1/*",))
    async with model, kit:
        await slack.say("C1", f"<@{BOT_USER}> hi", user="U2")
        await slack.say("D2", "hi", user="U2")
        await slack.until(lambda: bool(slack.workspace.screen("D2")))
        await slack.say("D1", "hi")  # a full member
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hi"])
    assert slack.workspace.screen("C1") == []


@socket_mode
async def test_two_daemons_on_one_token_answer_each_message_once_and_log_the_conflict(
    tmp_path: Path, slack: SlackServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ModelServer(talkative) as model,
        slack_gateway(tmp_path / "one", slack, model),
        slack_gateway(tmp_path / "two", slack, model),
    ):
        await slack.until(lambda: len(slack.sockets) == 2)
        await slack.say("D1", "hello")
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hello"])
    assert "another program uses the same app token" in caplog.text


async def test_slacks_native_stop_below_a_stream_ends_the_turn(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model, slack_gateway(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> hang")
        await slack.until(lambda: any(each.streaming for each in slack.workspace.ours("C1", ts)))
        (message,) = slack.workspace.ours("C1", ts)
        await slack.stop("C1", message.ts)
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")


async def test_a_stream_left_open_by_a_crash_is_stopped_after_the_restart(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer(talkative) as model:
        async with slack_gateway(tmp_path, slack, model) as kit:
            ts = await slack.say("C1", f"<@{BOT_USER}> hang")
            await slack.until(lambda: any(each.streaming for each in slack.workspace.ours("C1")))
            await kit.crash()
        async with slack_gateway(tmp_path, slack, model):
            await slack.until(lambda: any(each.buttons for each in slack.workspace.ours("C1")))
            await slack.until(
                lambda: not any(each.streaming for each in slack.workspace.ours("C1"))
            )
    assert {message.thread for message in slack.workspace.ours("C1")} == {ts}
    assert slack.workspace.screen("C1", ts)[0].startswith("so far")


# --- agent features ------------------------------------------------------------------------------


class Library:
    """A tool that waits until the test opens the library."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.tool = self._tool()

    def _tool(self) -> Tool:
        @tool(risk=Risk.READ, emoji="📖", label="name")
        async def look(context: ToolContext, name: str) -> str:  # noqa: ARG001 - every tool has one
            """Look something up in a book.

            Args:
                context: Not part of the call.
                name: The book.
            """
            await self.open.wait()
            if name == "bad":
                msg = "There is no such book."
                raise ValueError(msg)
            return "It says so."

        return look


def reading(*names: str, says: str = "") -> Callable[[dict[str, Any]], str]:
    """Return a model that looks into these books one after the other, and then answers."""

    def answer(body: dict[str, Any]) -> str:
        after = body["messages"]
        done = sum(each["role"] == "tool" for each in after)
        if done < len(names):
            call = json.dumps({"name": names[done]})
            said = f"T{json.dumps(says)}" if says and not done else ""
            return f"H {said} C(0,c{done},look,{call}) F tool_calls U D"
        return 'H T"It is " W.2 T"so." F stop U D'

    return answer


async def test_tool_calls_are_cards_of_the_stream_and_the_text_around_them_stays(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    library = Library()
    model = ModelServer(reading("good", "bad", says="Let me see."))
    async with model, slack_gateway(tmp_path, slack, model, tools=(library.tool,)):
        ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
        await slack.until(
            lambda: any("◌ 📖 good" in each.drawn for each in slack.workspace.ours("C1", ts))
        )
        (message,) = slack.workspace.ours("C1", ts)
        assert message.shown == "Let me see."
        assert slack.workspace.sessions["C1", ts] == "processing"
        library.open.set()
        await slack.until(lambda: message.shown.endswith("so.") and not message.streaming)
        assert message.shown.split() == ["Let", "me", "see.", "It", "is", "so."]
        assert list(message.cards.values()) == [("📖 good", "complete"), ("📖 bad", "error")]
    assert slack.workspace.ours("C1") == [message]
    assert slack.workspace.calls("chat.update") == []


async def test_in_a_dm_a_line_below_the_answer_says_which_tool_runs(
    tmp_path: Path, slack: SlackServer
) -> None:
    library = Library()
    model = ModelServer(reading("good", says="Let me see."))
    async with model, slack_gateway(tmp_path, slack, model, tools=(library.tool,)):
        await slack.say("D1", "is it so?")
        await slack.until(lambda: "📖 good" in "".join(slack.workspace.screen("D1")))
        library.open.set()
        await slack.until(lambda: slack.workspace.screen("D1") == ["Let me see.\n\nIt is so."])


async def test_an_answer_whose_stream_expires_is_complete_at_the_end(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    library = Library()
    model = ModelServer(reading("good", says="Let me see."))
    async with model, slack_gateway(tmp_path, slack, model, tools=(library.tool,)):
        ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
        await slack.until(lambda: "Let me see." in slack.workspace.screen("C1", ts))
        slack.workspace.offset += STREAM_LIFE + 1
        library.open.set()
        await slack.until(lambda: slack.workspace.screen("C1", ts) == ["Let me see.\n\nIt is so."])
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")
    assert len(slack.workspace.calls("chat.startStream")) == 1


async def test_slacks_native_stop_works_before_the_answer_begins(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    async with ModelServer("HANG") as model, slack_gateway(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> hello?")
        await slack.until(lambda: slack.workspace.sessions.get(("C1", ts)) == "processing")
        await slack.stop_session("C1", ts)
        await slack.until(lambda: "!resume" in " ".join(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")


async def test_a_stranger_who_presses_stop_ends_the_stream_but_not_the_answer(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.add_channel("C1")
    library = Library()
    model = ModelServer(reading("good", says="Let me see."))
    async with model, slack_gateway(tmp_path, slack, model, tools=(library.tool,)):
        ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
        await slack.until(lambda: "Let me see." in slack.workspace.screen("C1", ts))
        await slack.stop_session("C1", ts, user="U2")
        library.open.set()
        await slack.until(lambda: slack.workspace.screen("C1", ts) == ["Let me see.\n\nIt is so."])
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")


@pytest.mark.parametrize("asks", ["fail", "short"], ids=str)
async def test_the_status_is_cleared_at_the_end_of_a_turn(
    tmp_path: Path, slack: SlackServer, asks: str
) -> None:
    slack.add_channel("C1")
    script = 'W.6 S400"no"' if asks == "fail" else 'H W.6 T"so" F stop U D'
    async with ModelServer(script) as model, slack_gateway(tmp_path, slack, model):
        ts = await slack.say("C1", f"<@{BOT_USER}> {asks}")
        await slack.until(lambda: bool(slack.workspace.statuses.get(("C1", ts))))
        await slack.until(lambda: bool(slack.workspace.screen("C1", ts)))
        await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")
        assert slack.workspace.statuses.get(("C1", ts), ("",))[0] == ""


@pytest.mark.parametrize("cards", [False, True], ids=["nothing shown", "cards shown"])
async def test_the_status_is_cleared_after_a_crash(
    tmp_path: Path, slack: SlackServer, cards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.delivery.outbox.ABANDONED_SECONDS", 0.2)
    slack.add_channel("C1")
    library = Library()
    reads = reading("good")

    def answer(body: dict[str, Any]) -> Any:
        if "hi there" in str(body["messages"][-1]["content"]):
            return talkative(body)
        return reads(body) if cards else "HANG"

    async with ModelServer(answer) as model:
        async with slack_gateway(tmp_path, slack, model, tools=(library.tool,)) as kit:
            ts = await slack.say("C1", f"<@{BOT_USER}> is it so?")
            await slack.until(lambda: slack.workspace.sessions.get(("C1", ts)) == "processing")
            if cards:
                await slack.until(lambda: any(m.cards for m in slack.workspace.ours("C1", ts)))
            await slack.say("D1", "hi there")  # by then the status is stored
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hi there"])
            await kit.crash()
        assert slack.workspace.sessions["C1", ts] == "processing"
        async with slack_gateway(tmp_path, slack, model, tools=(library.tool,)):
            await slack.until(lambda: slack.workspace.sessions["C1", ts] == "active")
            await slack.until(
                lambda: (
                    len(shown := slack.workspace.ours("C1", ts)) == 1
                    and "restarted" in shown[0].shown
                )
            )


async def test_opening_the_app_greets_a_person_once_and_pairs_a_stranger(
    tmp_path: Path, slack: SlackServer
) -> None:
    slack.workspace.channels["D2"] = []
    async with ModelServer(talkative) as model, slack_gateway(tmp_path, slack, model):
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


@socket_mode
async def test_the_http_port_of_the_daemon_accepts_signed_requests(
    tmp_path: Path, slack: SlackServer
) -> None:
    http = {"mode": "http", "app_token": None}
    async with (
        ModelServer(talkative) as model,
        slack_gateway(tmp_path, slack, model, platform=http, served=True) as kit,
    ):
        assert kit.runner.url
        slack.requests_to = f"{kit.runner.url}slack/events"
        await slack.say("D1", "hello")
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hello"])


@socket_mode
async def test_a_wrong_clock_is_reported_and_refused_requests_are_repeated(
    tmp_path: Path, slack: SlackServer
) -> None:
    http = {"mode": "http", "app_token": None}
    async with (
        ModelServer(talkative) as model,
        slack_gateway(tmp_path, slack, model, platform=http, served=True) as kit,
    ):
        slack.requests_to = f"{kit.runner.url}slack/events"
        await slack.say("D1", "hello")
        await slack.until(lambda: slack.workspace.screen("D1") == ["echo: hello"])
        slack.workspace.offset = -3600
        for text in ("one", "two", "three"):
            slack.write("D1", text)
            await slack.pass_time(0)
        (problem,) = await kit.runner.condition.problems()
        assert "the clock of this machine is 60 min ahead of Slack's" in problem
        assert slack.workspace.screen("D1") == ["echo: hello"]
        slack.workspace.offset = 0
        await slack.pass_time(0)
        await slack.until(lambda: len(slack.workspace.screen("D1")) == 4)
        assert await kit.runner.condition.problems() == []


@socket_mode
async def test_an_unacknowledged_event_is_repeated_three_times_and_then_found_in_the_history(
    tmp_path: Path, slack: SlackServer
) -> None:
    """The message is found in the history, because its chat is in use."""
    async with ModelServer(talkative) as model:
        async with slack_gateway(tmp_path, slack, model):
            await slack.say("D1", "one")
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: one"])
        slack.write("D1", "two")  # tried now, and repeated at once
        for seconds, pending in ((59, 1), (2, 1), (298, 1), (2, 0)):
            await slack.pass_time(seconds)
            assert slack.pending == pending, seconds
        async with slack_gateway(tmp_path, slack, model):
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: one", "echo: two"])
