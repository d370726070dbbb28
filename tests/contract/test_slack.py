"""What is Slack's alone, seen through its real client and a Slack of ours on loopback."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.house import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.house import slack_house
from tests.fakes.slack.kit import slack_server
from tests.fakes.slack.server import SlackServer
from tests.fakes.slack.workspace import BOT_USER


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with slack_server() as slack:
        yield slack


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


def _words(count: int) -> str:
    return "".join(f"word{n} " for n in range(count))


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
    assert "another program uses it too" in caplog.text


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


async def test_an_event_that_nobody_acknowledges_comes_three_more_times_and_is_forgotten(
    tmp_path: Path, slack: SlackServer
) -> None:
    """Ours is found all the same: what was said in a place in use is read again."""
    async with ModelServer(talkative) as model:
        async with slack_house(tmp_path, slack, model):
            await slack.say("D1", "one")
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: one"])
        slack.write("D1", "two")  # tried now, and at once again
        for seconds, pending in ((59, 1), (2, 1), (298, 1), (2, 0)):
            await slack.pass_time(seconds)
            assert slack.pending == pending, seconds
        async with slack_house(tmp_path, slack, model):
            await slack.until(lambda: slack.workspace.screen("D1") == ["echo: one", "echo: two"])
