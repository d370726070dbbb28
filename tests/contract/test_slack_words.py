"""Texts shown on Slack name commands as `!stop`, because `/stop` does not work there."""

import json
import re
from pathlib import Path

import pytest

from gateway.access.policy import Role
from gateway.commands.registry import COMMANDS
from gateway.notices.catalogue import BUTTONS, CATALOGUE, render_notice
from gateway.turns.status_line import StatusLine
from platforms.slack.capabilities import CAPABILITIES, DM_CAPABILITIES
from sessions.values.notices import NoticeId
from tests.e2e.gateway_kit import talkative
from tests.fakes.model_server import ModelServer
from tests.fakes.slack.gateway_kit import slack_gateway
from tests.fakes.slack.server import SlackServer
from tests.fakes.slack.workspace import BOT_USER

WORDS = "|".join(sorted(COMMANDS.words))
NOT_HERE = re.compile(rf"(?<![\w/.])/(?:{WORDS})\b")
"""A command in the form of other platforms; a URL or a path may contain the same words."""

FIELD = re.compile(r"\{(\w+)[|}]")
CONDITIONS = {NoticeId.TURN_FAILED: {"operator_told": "yes", "too_long": "yes"}}
"""Conditions of optional parts that are not fields of the text."""


def filled(notice: NoticeId, number: int) -> dict[str, str | int]:
    """Return values for all fields of a notice, so that it includes every optional part."""
    names = [name for name in FIELD.findall(CATALOGUE[notice]) if name != "c"]
    fields: dict[str, str | int] = dict.fromkeys(names, number)
    return fields | CONDITIONS.get(notice, {})


@pytest.mark.parametrize("notice", CATALOGUE)
def test_every_notice_names_commands_in_the_form_that_works_on_slack(
    notice: NoticeId,
) -> None:
    form = CAPABILITIES.command
    assert DM_CAPABILITIES.command == form
    for number in (1, 2):
        text = render_notice(notice, filled(notice, number), form)
        assert "{" not in text
        assert "[+" not in text
        assert not NOT_HERE.search(text), text
        for word in re.findall(r"\{c:(\w+)\}", CATALOGUE[notice]):
            assert word in COMMANDS.words
            assert f"!{word}" in text
        said = StatusLine(form).show_notice(notice, filled(notice, number))
        assert not NOT_HERE.search(said)
    for label, _ in BUTTONS.get(notice, ()):
        assert not NOT_HERE.search(label)


@pytest.mark.parametrize("role", Role)
def test_the_list_of_commands_uses_the_form_that_works_on_slack(role: Role) -> None:
    text = COMMANDS.help(role, CAPABILITIES.command)
    assert "!help" in text
    assert not NOT_HERE.search(text)


def test_the_check_finds_a_command_in_another_form() -> None:
    assert NOT_HERE.search("Say /retry now")
    assert NOT_HERE.search("(/stop)")
    assert NOT_HERE.search(render_notice(NoticeId.STOPPED, {}, "/{word}"))
    assert not NOT_HERE.search("see https://example.org/stop and a/new/path")


def written(slack: SlackServer) -> list[str]:
    """Return every text ever sent to Slack, including edited and deleted ones."""
    return [
        json.dumps(arguments, ensure_ascii=False)
        for method, arguments in slack.workspace.log
        if method.startswith(("chat.", "assistant.", "agents.", "files."))
    ]


ADMINS = ("U1", "U4", "U5", "U6", "U7", "U8")
OWNERS = tuple(f"slack:T1/{user}" for user in ADMINS)
EVERYTHING = (
    "!help",
    "!whoami",
    "!status",
    "!sessions",
    "!model",
    "!model nobody",
    "!reasoning",
    "!reasoning a lot",
    "!usage",
    "!compact",
    "!queue",
    "!steer",
    "!btw",
    "!approve",
    "!deny ABCD no",
    "!pair",
    "!pair list",
    "!undo",
    "!new",
    "!resume",
    "!retry",
    "!stop",
    "!stop all",
    "!start",
)


async def test_no_text_shown_on_slack_names_a_command_in_another_form(
    tmp_path: Path,
) -> None:
    async with SlackServer() as slack, ModelServer(talkative) as model:
        slack.workspace.add_user("U3", "Eve")
        for user in ADMINS[1:]:
            slack.workspace.add_user(user, user)
        slack.add_channel("C1")

        async def shows(channel: str, *words: str) -> None:
            await slack.until(
                lambda: all(
                    any(each in text for text in slack.workspace.screen(channel)) for each in words
                )
            )

        async with slack_gateway(tmp_path, slack, model, admins=OWNERS):
            await slack.command("D1", "retri")
            await shows("D1", "I don't know !retri. Did you mean !retry?")
            await slack.say("D1", "hang there")
            await shows("D1", "so far")
            await slack.say("D1", "and then")
            await shows("D1", "1 message is queued")
            await slack.say("D1", "!stop")
            await shows("D1", "⏹ Stopped.", "!resume")
            await slack.say("D1", "fail now")
            await shows("D1", "🆕 New conversation", "❌ Sorry, I couldn't finish this")
            await slack.say("D3", "hello", user="U3")
            await shows("D3", "I don't know you yet")
            thread = await slack.say("C1", f"<@{BOT_USER}> hang here")
            await shows("C1", "so far")
        async with slack_gateway(tmp_path, slack, model, admins=OWNERS):
            await shows("C1", "♻️ I was restarted", "!resume continues this one")
            for number, word in enumerate(EVERYTHING):  # a DM allows one post a second
                user = ADMINS[number % len(ADMINS)]
                await slack.say(f"D{user[1:]}", word, user=user)
            await slack.until(
                lambda: all(
                    len(slack.workspace.ours(f"D{user[1:]}")) >= len(EVERYTHING) // len(ADMINS)
                    for user in ADMINS
                )
            )
            await slack.say("C1", "!help", thread=thread)
            await shows("C1", "!status")
        texts = written(slack)
        assert len(texts) > len(EVERYTHING)
        assert [text for text in texts if NOT_HERE.search(text)] == []
        assert slack.violations() == []
