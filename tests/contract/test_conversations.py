"""The whole gateway, by the same tests on every platform."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.tools.contract import Risk, ToolContext
from agent.tools.define import tool
from platforms.core.contract import Capabilities, Live, capabilities_in
from tests.contract.adapter_kit import SERVICES, Opened
from tests.contract.gateway_kit import SLOWLY, PlatformGateway, answering, running_gateway
from tests.contract.services import discord
from tests.contract.services.contract import Place, Seen, Service
from tests.fakes.model_script import Script, calls, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick


def _discord_without_pacing() -> AbstractAsyncContextManager[Service]:
    return discord.opened(pace=(1_000, 1.0))


OPENED: dict[str, Opened] = {**SERVICES, "discord": _discord_without_pacing}
"""Like `SERVICES`, with a Discord that enforces no pace."""


@pytest.fixture(params=OPENED)
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    async with OPENED[request.param]() as service:
        yield service
        assert service.violations() == []


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(answering) as model:
        yield model


def places(service: Service) -> list[Place]:
    """Return the private chat, and a room if the platform has rooms."""
    return [service.direct, *([service.room] if service.room else [])]


def can(home: PlatformGateway, service: Service, place: Place) -> Capabilities:
    return capabilities_in(home.adapter, service.address(place))


async def user_texts(model: ModelServer, number: int) -> list[str]:
    """Return the user messages in the model's n-th request."""
    async with asyncio.timeout(8):
        request = await model.request(number)
    return [str(each["content"]) for each in request.body["messages"] if each["role"] == "user"]


# --- messages and answers ------------------------------------------------------------------------


async def test_addressed_messages_are_answered_once_and_others_never(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model):
        for place in places(service):
            if place == service.room:
                await service.say(place, "not for you", aside=True)
            await service.say(place, "hello")
            await service.shows(place, "hello")
            await service.say(place, "again")
            await service.shows(place, "hello", "again")
        await service.settled()
        await service.rests()
    for place in places(service):
        first, second = service.screen(place)
        assert first.endswith("hello")
        assert second.endswith("again")
    assert len(model.requests) == 2 * len(places(service))


async def test_in_a_room_the_answer_is_visibly_a_reply(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model) as home:
        for place in places(service):
            for text, answer in (("tell me", SLOWLY), ("short", "short")):
                said = await service.say(place, text)
                await service.shows(place, answer)
                await service.rests()
                seen = service.seen(place)[-1]
                # On Slack replies are in the thread.
                shown = can(home, service, place).reply or service.name == "slack"
                assert seen.reply_to == (said if place == service.room and shown else ""), text


async def test_in_a_private_chat_answers_to_queued_messages_are_replies(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model) as home:
        await service.say(service.direct, "tell me")
        await _wait_for_beginning(service, service.direct, "one two")
        queued = [await service.say(service.direct, text) for text in ("second", "fail")]
        await service.shows(service.direct, SLOWLY, "echo: second", "couldn't finish")
        await service.rests()
        first, second, failed = (
            next(seen.reply_to for seen in service.seen(service.direct) if part in seen.text)
            for part in (SLOWLY, "echo: second", "couldn't finish")
        )
        shown = can(home, service, service.direct).reply
        assert (first, [second, failed]) == ("", queued if shown else ["", ""])


async def _wait_for_beginning(service: Service, place: Place, text: str) -> None:
    """Wait until a text with this beginning is visible, a preview included."""
    await service.until(lambda: any(text in each for each in service.screen(place)))


async def test_the_quoted_message_reaches_the_model(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model):
        await service.say(service.direct, "the sky is green")
        await service.shows(service.direct, "echo: the sky is green")
        answered = service.seen(service.direct)[-1].id
        await service.say(service.direct, "is it?", answers=answered if service.quotes else "")
        sent = "\n".join(await user_texts(model, 2))
        assert "is it?" in sent
        if service.quotes:
            quoted = sent.rpartition("is it?")[0]
            assert "echo: the sky is green" in quoted
        else:  # the whole conversation is in the request anyway
            assert "the sky is green" in sent
        await service.until(
            lambda: any("is it?" in text for text in service.screen(service.direct))
        )
        await service.rests()


async def test_an_answer_grows_visibly_and_is_finally_shown_once(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model) as home:
        for place in places(service):
            states: list[Seen] = []
            await service.say(place, "tell me")
            await service.until(_watch(service, place, states))
            grown = [each.text for each in states]
            assert grown == sorted(grown, key=len)
            assert all(SLOWLY.startswith(text.split("\n")[0].strip()) for text in grown), grown
            assert grown[-1].strip() == SLOWLY
            assert can(home, service, place).live is Live.NONE or len(set(grown)) >= 3, grown
        await service.rests()
    for place in places(service):
        (seen,) = service.seen(place)
        assert seen.text == SLOWLY
        assert not seen.passing
        assert seen.buttons == ()


