"""/model, /reasoning, /usage, /compact and /btw with the whole gateway."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.settings import ModelSettings, PriceSettings, TargetSettings, Timeouts
from gateway.access.settings import AccessSettings
from gateway.settings import GatewaySettings, RouteSettings, Settings
from platforms.core.contract import Live
from sessions.records import InboxState, TurnState
from sessions.values.secret import Secret
from tests.e2e.house import House, Nothing, Screen, gateway, opened, talkative
from tests.fakes.model_script import Script, ok, words
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CHAT = "7"
LISTED = ("scripted", "scripted-large", "tiny-1", "tiny-2")
LONG = "A long story about ships and harbours. " * 40


def settings(server: ModelServer, *route: RouteSettings, **changes: Any) -> Settings:
    model = ModelSettings(
        provider="openai",
        name="scripted",
        base_url=server.url,
        api_key=Secret("sk-none"),
        timeouts=Timeouts(backoff=0.01),
    )
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


async def say(house: House, text: str, *expected: str) -> str:
    """Send a message, wait until a new message contains all expected texts, and return its text."""
    before = {each.id for each in house.screen.messages(CHAT)}
    await house.screen.say(CHAT, text)

    def new() -> list[str]:
        return [each.text for each in house.screen.messages(CHAT) if each.id not in before]

    await house.screen.until(
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
        async with gateway(tmp_path, server, seen) as house:
            text = await say(house, "/model", "the default")
            assert text.startswith("🤖 The model here is `scripted` (openai), the default.")
            assert "Also available: `scripted-large`, `tiny-1`, `tiny-2`." in text
            assert text.endswith("/model default switches back.")
            await say(house, "/model LARGE", "`scripted-large` (openai) answers here.")
            await say(house, "one", "echo: one")
            assert server.requests[0].model == "scripted-large"
        async with gateway(tmp_path, server, seen) as house:
            await say(house, "two", "echo: two")
            assert server.requests[1].model == "scripted-large"
            await say(house, "/model", "chosen in this chat")
            await say(house, "/model default", "`scripted` (openai) answers here.")
            await say(house, "three", "echo: three")
    assert server.requests[2].model == "scripted"
    assert house.screen.violations() == []


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
        gateway(tmp_path, server) as house,
    ):
        await say(house, f"/model {written}", told)
        await say(house, "hello", "echo: hello")
    assert server.requests[0].model == "scripted"


async def test_a_running_answer_keeps_its_model_and_the_next_uses_the_new_one(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(talkative, models=LISTED) as server,
        gateway(tmp_path, server) as house,
    ):
        await say(house, "hang on", "so far")
        await say(house, "/model tiny-1", "The current answer is not affected.")
        await say(house, "/reasoning high", "The current answer is not affected.")
        assert len(server.requests) == 1
        assert not server.requests[0].closed.is_set()
        await say(house, "/new", "New conversation")
        await say(house, "next", "echo: next")
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
        async with gateway(tmp_path, first, settings=configured) as house:
            text = await say(house, "/model", "The model here is `routed` (openai)")
            assert "Fallback: `other` (openai)." in text
            await say(house, "one", "echo: one")
            await say(house, "/model other", "`other` (openai) answers here.")
            await say(house, "two", "echo: two")
    assert [each.model for each in first.requests] == ["routed"]
    assert [each.model for each in second.requests] == ["other"]


async def test_without_a_list_of_models_any_name_is_accepted_with_a_remark(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative, models=()) as server,
        gateway(tmp_path, server) as house,
    ):
        await say(house, "/model", "you can try any name")
        text = await say(house, "/model brand-new", "`brand-new` (openai) answers here.")
        assert text.endswith("The model service did not confirm that it has this model.")
        await say(house, "hello", "echo: hello")
    assert server.requests[0].model == "brand-new"


# --- /reasoning --------------------------------------------------------------------------------


async def test_reasoning_is_shown_set_kept_and_reset(tmp_path: Path) -> None:
    seen = screen()
    async with ModelServer(talkative) as server:
        async with gateway(tmp_path, server, seen) as house:
            await say(house, "/reasoning", "Reasoning here: the model's default.")
            await say(house, "/reasoning HIGH", "Reasoning here from your next message on: high.")
            await say(
                house, "/reasoning hihg", "“hihg” is not a reasoning level", "Did you mean high?"
            )
        async with gateway(tmp_path, server, seen) as house:
            await say(house, "one", "echo: one")
            await say(house, "/reasoning default", "the model's default")
            await say(house, "two", "echo: two")
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
        async with gateway(tmp_path, server, settings=configured) as house:
            await say(house, "one", "fine")
            await say(house, "/new", "New conversation")
            await say(house, "two", "fine")
            await say(house, "/btw and this", "💬 fine")
            text = await say(house, "/usage", "today")
    table = [line.split() for line in text.splitlines()]
    assert ["requests", "1", "2", "3"] in table
    assert ["tokens", "in", "1,000", "2,000", "3,000"] in table
    assert ["cached", "400", "800", "1,200"] in table
    assert ["tokens", "out", "500", "1,000", "1,500"] in table
    assert ["dollars", "0.0018", "0.0036", "0.0054"] in table  # .6 + .2 + 1 thousandths each


# --- /compact ----------------------------------------------------------------------------------


async def test_compact_sends_a_summary_with_the_next_request(tmp_path: Path) -> None:
    async with ModelServer(summarising) as server, gateway(tmp_path, server) as house:
        for number in range(4):
            await say(house, f"{LONG} {number}", f"harbours.  {number}")
        text = await say(house, "/compact", "🗜 The conversation is")
        assert "% shorter" in text
        await say(house, "and now?", "echo: and now?")
        asked = await house.asked(6)
        await say(house, "/usage", "today")
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
    async with ModelServer(summarising) as server, gateway(tmp_path, server) as house:
        await say(house, "/compact", "There's nothing to shorten here.")
        await say(house, "hello", "echo: hello")
        await say(house, "/compact", "There's nothing to shorten here.")
    assert len(server.requests) == 1


async def test_compact_is_refused_at_once_during_an_answer(tmp_path: Path) -> None:
    async with ModelServer(summarising) as server, gateway(tmp_path, server) as house:
        await say(house, "hang on", "so far")
        await say(house, "/compact", "I'm still writing an answer.")
    assert len(server.requests) == 1


async def test_compact_without_a_working_model_changes_nothing_and_names_the_cause(
    tmp_path: Path,
) -> None:
    def failing(body: dict[str, Any]) -> Script:
        if str(body["messages"][-1]["content"]).endswith("Write the summary now."):
            return 'S400"no summaries today"'
        return talkative(body)

    async with ModelServer(failing) as server, gateway(tmp_path, server) as house:
        for number in range(3):
            await say(house, f"{LONG} {number}", f"harbours.  {number}")
        text = await say(house, "/compact", "couldn't summarise the conversation")
        assert "no summaries today" in text
        assert text.endswith("Nothing was changed.")
        await say(house, "still here", "echo: still here")
        asked = await house.asked(len(server.requests))
    assert asked[0]["content"] == f"{LONG} 0"


async def test_a_turn_that_starts_during_a_summary_is_kept(
    tmp_path: Path,
) -> None:
    def slow(body: dict[str, Any]) -> Script:
        if str(body["messages"][-1]["content"]).endswith("Write the summary now."):
            return 'H W1.0 T"They talked about ships." F stop D'
        return talkative(body)

    async with ModelServer(slow) as server, gateway(tmp_path, server) as house:
        for number in range(3):
            await say(house, f"{LONG} {number}", f"harbours.  {number}")
        await house.screen.say(CHAT, "/compact")
        async with asyncio.timeout(5):
            await server.request(4)
        await say(house, "/compact", "already summarising this conversation")
        await say(house, "meanwhile", "echo: meanwhile")
        await house.screen.shows(CHAT, "% shorter")
        await say(house, "after", "echo: after")
        asked = await house.asked(6)
    assert asked[0]["content"].startswith("[Summary of the conversation so far: They talked")
    assert LONG + " 2" in asked[0]["content"]
    assert [row["content"] for row in asked[2:]] == ["meanwhile", "echo: meanwhile", "after"]


async def test_a_turn_undone_during_a_summary_is_not_summarised(tmp_path: Path) -> None:
    def slow(body: dict[str, Any]) -> Script:
        if str(body["messages"][-1]["content"]).endswith("Write the summary now."):
            return 'H W1.0 T"They talked about ships." F stop D'
        return talkative(body)

    async with ModelServer(slow) as server, gateway(tmp_path, server) as house:
        for number in range(3):
            await say(house, f"{LONG} {number}", f"harbours.  {number}")
        await house.screen.say(CHAT, "/compact")
        async with asyncio.timeout(5):
            await server.request(4)
        await say(house, "/undo", "Undone: I removed")
        await house.screen.shows(CHAT, "changed while I was summarising it")
        await say(house, "after", "echo: after")
        asked = await house.asked(5)
    assert asked[0]["content"] == f"{LONG} 0"
    assert len(asked) == 5


# --- /btw --------------------------------------------------------------------------------------


async def test_btw_is_answered_during_a_turn_and_not_stored_in_the_history(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as house:
        await say(house, "hello", "echo: hello")
        await say(house, "hang on", "so far")
        await say(house, "/btw what is up?", "💬 echo: what is up?")
        asked = await house.asked(3)
        assert [row["content"] for row in asked[:2]] == ["hello", "echo: hello"]
        assert asked[2]["content"].startswith("hang on\n\n[A question on the side.")
        assert server.requests[2].tools == {}
        assert server.requests[0].tools != {}
        assert not server.requests[1].closed.is_set()
        await say(house, "/stop", "Stopped")
        await say(house, "/resume", "Back in the earlier conversation")
        await say(house, "go on", "echo: go on")
        after = await house.asked(4)
    assert not any("what is up?" in str(row["content"]) for row in after)
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert not any("up?" in row.content for row in await store.sessions.history(session.id))
        assert [turn.state for turn in await store.turns.of_session(session.id)].count(
            TurnState.DONE
        ) == 3
    assert house.screen.violations() == []


async def test_btw_works_without_a_session_and_explains_its_usage(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as house:
        await say(house, "/btw", "Use: /btw your question")
        await say(house, "/btw who are you?", "💬 echo: who are you?")
    async with opened(tmp_path) as store:
        assert await store.sessions.list() == ()
        assert await store.inbox.pending_commands() == ()


async def test_btw_recovers_from_a_cut_stream_or_names_the_cause(tmp_path: Path) -> None:
    scripts = ('H T"The quick brown " RST', 'H T"fox jumps." F stop D', 'S400"not today"')
    async with ModelServer(*scripts) as server, gateway(tmp_path, server) as house:
        await say(house, "/btw tell me", "💬 The quick brown fox jumps.")
        text = await say(house, "/btw again", "couldn't answer your side question")
        assert text.count("\n") == 0
        assert "not today" in text
    assert sum("quick" in each for each in house.screen.screen(CHAT)) == 1


@pytest.mark.parametrize("live", list(Live))
async def test_btw_works_on_every_kind_of_platform(tmp_path: Path, live: Live) -> None:
    screen = Screen(live=live, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as server, gateway(tmp_path, server, screen) as house:
        await say(house, "/btw and?", "💬 echo: and?")
        await say(house, "hello", "echo: hello")
    assert screen.screen(CHAT) == ["💬 echo: and?", "echo: hello"]
    assert screen.violations() == []


async def test_too_many_side_questions_are_refused(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as house:
        for number in range(3):
            await house.screen.say(CHAT, f"/btw hang {number}")
        await house.screen.until(CHAT, lambda _: house.screen.typing(CHAT))
        await say(house, "/btw one more", "already answering 3 side questions here")
        async with asyncio.timeout(5):
            await server.request(3)
        await house.screen.say("8", "/btw elsewhere")
        await house.screen.shows("8", "💬 echo: elsewhere")
    assert len(server.requests) == 4


async def test_a_side_question_interrupted_by_a_crash_is_answered_once_after_the_start(
    tmp_path: Path,
) -> None:
    first = iter(['H T"hm" HANG'])

    def hanging_first(_body: dict[str, Any]) -> Script:
        return next(first, None) or words("I am back")

    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(hanging_first) as server:
        async with gateway(tmp_path, server, screen) as house:
            await screen.say(CHAT, "/btw still there?")
            async with asyncio.timeout(5):
                await server.request(1)
            await house.crash()
        assert screen.screen(CHAT) == []
        async with gateway(tmp_path, server, screen) as house:
            await screen.shows(CHAT, "💬 I am back")
    assert screen.screen(CHAT) == ["💬 I am back"]
    async with opened(tmp_path) as store:
        assert await store.inbox.pending_commands() == ()


async def test_the_gateway_stops_without_waiting_for_side_questions(tmp_path: Path) -> None:
    async with ModelServer(talkative) as server, gateway(tmp_path, server) as house:
        await house.screen.say(CHAT, "/btw hang")
        async with asyncio.timeout(5):
            await server.request(1)
        async with asyncio.timeout(3):
            house.runner.stopping.set()
            await asyncio.wait({house._task})
    async with opened(tmp_path) as store:
        (left,) = await store.inbox.pending_commands()
        assert left.state is InboxState.COMMAND
