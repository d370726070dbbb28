"""/model, /reasoning, /usage, /compact and /btw with the whole gateway."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.settings import PriceSettings, TargetSettings
from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, RouteSettings, Settings
from platforms.core.contract import Live
from sessions.records import InboxState, TurnState
from sessions.values.secret import Secret
from tests.e2e.gateway_kit import GatewayKit, Nothing, Screen, gateway, opened, talkative
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_script import Script, ok, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHAT = "7"
LISTED = ("scripted", "scripted-large", "tiny-1", "tiny-2")
LONG = "A long story about ships and harbours. " * 40


def settings(server: ModelServer, *route: RouteSettings, **changes: Any) -> Settings:
    model = scripted_model(server)
    return Settings(
        gateway=GatewaySettings(drain_seconds=0),
        model=msgspec.structs.replace(model, **changes),
        access=AccessSettings(allow=("memory:1001",)),
        platforms={"memory": Nothing()},
        route=route,
    )


def screen() -> Screen:
    """A screen for several gateways in a row: message ids differ after a restart."""
    return Screen(live=Live.EDIT, live_interval=0.01, burst=1000)


async def say(kit: GatewayKit, text: str, *expected: str) -> str:
    """Send a message, wait until a new message contains all expected texts, and return its text."""
    before = {each.id for each in kit.screen.messages(CHAT)}
    await kit.screen.say(CHAT, text)

    def new() -> list[str]:
        return [each.text for each in kit.screen.messages(CHAT) if each.id not in before]

    await kit.screen.until(
        CHAT, lambda _: any(all(part in each for part in expected) for each in new())
    )
    return next(each for each in new() if all(part in each for part in expected))


def summarising(body: dict[str, Any]) -> Script:
    """Return a summary if the request asks for one, else an ordinary answer."""
    last = str(body["messages"][-1]["content"])
    if last.endswith("Write the summary now."):
        return ok("They talked about ships.")
    return talkative(body)


# --- /model ------------------------------------------------------------------------------------


async def test_model_shows_the_current_model_and_switches_for_the_next_request(
    tmp_path: Path,
) -> None:
    seen = screen()
    async with ModelServer(talkative, models=LISTED) as server:
        async with gateway(tmp_path, server, seen) as kit:
            text = await say(kit, "/model", "the default")
            assert text.startswith("🤖 The model here is `scripted` (openai), the default.")
            assert "Also available: `scripted-large`, `tiny-1`, `tiny-2`." in text
            assert text.endswith("/model default switches back.")
            await say(kit, "/model LARGE", "`scripted-large` (openai) answers here.")
            await say(kit, "one", "echo: one")
            assert server.requests[0].model == "scripted-large"
        async with gateway(tmp_path, server, seen) as kit:
            await say(kit, "two", "echo: two")
            assert server.requests[1].model == "scripted-large"
            await say(kit, "/model", "chosen in this chat")
            await say(kit, "/model default", "`scripted` (openai) answers here.")
            await say(kit, "three", "echo: three")
    assert server.requests[2].model == "scripted"
    assert kit.screen.violations() == []


@pytest.mark.parametrize(
    ("written", "told"),
    [
        pytest.param("skripted-larg", "Did you mean `scripted-large`", id="misspelt"),
        pytest.param(
            "zzz", "I don't know a model “zzz”. Nothing was changed", id="no similar name"
        ),
        pytest.param("tiny", "could be any of these: `tiny-1`, `tiny-2`.", id="part of several"),
    ],
)
async def test_an_ambiguous_or_unknown_model_name_changes_nothing(
    tmp_path: Path, written: str, told: str
) -> None:
    async with (
        ModelServer(talkative, models=LISTED) as server,
        gateway(tmp_path, server) as kit,
    ):
        await say(kit, f"/model {written}", told)
        await say(kit, "hello", "echo: hello")
    assert server.requests[0].model == "scripted"


async def test_a_running_answer_keeps_its_model_and_the_next_uses_the_new_one(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(talkative, models=LISTED) as server,
        gateway(tmp_path, server) as kit,
    ):
        await say(kit, "hang on", "so far")
        await say(kit, "/model tiny-1", "The current answer is not affected.")
        await say(kit, "/reasoning high", "The current answer is not affected.")
        assert len(server.requests) == 1
        assert not server.requests[0].closed.is_set()
        await say(kit, "/new", "New conversation")
        await say(kit, "next", "echo: next")
    assert [each.model for each in server.requests] == ["scripted", "tiny-1"]
    assert server.requests[1].body["reasoning_effort"] == "high"


async def test_the_name_of_a_fallback_switches_to_its_service_and_overrides_a_route(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as first, ModelServer(talkative, models=("other",)) as second:
        fallback = TargetSettings(
            provider="openai", name="other", base_url=second.url, api_key=Secret("sk-2")
        )
        route = RouteSettings(match="memory:*", model="routed")
        configured = settings(first, route, fallback=(fallback,))
        async with gateway(tmp_path, first, settings=configured) as kit:
            text = await say(kit, "/model", "The model here is `routed` (openai)")
            assert "Fallback: `other` (openai)." in text
            await say(kit, "one", "echo: one")
            await say(kit, "/model other", "`other` (openai) answers here.")
            await say(kit, "two", "echo: two")
    assert [each.model for each in first.requests] == ["routed"]
    assert [each.model for each in second.requests] == ["other"]


async def test_without_a_list_of_models_any_name_is_accepted_with_a_remark(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative, models=()) as server,
        gateway(tmp_path, server) as kit,
    ):
        await say(kit, "/model", "you can try any name")
        text = await say(kit, "/model brand-new", "`brand-new` (openai) answers here.")
        assert text.endswith("The model service did not confirm that it has this model.")
        await say(kit, "hello", "echo: hello")
    assert server.requests[0].model == "brand-new"


# --- /reasoning --------------------------------------------------------------------------------


async def test_reasoning_is_shown_set_kept_and_reset(tmp_path: Path) -> None:
    seen = screen()
    async with ModelServer(talkative) as server:
        async with gateway(tmp_path, server, seen) as kit:
            await say(kit, "/reasoning", "Reasoning here: the model's default.")
            await say(kit, "/reasoning HIGH", "Reasoning here from your next message on: high.")
            await say(
                kit, "/reasoning hihg", "“hihg” is not a reasoning level", "Did you mean high?"
            )
        async with gateway(tmp_path, server, seen) as kit:
            await say(kit, "one", "echo: one")
            await say(kit, "/reasoning default", "the model's default")
            await say(kit, "two", "echo: two")
    assert server.requests[0].body["reasoning_effort"] == "high"
    assert "reasoning_effort" not in server.requests[1].body


# --- /usage ------------------------------------------------------------------------------------


async def test_usage_shows_the_last_answer_the_conversation_and_the_day_with_prices(
    tmp_path: Path,
) -> None:
    def counted(_body: dict[str, Any]) -> Script:
        return 'H T"fine" F stop U(500,1000,400) D EOF'

    price = PriceSettings(input=1.0, output=2.0, cached=0.5)
    async with ModelServer(counted) as server:
        configured = settings(server, price=price)
        async with gateway(tmp_path, server, settings=configured) as kit:
            await say(kit, "one", "fine")
            await say(kit, "/new", "New conversation")
            await say(kit, "two", "fine")
            await say(kit, "/btw and this", "💬 fine")
            text = await say(kit, "/usage", "today")
    table = [line.split() for line in text.splitlines()]
    assert ["requests", "1", "2", "3"] in table
    assert ["tokens", "in", "1,000", "2,000", "3,000"] in table
    assert ["cached", "400", "800", "1,200"] in table
    assert ["tokens", "out", "500", "1,000", "1,500"] in table
    assert ["dollars", "0.0018", "0.0036", "0.0054"] in table  # .6 + .2 + 1 thousandths each


# --- /compact ----------------------------------------------------------------------------------


async def test_compact_sends_a_summary_with_the_next_request(tmp_path: Path) -> None:
    async with ModelServer(summarising) as server, gateway(tmp_path, server) as kit:
        for number in range(4):
            await say(kit, f"{LONG} {number}", f"harbours.  {number}")
        text = await say(kit, "/compact", "🗜 The conversation is")
        assert "% shorter" in text
        await say(kit, "and now?", "echo: and now?")
        asked = await kit.asked(6)
        await say(kit, "/usage", "today")
    summary, *rest = asked
    assert summary["content"].startswith(
        "[Summary of the conversation so far: They talked about ships.]"
    )
    assert LONG + " 3" in summary["content"]  # two rows of a user in a row are one
    assert [row["role"] for row in rest] == ["assistant", "user"]
    record = server.requests[4].last_user_text
    assert all(f"{LONG} {number}" in record for number in range(3))
    assert server.requests[4].tools == {}
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert session.messages == 10
        assert (await store.spending.totals(session_id=session.id)).requests == 6
        last = await store.turns.last(session.id)
        assert last
        assert last.request == "and now?"


async def test_compact_of_a_short_conversation_sends_no_request(
    tmp_path: Path,
) -> None:
    async with ModelServer(summarising) as server, gateway(tmp_path, server) as kit:
        await say(kit, "/compact", "There's nothing to shorten here.")
        await say(kit, "hello", "echo: hello")
        await say(kit, "/compact", "There's nothing to shorten here.")
    assert len(server.requests) == 1


async def test_compact_is_refused_at_once_during_an_answer(tmp_path: Path) -> None:
    async with ModelServer(summarising) as server, gateway(tmp_path, server) as kit:
        await say(kit, "hang on", "so far")
        await say(kit, "/compact", "I'm still writing an answer.")
    assert len(server.requests) == 1


async def test_compact_without_a_working_model_changes_nothing_and_names_the_cause(
    tmp_path: Path,
) -> None:
    def failing(body: dict[str, Any]) -> Script:
        if str(body["messages"][-1]["content"]).endswith("Write the summary now."):
            return 'S400"no summaries today"'
        return talkative(body)

    async with ModelServer(failing) as server, gateway(tmp_path, server) as kit:
        for number in range(3):
            await say(kit, f"{LONG} {number}", f"harbours.  {number}")
        text = await say(kit, "/compact", "couldn't summarise the conversation")
        assert "no summaries today" in text
        assert text.endswith("Nothing was changed.")
        await say(kit, "still here", "echo: still here")
        asked = await kit.asked(len(server.requests))
    assert asked[0]["content"] == f"{LONG} 0"


@contextlib.asynccontextmanager
async def summarising_slowly(home: Path) -> AsyncIterator[GatewayKit]:
    """Run a gateway that is summarising a conversation of three turns."""

    def slow(body: dict[str, Any]) -> Script:
        if str(body["messages"][-1]["content"]).endswith("Write the summary now."):
            return 'H W1.0 T"They talked about ships." F stop D'
        return talkative(body)

    async with ModelServer(slow) as server, gateway(home, server) as kit:
        for number in range(3):
            await say(kit, f"{LONG} {number}", f"harbours.  {number}")
        await kit.screen.say(CHAT, "/compact")
        async with asyncio.timeout(5):
            await server.request(4)
        yield kit


async def test_a_turn_that_starts_during_a_summary_is_kept(tmp_path: Path) -> None:
    async with summarising_slowly(tmp_path) as kit:
        await say(kit, "/compact", "already summarising this conversation")
        await say(kit, "meanwhile", "echo: meanwhile")
        await kit.screen.shows(CHAT, "% shorter")
        await say(kit, "after", "echo: after")
        asked = await kit.asked(6)
    assert asked[0]["content"].startswith("[Summary of the conversation so far: They talked")
    assert LONG + " 2" in asked[0]["content"]
    assert [row["content"] for row in asked[2:]] == ["meanwhile", "echo: meanwhile", "after"]


async def test_a_turn_undone_during_a_summary_is_not_summarised(tmp_path: Path) -> None:
    async with summarising_slowly(tmp_path) as kit:
        await say(kit, "/undo", "Undone: I removed")
        await kit.screen.shows(CHAT, "changed while I was summarising it")
        await say(kit, "after", "echo: after")
        asked = await kit.asked(5)
    assert asked[0]["content"] == f"{LONG} 0"
    assert len(asked) == 5


# --- /btw --------------------------------------------------------------------------------------


async def test_btw_is_answered_during_a_turn_and_not_stored_in_the_history(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as kit:
        await say(kit, "hello", "echo: hello")
        await say(kit, "hang on", "so far")
        await say(kit, "/btw what is up?", "💬 echo: what is up?")
        asked = await kit.asked(3)
        assert [row["content"] for row in asked[:2]] == ["hello", "echo: hello"]
        assert asked[2]["content"].startswith("hang on\n\n[A question on the side.")
        assert server.requests[2].tools == {}
        assert server.requests[0].tools != {}
        assert not server.requests[1].closed.is_set()
        await say(kit, "/stop", "Stopped")
        await say(kit, "/resume", "Back in the earlier conversation")
        await say(kit, "go on", "echo: go on")
        after = await kit.asked(4)
    assert not any("what is up?" in str(row["content"]) for row in after)
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert not any("up?" in row.content for row in await store.sessions.history(session.id))
        assert [turn.state for turn in await store.turns.of_session(session.id)].count(
            TurnState.DONE
        ) == 3
    assert kit.screen.violations() == []


async def test_btw_works_without_a_session_and_explains_its_usage(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as kit:
        await say(kit, "/btw", "Use: /btw your question")
        await say(kit, "/btw who are you?", "💬 echo: who are you?")
    async with opened(tmp_path) as store:
        assert await store.sessions.list() == ()
        assert await store.inbox.pending_commands() == ()


async def test_btw_recovers_from_a_cut_stream_or_names_the_cause(tmp_path: Path) -> None:
    scripts = ('H T"The quick brown " RST', 'H T"fox jumps." F stop D', 'S400"not today"')
    async with ModelServer(*scripts) as server, gateway(tmp_path, server) as kit:
        await say(kit, "/btw tell me", "💬 The quick brown fox jumps.")
        text = await say(kit, "/btw again", "couldn't answer your side question")
        assert text.count("\n") == 0
        assert "not today" in text
    assert sum("quick" in each for each in kit.screen.screen(CHAT)) == 1


@pytest.mark.parametrize("live", list(Live))
async def test_btw_works_on_every_kind_of_platform(tmp_path: Path, live: Live) -> None:
    screen = Screen(live=live, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as server, gateway(tmp_path, server, screen) as kit:
        await say(kit, "/btw and?", "💬 echo: and?")
        await say(kit, "hello", "echo: hello")
    assert screen.screen(CHAT) == ["💬 echo: and?", "echo: hello"]
    assert screen.violations() == []


async def test_too_many_side_questions_are_refused(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as kit:
        for number in range(3):
            await kit.screen.say(CHAT, f"/btw hang {number}")
        await kit.screen.until(CHAT, lambda _: kit.screen.typing(CHAT))
        await say(kit, "/btw one more", "already answering 3 side questions here")
        async with asyncio.timeout(5):
            await server.request(3)
        await kit.screen.say("8", "/btw elsewhere")
        await kit.screen.shows("8", "💬 echo: elsewhere")
    assert len(server.requests) == 4


async def test_a_side_question_interrupted_by_a_crash_is_answered_once_after_the_start(
    tmp_path: Path,
) -> None:
    first = iter(['H T"hm" HANG'])

    def hanging_first(_body: dict[str, Any]) -> Script:
        return next(first, None) or words("I am back")

    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(hanging_first) as server:
        async with gateway(tmp_path, server, screen) as kit:
            await screen.say(CHAT, "/btw still there?")
            async with asyncio.timeout(5):
                await server.request(1)
            await kit.crash()
        assert screen.screen(CHAT) == []
        async with gateway(tmp_path, server, screen) as kit:
            await screen.shows(CHAT, "💬 I am back")
    assert screen.screen(CHAT) == ["💬 I am back"]
    async with opened(tmp_path) as store:
        assert await store.inbox.pending_commands() == ()


async def test_the_gateway_stops_without_waiting_for_side_questions(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as kit:
        await kit.screen.say(CHAT, "/btw hang")
        async with asyncio.timeout(5):
            await server.request(1)
        async with asyncio.timeout(3):
            kit.runner.stopping.set()
            await asyncio.wait({kit._task})
    async with opened(tmp_path) as store:
        (left,) = await store.inbox.pending_commands()
        assert left.state is InboxState.COMMAND


async def test_a_side_answer_that_imitates_a_notice_is_marked(tmp_path: Path) -> None:
    seen = screen()
    script = ok("🔐 May I use **pay**?\n✅ Allowed by memory:1.\n⏹ Stopped.")
    async with ModelServer(lambda _: script) as server, gateway(tmp_path, server, seen) as kit:
        text = await say(kit, "/btw why", "May I use")
    assert text.count("(from the model)") == 3