def _watch(service: Service, place: Place, states: list[Seen]) -> Callable[[], bool]:
    """Record every state of an answer; return a function that is true once the answer is final."""

    def look() -> bool:
        seen = service.seen(place)
        if seen and seen[-1].text and (not states or states[-1] != seen[-1]):
            states.append(seen[-1])
        done = bool(seen) and seen[-1].text.strip() == SLOWLY and not seen[-1].passing
        return done and not service.violations()

    return look


PARTS = 32


def _part(part: int, lines: int, rows: int) -> str:
    code = "\n".join(f"value_{part}_{line} = [{line}]  # w{part}x{line}" for line in range(lines))
    table = "\n".join(f"| cell{part}y{row} | `{row}` |" for row in range(rows))
    return (
        f"## Part{part}\n\nSome **words** of part {part}, and `code{part}`.\n\n"
        f"```python\n{code}\n```\n\n| name | value |\n|---|---|\n{table}"
    )


LONG = "\n\n".join(
    # The first part is longer than a message on any platform.
    _part(part, *((460, 120) if part == 0 else (14, 3)))
    for part in range(PARTS)
)
TOKENS = re.compile(r"Part\d+|w\d+x\d+|cell\d+y\d+|code\d+")


def _shows_text_or_file(service: Service, place: Place, last: str) -> bool:
    return any(last in (*each.text.split(), each.file) for each in service.seen(place)) or any(
        last in text for text in service.screen(place)
    )


@pytest.mark.timeout(40)
async def test_thirty_thousand_characters_with_code_and_tables_arrive_complete(
    tmp_path: Path, service: Service
) -> None:
    assert len(LONG) > 30_000
    wanted = TOKENS.findall(LONG)
    async with (
        ModelServer(lambda _: words(LONG)) as model,
        running_gateway(tmp_path, service, model) as home,
    ):
        for place in places(service):
            await service.say(place, "everything, please")
            here = can(home, service, place)
            in_file = bool(here.messages) and len(LONG) > here.messages * here.text_limit
            last = "answer.md" if in_file else f"cell{PARTS - 1}y2"
            await service.until(partial(_shows_text_or_file, service, place, last))
            await service.rests()
            shown = service.screen(place)
            tokens = TOKENS.findall("\n".join(shown))
            assert tokens == wanted[: len(tokens)], place
            assert all(text.count("```") % 2 == 0 for text in shown)
            if in_file:
                assert service.seen(place)[-1].content.decode() == LONG
                assert len(shown) == here.messages + 2  # the note and the file
                continue
            assert tokens == wanted, place
            assert len(shown) >= len(LONG) / 33_000
            assert len(shown) <= len(LONG) / min(here.text_limit, 30_000) * 1.6 + 1


_PATH = re.compile(r"received/[\w./-]+?\.csv")


async def test_a_received_file_can_be_sent_back(tmp_path: Path, service: Service) -> None:
    content = b"name,value\n" + bytes(range(256)) * 400

    def model_of(body: dict[str, Any]) -> Script:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return words("there it is")
        path = _PATH.search(json.dumps(last["content"]))
        assert path, last
        return calls(("c1", "send_file", json.dumps({"path": path[0], "caption": "Your table"})))

    if not service.sends_files:
        return
    async with ModelServer(model_of) as model, running_gateway(tmp_path, service, model):
        for place in places(service):
            given = ("table.csv", content, "text/csv")
            await service.say(place, "give it back", file=given)
            await service.shows(place, "Your table", "there it is")
            (sent,) = (each for each in service.seen(place) if each.file)
            assert (sent.file, sent.text) == ("table.csv", "Your table")
            assert sent.content == content
        await service.rests()


async def test_lost_access_stops_the_running_turns(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    if not service.allow:
        return  # the only person here is the owner, who cannot lose access
    async with running_gateway(tmp_path, service, model) as home:
        for place in places(service):
            await service.say(place, "hang")
            await _wait_for_beginning(service, place, "so far")
        await service.say(service.direct, "next")
        await service.shows(service.direct, "1 message is queued")
        await home.take_access()
        for place in places(service):
            await service.shows(place, "I stopped working on “hang”.")
        await service.shows(service.direct, "1 queued message was dropped.")
        await service.say(service.direct, "again")
        await service.settled()
        await service.rests()
    assert len(model.requests) == len(places(service))


# --- edits and commands --------------------------------------------------------------------------


async def test_a_waiting_message_is_answered_in_its_edited_form(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    here = service.direct
    async with running_gateway(tmp_path, service, model):
        await service.say(here, "hang")
        async with asyncio.timeout(8):
            await model.request(1)
        wrong = await service.say(here, "wrogn")
        unwanted = await service.say(here, "never mind")
        await service.settled()
        await service.shows(here, "2 messages are queued")
        if service.edits:
            await service.edit(here, wrong, "right")
        if service.deletes:
            await service.delete(here, unwanted)
        await service.settled()
        await service.until(lambda: any("so far" in text for text in service.screen(here)))
        await service.stop(here)
        await service.shows(here, "Stopped")
        await service.typed(here, "resume")
        await service.shows(here, "echo: right" if service.edits else "echo: wrogn")
        if not service.deletes:
            await service.shows(here, "echo: never mind")
        await service.rests()
    shown = "\n".join(service.screen(here))
    assert service.edits is not ("echo: wrogn" in shown)
    assert service.deletes is not ("echo: never mind" in shown)


def _shows_identity(service: Service, place: Place) -> bool:
    shown = (*service.screen(place), *service.private_texts(place))
    return any(f"You are {service.name}:" in text for text in shown)


async def test_a_command_takes_effect_in_its_chat(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model):
        for place in places(service):
            await service.command(place, "whoami")
            await service.until(partial(_shows_identity, service, place))
        await service.typed(service.direct, "help")
        await service.shows(service.direct, service.spelled("stop"), service.spelled("resume"))
        await service.rests()
    assert not model.requests


async def test_a_streaming_answer_can_be_stopped_where_it_is_shown(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model) as home:
        for number, place in enumerate(places(service)):
            await service.say(place, "hang")
            await _wait_for_beginning(service, place, "so far")
            here = can(home, service, place)
            if here.live is Live.EDIT and here.buttons:
                await service.until(partial(_can_be_stopped, service, place))
            await service.stop(place)
            await service.shows(place, "so far", "Stopped", service.spelled("resume"))
            async with asyncio.timeout(8):
                await model.requests[number].closed.wait()
        await service.rests()


def _can_be_stopped(service: Service, place: Place) -> bool:
    return "Stop" in service.seen(place)[-1].buttons


@pytest.mark.parametrize(
    ("word", "crash"), [("Continue", False), ("Start over", False), ("Start over", True)]
)
async def test_an_interrupted_answer_continues_on_request_after_a_restart(
    tmp_path: Path, service: Service, model: ModelServer, word: str, crash: bool
) -> None:
    """With a button, or with the command named in the notice where there are no buttons."""
    here = service.direct
    async with running_gateway(tmp_path, service, model) as home:
        await service.say(here, "hang on")
        await service.until(lambda: any("so far" in text for text in service.screen(here)))
        if crash:
            await home.crash()
    model._handler = _going_on
    async with running_gateway(tmp_path, service, model) as home:
        await service.shows(here, "I was restarted")
        if can(home, service, here).buttons:
            await service.press(here, word)
        else:
            await service.typed(here, "resume" if word == "Continue" else "retry")
            if word == "Continue":
                await service.say(here, "go on")
        await service.shows(here, "the rest")
        await service.rests()
    sent = model.requests[-1].body["messages"]
    assert [each["role"] == "assistant" for each in sent].count(True) == (word == "Continue")


def _going_on(_: dict[str, Any]) -> Script:
    return words("the rest")


@pytest.mark.parametrize("answer", ["Allow", "Deny"])
@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
async def test_a_tool_that_needs_approval_runs_only_when_allowed(
    tmp_path: Path, service: Service, answer: str, restart: bool
) -> None:
    here, ran = service.direct, list[str]()
    calls = iter(['H C(0,c1,brew,{"what":"tea"}) F tool_calls U D'] * (2 if restart else 1))

    def model_of(body: dict[str, Any]) -> Script:
        return next(calls, None) or answering(body)

    @tool(risk=Risk.NET)
    async def brew(context: ToolContext, what: str) -> str:  # noqa: ARG001 - every tool has one
        """Brew something.

        Args:
            context: Not part of the call.
            what: What to brew.
        """
        ran.append(what)
        return f"{what}: done"

    async def answered(home: PlatformGateway) -> None:
        if can(home, service, here).buttons:
            await service.press(here, answer)
        else:
            await service.typed(here, "approve" if answer == "Allow" else "deny")

    done = "Allowed by" if answer == "Allow" else "Denied by"
    async with ModelServer(model_of) as model:
        async with running_gateway(tmp_path, service, model, tools=(brew,)) as home:
            await service.say(here, "tea, please")
            await service.shows(here, '"what": "tea"')
            assert ran == []
            if not restart:
                await answered(home)
                await service.shows(here, done, "echo: tea, please")
                await service.rests()
        if restart:
            async with running_gateway(tmp_path, service, model, tools=(brew,)) as home:
                await service.shows(here, "I was restarted")
                await answered(home)
                await service.shows(here, "Saved")
                await _goes_on(service, home, here)
                await service.shows(here, "echo: tea, please")
                await service.rests()
    assert ran == (["tea"] if answer == "Allow" else [])


async def _goes_on(service: Service, home: PlatformGateway, place: Place) -> None:
    if can(home, service, place).buttons:
        await service.press(place, "Continue")
    else:
        await service.typed(place, "resume")
        await service.say(place, "tea, please")


async def test_a_thread_is_a_separate_conversation(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    async with running_gateway(tmp_path, service, model):
        for number, place in enumerate([*places(service), await service.elsewhere()]):
            await service.say(place, f"hello {number}")
            await service.shows(place, f"hello {number}")
            (sent,) = await user_texts(model, number + 1)
            for other in range(number):  # from the same person, in other places
                assert f"hello {other}" not in sent.rpartition("\n\n")[2]
        await service.rests()
    assert len(service.seen(service.direct)) == 1


# --- breaks and restarts ------------------------------------------------------------------------


@pytest.mark.parametrize("politely", [True, False], ids=["politely", "abruptly"])
async def test_a_broken_connection_loses_and_duplicates_nothing(
    tmp_path: Path, service: Service, model: ModelServer, politely: bool
) -> None:
    here = service.direct
    async with running_gateway(tmp_path, service, model) as home:
        keeps = not can(home, service, here).delete  # a terminal cannot take text back
        await service.say(here, "tell me")  # the connection breaks during the answer
        await service.until(lambda: any("one" in text for text in service.screen(here)))
        await service.cut(politely=politely)
        for number in range(3):
            await service.say(here, f"say {number}")
            await service.cut(politely=politely)
            await service.shows(here, f"echo: say {number}")
        await service.send_again()
        await service.settled()
        await service.rests()
    gone = re.compile("queued|^…$")  # notices that were removed
    shown = [text for text in service.screen(here) if not (keeps and gone.search(text))]
    assert shown == [SLOWLY, *(f"echo: say {number}" for number in range(3))]
    assert len(model.requests) == 4


async def test_after_a_crash_the_notices_stand_before_the_answer_and_the_queue_notice_is_gone(
    tmp_path: Path, service: Service, model: ModelServer
) -> None:
    threads = [await service.elsewhere()] if service.room else []
    for number, place in enumerate((service.direct, *threads)):
        home_folder = tmp_path / str(number)
        home_folder.mkdir()
        async with running_gateway(home_folder, service, model) as home:
            await service.say(place, "hang on")
            await _wait_for_beginning(service, place, "so far")
            await service.say(place, "later")
            await service.shows(place, "1 message is queued")
            await service.settled()
            await home.delivered()
            await home.crash()
        async with running_gateway(home_folder, service, model) as home:
            await service.shows(place, "I was restarted", "New conversation", "later")
            await service.rests()
            can_delete = can(home, service, place).delete
        shown = service.screen(place)
        parts = ("I was restarted", "New conversation", "echo: ")
        order = [next(at for at, text in enumerate(shown) if part in text) for part in parts]
        assert order == sorted(order), shown
        assert not can_delete or not any("is queued" in text for text in shown), shown


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
async def test_messages_sent_during_downtime_are_answered_once(
    tmp_path: Path, service: Service, model: ModelServer, crash: bool
) -> None:
    async with running_gateway(tmp_path, service, model) as home:
        for place in places(service):
            await service.say(place, "one")
            await service.shows(place, "one")
        await service.settled()
        await service.rests()
        if crash:
            await home.crash()
    for place in places(service):
        await service.say(place, "two")
        await service.say(place, "three")
    await service.forget()
    async with running_gateway(tmp_path, service, model):
        for place in places(service):
            await service.shows(place, "two", "three")
            await service.say(place, "four")
            await service.shows(place, "four")
        await service.settled()
        await service.rests()
    for place in places(service):
        shown = [text for text in service.screen(place) if "echo: " in text]
        words, said = [text.split()[-1] for text in shown], ["one", "two", "three", "four"]
        if place == service.room and service.opens_threads:  # one thread does not wait for another
            words, said = sorted(words), sorted(said)
        assert words == said
