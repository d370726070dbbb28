"""The whole gateway, with a platform in memory and a scripted model."""

import asyncio
import re
import time
from pathlib import Path

import aiohttp
import pytest

from gateway.settings import GatewaySettings, HttpSettings, LimitSettings
from platforms.core.contract import (
    Accepted,
    Address,
    InboundDelete,
    InboundEdit,
    InboundMessage,
    Live,
    Sender,
    Text,
)
from sessions.records import SessionReason, SessionState, TurnState
from sessions.settings import SessionSettings
from tests.e2e.gateway_kit import Screen, gateway, opened, talkative
from tests.fakes.model_script import Script, words
from tests.fakes.model_server import ModelServer

CHAT = "7"


def texts(screen: Screen, chat: str = CHAT) -> list[str]:
    return [message.text for message in screen.messages(chat)]


@pytest.mark.parametrize("live", list(Live))
async def test_a_message_is_answered_once_on_every_kind_of_platform(
    tmp_path: Path, live: Live
) -> None:
    screen = Screen(live=live, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, screen) as kit:
        assert await screen.say(CHAT, "hello") is Accepted.STORED
        await screen.shows(CHAT, "echo: hello")
        await screen.say(CHAT, "again")
        await screen.shows(CHAT, "echo: again")
        assert await kit.asked(2) == [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "echo: hello"},
            {"role": "user", "content": "again"},
        ]
    assert texts(screen) == ["echo: hello", "echo: again"]
    assert screen.violations() == []


async def test_a_redelivered_message_is_one_message(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        assert await kit.screen.say(CHAT, "hello", event="e1") is Accepted.STORED
        assert await kit.screen.say(CHAT, "hello", event="e1") is Accepted.DUPLICATE
        await kit.screen.shows(CHAT, "echo: hello")
        await kit.screen.say(CHAT, "next")
        await kit.screen.shows(CHAT, "echo: next")
    assert texts(kit.screen) == ["echo: hello", "echo: next"]
    assert len(model.requests) == 2


async def test_stop_among_a_hundred_hanging_turns_acts_within_300_ms(tmp_path: Path) -> None:
    took = []
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        for number in range(100):
            await screen.say(str(number), f"hang {number}")
        async with asyncio.timeout(20):
            await model.request(100)
        for number in range(100):
            await screen.shows(str(number), "so far")
        request = {each.last_user_text: each for each in model.requests}
        for number in range(100):
            began = time.perf_counter()
            await screen.say(str(number), "/stop")
            await screen.shows(str(number), "⏹ Stopped.")
            async with asyncio.timeout(1):
                await request[f"hang {number}"].closed.wait()
            took.append(time.perf_counter() - began)
        assert all(each.left for each in model.requests)
    took.sort()
    assert took[98] < 0.3, f"p99 of /stop was {took[98]:.3f} s"
    async with opened(tmp_path) as store:
        for session in await store.sessions.list():
            assert (session.state, session.reason) == (SessionState.SUSPENDED, SessionReason.STOP)
            history = await store.sessions.history(session.id)
            assert (history[-1].content, history[-1].interrupted) == ("so far ", "stop")


@pytest.mark.quick
async def test_after_a_stop_the_next_message_starts_a_session_and_resume_returns_to_the_old_one(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "hang on")
        await screen.shows(CHAT, "so far")
        await screen.say(CHAT, "this waits")
        await screen.shows(CHAT, "⏳ Working on “hang on”. 1 message is queued.")
        await screen.say(CHAT, "/stop")
        await screen.shows(CHAT, "1 queued message is kept with it.")
        await screen.say(CHAT, "fresh one")
        await screen.shows(CHAT, "🆕 New conversation", "echo: fresh one")
        assert await kit.asked(2) == [{"role": "user", "content": "fresh one"}]
        assert "cannot see the earlier one" in kit.system(2)
        await screen.say(CHAT, "/resume")
        await screen.shows(CHAT, "↩️ Back in the earlier conversation", "echo: this waits")
        asked = await kit.asked(3)
        assert asked[0] == {"role": "user", "content": "hang on"}
        assert asked[1] == {"role": "assistant", "content": "so far "}
        assert asked[2]["content"].endswith("this waits")
    assert sum("New conversation" in text for text in texts(screen)) == 1
    assert screen.violations() == []


async def test_stop_with_nothing_running_suspends_nothing(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "echo: hello")
        await kit.screen.say(CHAT, "/stop")
        await kit.screen.shows(CHAT, "No active task to stop.")
        await kit.screen.say(CHAT, "still here")
        assert len(await kit.asked(2)) == 3
    assert not any("Fresh" in text for text in texts(kit.screen))


@pytest.mark.quick
async def test_queued_messages_show_one_updated_notice_and_are_answered_in_order(
    tmp_path: Path,
) -> None:
    first = iter(['H W.3 T"slowly" F stop D'])

    def slow(body: dict[str, object]) -> Script:
        return next(first, None) or talkative(body)

    async with ModelServer(slow) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        for text in ("one", "two", "three", "four"):
            await screen.say(CHAT, text)
        (line,) = await screen.shows(CHAT, "⏳ Working on “one”. 3 messages are queued.")
        await screen.shows(CHAT, "echo: four")
        await screen.until(
            CHAT, lambda messages: all(message.id != line.id for message in messages)
        )
    assert texts(screen) == ["slowly", "echo: two", "echo: three", "echo: four"]


@pytest.mark.quick
async def test_a_full_queue_reports_the_refused_message(tmp_path: Path) -> None:
    settings = GatewaySettings(drain_seconds=0, queue_limit=2)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, gateway=settings) as kit:
        await kit.screen.say(CHAT, "hang")
        await kit.screen.shows(CHAT, "so far")
        for text in ("a", "b", "c"):
            await kit.screen.say(CHAT, text)
        await kit.screen.shows(CHAT, "⛔ 2 messages are already queued here")


@pytest.mark.quick
@pytest.mark.parametrize("busy", ["interrupt", "collect"])
async def test_busy_policies_decide_what_a_second_message_does(tmp_path: Path, busy: str) -> None:
    settings = GatewaySettings(drain_seconds=0, busy=busy)  # type: ignore[arg-type]  # one of its words
    async with ModelServer(talkative) as model, gateway(tmp_path, model, gateway=settings) as kit:
        screen = kit.screen
        await screen.say(CHAT, "hang here")
        await screen.shows(CHAT, "so far")
        if busy == "interrupt":
            await screen.say(CHAT, "rather this")
            await screen.shows(CHAT, "echo: rather this")
            assert (await kit.asked(2))[0]["content"] == "hang here"
        else:
            await screen.say(CHAT, "and this")
            await screen.say(CHAT, "and that")
            await screen.say(CHAT, "/stop")
            await screen.say(CHAT, "/resume")
            await screen.shows(CHAT, "echo: and that")
            assert (await kit.asked(2))[-1]["content"].endswith("and this\n\nand that")
            assert len(model.requests) == 2


@pytest.mark.quick
async def test_new_stops_the_running_turn_and_starts_an_empty_session(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        await kit.screen.say(CHAT, "hang")
        await kit.screen.shows(CHAT, "so far")
        await kit.screen.say(CHAT, "/new")
        await kit.screen.shows(CHAT, "🆕 New conversation.")
        await kit.screen.say(CHAT, "hello")
        await kit.screen.shows(CHAT, "echo: hello")
        assert await kit.asked(2) == [{"role": "user", "content": "hello"}]
        assert "cannot see the earlier one" not in kit.system(2)
    assert model.requests[0].left


async def test_retry_repeats_the_last_message_and_undo_removes_it(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "first")
        await screen.shows(CHAT, "echo: first")
        await screen.say(CHAT, "second")
        await screen.shows(CHAT, "echo: second")
        await screen.say(CHAT, "/retry")
        await screen.until(
            CHAT, lambda messages: [m.text for m in messages].count("echo: second") == 2
        )
        assert await kit.asked(3) == await kit.asked(2)
        await screen.say(CHAT, "/undo")
        await screen.shows(CHAT, "↩️ Undone: I removed “second”")
        await screen.say(CHAT, "third")
        await screen.shows(CHAT, "echo: third")
        assert [row["content"] for row in await kit.asked(4)] == [
            "first",
            "echo: first",
            "third",
        ]


@pytest.mark.quick
async def test_retry_after_a_stop_answers_the_stopped_message(tmp_path: Path) -> None:
    hung = iter(['H T"abc" HANG'])

    def once(body: dict[str, object]) -> Script:
        return next(hung, None) or talkative(body)

    async with ModelServer(once) as model, gateway(tmp_path, model) as kit:
        await kit.screen.say(CHAT, "please")
        await kit.screen.shows(CHAT, "abc")
        await kit.screen.say(CHAT, "/stop")
        await kit.screen.shows(CHAT, "⏹ Stopped.")
        await kit.screen.say(CHAT, "/retry")
        await kit.screen.shows(CHAT, "echo: please")
        assert await kit.asked(2) == [{"role": "user", "content": "please"}]


@pytest.mark.quick
async def test_a_restart_during_a_turn_is_reported_once_and_queued_messages_are_answered(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    async with ModelServer(talkative) as model:
        async with gateway(tmp_path, model, screen) as kit:
            await screen.say(CHAT, "hang on this")
            await screen.shows(CHAT, "so far")
            await screen.say(CHAT, "and then this")
            await screen.say("8", "calm")
            await screen.shows("8", "echo: calm")
        async with gateway(tmp_path, model, screen) as kit:
            await screen.shows(CHAT, "♻️ I was restarted while working on “hang on this”")
            await screen.shows(CHAT, "🆕 New conversation", "echo: and then this")
            assert await kit.asked(3) == [{"role": "user", "content": "and then this"}]
            assert "hang on this" in kit.system(3)
        async with gateway(tmp_path, model, screen) as kit:
            await screen.say("8", "goes on")
            await screen.shows("8", "echo: goes on")
    shown = texts(screen)
    assert sum("I was restarted" in text for text in shown) == 1
    assert sum("New conversation" in text for text in shown) == 1
    assert shown.count("so far ") + shown.count("so far") == 1
    assert texts(screen, "8") == ["echo: calm", "echo: goes on"]
    async with opened(tmp_path) as store:
        reasons = {s.key: s.reason for s in await store.sessions.list() if s.state == "suspended"}
        assert reasons == {"memory:7": SessionReason.RESTART}


@pytest.mark.quick
async def test_the_buttons_of_the_restart_notice_resume_the_turn(tmp_path: Path) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    hung = iter(['H T"abc" HANG'])

    def once(body: dict[str, object]) -> Script:
        return next(hung, None) or talkative(body)

    async with ModelServer(once) as model:
        async with gateway(tmp_path, model, screen):
            await screen.say(CHAT, "build it")
            await screen.shows(CHAT, "abc")
        async with gateway(tmp_path, model, screen) as kit:
            await screen.shows(CHAT, "♻️ I was restarted")
            notice = next(each for each in screen.messages(CHAT) if "restarted" in each.text)
            assert [button.label for button in notice.buttons] == ["Continue", "Start over"]
            await screen.say(CHAT, "something else")
            await screen.shows(CHAT, "echo: something else")
            await screen.press(CHAT, notice.buttons[1].action)
            await screen.shows(CHAT, "echo: build it")
            assert await kit.asked(3) == [{"role": "user", "content": "build it"}]
            await screen.press(CHAT, notice.buttons[1].action)
            await screen.shows(CHAT, "There's no message to run again.")


@pytest.mark.quick
async def test_an_interrupted_turn_resumes_by_itself_if_configured(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.EDIT, live_interval=0.01, burst=1000)
    settings = SessionSettings(on_interrupted="resume")
    hung = iter(['H T"abc" HANG'])

    def once(_: dict[str, object]) -> Script:
        return next(hung, None) or words("abc and the rest")

    async with ModelServer(once) as model:
        async with gateway(tmp_path, model, screen, sessions=settings):
            await screen.say(CHAT, "build it")
            await screen.shows(CHAT, "abc")
        async with gateway(tmp_path, model, screen, sessions=settings) as kit:
            await screen.shows(CHAT, "abc and the rest")
            *_, shown, asked = await kit.asked(2)
            assert shown == {"role": "assistant", "content": "abc"}
            assert "verbatim" in asked["content"]
    assert texts(screen) == ["abc and the rest"]
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        (turn,) = await store.turns.of_session(session.id)
        assert (turn.state, turn.resumed) == (TurnState.DONE, 1)


async def test_a_turn_that_keeps_killing_the_gateway_is_stuck_after_three_times(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.NONE)
    settings = SessionSettings(on_interrupted="resume")
    async with ModelServer(talkative) as model:
        for number in range(1, 5):
            async with gateway(tmp_path, model, screen, sessions=settings):
                if number == 1:
                    await screen.say(CHAT, "hang")
                async with asyncio.timeout(5):
                    await model.request(number)
        async with gateway(tmp_path, model, screen, sessions=settings):
            await screen.shows(CHAT, "♻️ I was restarted while working on “hang”")
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert session.reason is SessionReason.STUCK
    assert len(model.requests) == 4


@pytest.mark.quick
async def test_draining_keeps_messages_and_lets_running_turns_finish(
    tmp_path: Path,
) -> None:
    screen = Screen(live=Live.NONE)
    settings = GatewaySettings(drain_seconds=5)

    def slow(body: dict[str, object]) -> Script:
        return 'H W.4 T"finished" F stop D' if len(body["messages"]) == 2 else talkative(body)  # type: ignore[arg-type]

    async with ModelServer(slow) as model:
        async with gateway(tmp_path, model, screen, gateway=settings) as kit:
            await screen.say(CHAT, "long work")
            await model.request(1)
            kit.runner.stopping.set()
            await screen.say(CHAT, "more")
            await screen.shows(CHAT, "🔄 I'm restarting. Your message is saved")
            await screen.shows(CHAT, "finished")
        assert len(model.requests) == 1
        async with gateway(tmp_path, model, screen):
            await screen.shows(CHAT, "echo: more")
    assert not any("restarted while" in text for text in texts(screen))


async def test_a_failing_model_leads_to_a_notice_with_buttons(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "fail")
        (notice,) = await screen.shows(CHAT, "❌ Sorry, I couldn't finish this")
        assert [button.label for button in notice.buttons] == ["Go on", "Start over"]
        await screen.say(CHAT, "hello")
        await screen.shows(CHAT, "echo: hello")


async def test_strangers_get_a_code_in_private_chats_and_no_answer_in_rooms(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, admins=("memory:1001",)) as kit,
    ):
        screen = kit.screen
        eve = Sender("666", "Eve")
        assert await screen.say("666", "let me in", sender=eve) is Accepted.IGNORED
        (told,) = await screen.shows("666", "ask the owner")
        code = told.text.split()[-1]
        await screen.shows("1001", "👤 Eve (memory:666) asks for access.")
        await screen.say("666", "now?", sender=eve)
        await screen.shows("666", "Your request is still open")
        room = InboundMessage(
            "r1",
            2**50,
            address=Address("memory", "room"),
            sender=eve,
            parts=(Text("bot?"),),
            addressed=True,
        )
        assert await screen.inject(room) is Accepted.IGNORED
        await screen.shows("1001", "mentioned me in room")
        await screen.say("1001", f"/pair approve {code}")
        await screen.shows("1001", "✅ Eve (memory:666) now has access.")
        await screen.shows("666", "✅ You now have access.")
        await screen.say("666", "hello", sender=eve)
        await screen.shows("666", "echo: hello")
        await screen.say("666", "/pair list", sender=eve)
        await screen.shows("666", "Only an admin can do that.")
        await screen.say("1001", "/pair list")
        await screen.shows("1001", "memory:666 Eve: member since")
        await screen.say("1001", "/pair revoke memory:666")
        await screen.shows("1001", "🚫 memory:666 no longer has access.")
        assert await screen.say("666", "and now?", sender=eve) is Accepted.IGNORED
        assert screen.messages("room") == []
    async with opened(tmp_path) as store:
        kept = [each.entry for each in await store.trace("memory:666")]
        ignored = [entry for entry in kept if entry.state == "ignored"]
        assert ignored
        assert all(entry.payload is None for entry in ignored)


async def test_the_first_owner_claims_with_a_code_once(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model, allow=()) as kit:
        screen = kit.screen
        found = await kit.runner.operations["pair_claim"]()
        assert isinstance(found, dict)
        owner, thief = Sender("1", "Ann"), Sender("2", "Bob")
        await screen.say("2", "claim 22222222", sender=thief)
        await screen.shows("2", "This code is not valid")
        await screen.say("1", f"claim {found['code']}", sender=owner)
        await screen.shows("1", "🔑 You are now the owner")
        await screen.say("2", f"/start {found['code']}", sender=thief)
        await screen.until("2", lambda messages: len(messages) == 2)
        await screen.say("1", "/whoami", sender=owner)
        await screen.shows("1", "You are memory:1 (admin).")


async def test_a_person_with_access_can_claim_and_the_model_never_sees_the_code(
    tmp_path: Path,
) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        found = await kit.runner.operations["pair_claim"]()
        assert isinstance(found, dict)
        await kit.screen.say("1001", f"claim {found['code']}")
        await kit.screen.shows("1001", "🔑 You are now the owner")
    assert model.requests == []


async def test_unknown_commands_are_distinguished_from_text_with_a_slash(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "/stpo")
        await screen.shows(CHAT, "I don't know /stpo. Did you mean /stop?")
        await screen.say(CHAT, "/usr/bin is full")
        await screen.shows(CHAT, "echo: /usr/bin is full")
        await screen.say(CHAT, "/help")
        await screen.shows(CHAT, "/stop · stop the current task")
        await screen.say(CHAT, "!status")
        await screen.shows(CHAT, "💤 No active task.")
        await screen.say(CHAT, "/start")
        await screen.shows(CHAT, "👋 Hello!")


LISTED = re.compile(r"1\. hang on · \d{4}-\d\d-\d\d \d\d:\d\d UTC · \d messages? · stopped\n")


async def test_status_and_sessions_show_the_present_state(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, admins=("memory:1001",)) as kit,
    ):
        screen = kit.screen
        await screen.say(CHAT, "/sessions")
        await screen.shows(CHAT, "There's no earlier conversation here.")
        await screen.say(CHAT, "hang on")
        await screen.say(CHAT, "next")
        await screen.say(CHAT, "/status")
        await screen.shows(CHAT, "⏳ Working on “hang on”.\n1. queued: “next”")
        await screen.say("9", "/stop all")
        await screen.shows("9", "⏹ 1 task stopped.")
        await screen.shows(CHAT, "1 queued message is kept")
        await screen.say(CHAT, "/sessions")
        await screen.until(CHAT, lambda seen: any(LISTED.match(each.text) for each in seen))
        await screen.say(CHAT, "/resume *9")
        await screen.shows(CHAT, "There's no earlier conversation “\\*9” here. /sessions lists")
        await screen.say(CHAT, "/resume 1")
        await screen.shows(CHAT, "echo: next")
        await screen.say(CHAT, "/resume 9")
        await screen.shows(CHAT, "There's no earlier conversation to return to.")


async def test_edits_and_deletions_apply_to_queued_messages(tmp_path: Path) -> None:
    me, place = Sender("1001", "Somebody"), Address("memory", CHAT)
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "hang")
        await screen.say(CHAT, "wrogn", event="m2")
        await screen.say(CHAT, "secret", event="m3")
        edit = InboundEdit(
            "e1", 2**50, address=place, sender=me, message="m2", parts=(Text("right"),), direct=True
        )
        await screen.inject(edit)
        await screen.inject(
            InboundDelete("d1", 2**50, address=place, sender=me, message="m3", direct=True)
        )
        await screen.say(CHAT, "/stop")
        await screen.say(CHAT, "/resume")
        await screen.shows(CHAT, "right")
        await screen.say(CHAT, "last")
        await screen.shows(CHAT, "echo: last")
    asked = str([request.body for request in model.requests])
    assert "wrogn" not in asked
    assert "secret" not in asked


async def test_late_and_too_frequent_messages_get_a_notice_instead_of_an_answer(
    tmp_path: Path,
) -> None:
    limits = LimitSettings(messages_per_minute=2)
    async with ModelServer(talkative) as model, gateway(tmp_path, model, limits=limits) as kit:
        screen = kit.screen
        old = InboundMessage(
            "old",
            1,
            address=Address("memory", CHAT),
            sender=Sender("1001"),
            parts=(Text("hi"),),
            direct=True,
        )
        assert await screen.inject(old) is Accepted.STORED
        await screen.shows(CHAT, "reached me only now")
        for text in ("a", "b", "c"):
            await screen.say(CHAT, text)
        await screen.shows(CHAT, "more than 2 messages in a minute", "echo: b")
    assert len(model.requests) == 2


@pytest.mark.quick
async def test_the_command_line_can_send_stop_resume_and_delete(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen, do = kit.screen, kit.runner.operations
        sent = await do["send"](chat="memory:7", text="from outside")
        assert isinstance(sent, dict)
        assert sent["state"] == "sent"
        assert texts(screen) == ["from outside"]
        await screen.say(CHAT, "hang")
        await screen.shows(CHAT, "so far")
        assert kit.runner._store
        (session,) = await kit.runner._store.sessions.list()
        await do["stop"](session=session.id[:15])
        await screen.shows(CHAT, "⏹ Stopped.")
        await do["resume"](session=session.id)
        await screen.shows(CHAT, "↩️ Back")
        await do["delete"](session=session.id)
        with pytest.raises(Exception, match="No session has the id"):
            await do["stop"](session="s_nobody")
        with pytest.raises(
            Exception, match=r"telegram is not configured here\. Configured: memory\."
        ):
            await do["send"](chat="telegram:1", text="x")
        with pytest.raises(Exception, match="is not the name of a chat"):
            await do["send"](chat="nonsense", text="x")
        status = await do["status"]()
        assert isinstance(status, dict)
        assert status["platforms"] == {"memory": "connected"}
        assert await kit.runner.condition.problems() == []


@pytest.mark.quick
async def test_a_steering_message_reaches_the_model_after_the_next_tool_result(
    tmp_path: Path,
) -> None:
    calls = iter(["H W.3 C(0,c1,current_time,{}) F tool_calls U D"])

    def scripted(body: dict[str, object]) -> Script:
        return next(calls, None) or talkative(body)

    async with ModelServer(scripted) as model, gateway(tmp_path, model) as kit:
        await kit.screen.say(CHAT, "turn right")
        await kit.screen.say(CHAT, "/steer no, left")
        await kit.screen.shows(CHAT, "echo: no, left")
        asked = await kit.asked(2)
        assert [row["role"] for row in asked] == ["user", "assistant", "tool", "user"]
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert [row.role for row in await store.sessions.history(session.id)] == [
            *("user", "assistant", "tool", "user"),
            "assistant",
        ]
        (turn,) = await store.turns.of_session(session.id)
        states = {entry.state for entry in await store.inbox.of_turn(turn.id)}
        assert len(await store.inbox.of_turn(turn.id)) == 2
        assert states == {"done"}
    assert len(model.requests) == 2


async def test_only_messages_addressed_to_the_bot_are_answered_and_stored_in_rooms(
    tmp_path: Path,
) -> None:
    me, bot = Sender("1001", "Somebody"), Sender("9", "Robot", is_bot=True)
    room = Address("memory", "room")

    def said(name: str, sender: Sender, *, addressed: bool) -> InboundMessage:
        return InboundMessage(
            name,
            2**50,
            address=room,
            sender=sender,
            parts=(Text(f"words of {name}"),),
            addressed=addressed,
        )

    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        assert await screen.inject(said("aside", me, addressed=False)) is Accepted.IGNORED
        assert await screen.inject(said("robot", bot, addressed=True)) is Accepted.IGNORED
        assert await screen.inject(said("robot", bot, addressed=True)) is Accepted.DUPLICATE
        assert await screen.inject(said("meant", me, addressed=True)) is Accepted.STORED
        await screen.shows("room", "echo: words of meant")
        edit = InboundEdit(
            "e1", 2**50, address=room, sender=me, message="meant", parts=(Text("too late"),)
        )
        assert await screen.inject(edit) is Accepted.STORED
        assert await screen.inject(edit) is Accepted.DUPLICATE
        changed = InboundEdit(
            "e2",
            2**50,
            address=room,
            sender=me,
            message="aside",
            parts=(Text("words of another aside"),),
        )
        assert await screen.inject(changed) is Accepted.IGNORED
        assert await screen.inject(changed) is Accepted.DUPLICATE
    raw = (tmp_path / "holdfast.db").read_bytes()
    assert b"words of aside" not in raw
    assert b"words of another aside" not in raw
    assert b"words of robot" not in raw
    async with opened(tmp_path) as store:
        (session,) = await store.sessions.list()
        assert session.key == "memory:room:u=1001"


async def test_commands_without_arguments_explain_their_usage(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, admins=("memory:1001",)) as kit,
    ):
        screen = kit.screen
        for text, answer in [
            ("/queue", "Use: /queue your message"),
            ("/steer", "Use: /steer your message"),
            ("/pair", "Use: /pair list, /pair approve CODE (or ID) or /pair revoke ID"),
            ("/pair approve 22222222", "No open request has this code or id."),
            ("/pair revoke memory:5", "memory:5 has no access by pairing."),
            ("/pair list", "memory:1001: admin, in the configuration"),
            ("/resume 3", "There's no earlier conversation"),
            ("/undo", "There's nothing to undo."),
            ("/start", "👋 Hello!"),
        ]:
            await screen.say(CHAT, text)
            await screen.shows(CHAT, answer)
        await screen.press(CHAT, "no.such.button")
        await screen.shows(CHAT, "This button no longer works.")
        await screen.press(CHAT, "stop")
        await screen.shows(CHAT, "No active task to stop.")
    assert model.requests == []


@pytest.mark.quick
async def test_a_member_cannot_use_stop_all(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        await kit.screen.say("8", "hang")
        await kit.screen.say(CHAT, "/stop all")
        await kit.screen.shows(CHAT, "Only an admin can do that.")
        assert len(kit.runner.operations) > 5
        await kit.screen.shows("8", "so far")


async def test_health_and_metrics_work_without_the_web_page(tmp_path: Path) -> None:
    settings = HttpSettings(port=0, ui=False)
    async with (
        ModelServer(talkative) as model,
        gateway(tmp_path, model, served=True, http=settings) as kit,
        aiohttp.ClientSession() as http,
    ):
        assert kit.runner.url is None
        assert kit.runner._http_server
        address = kit.runner._http_server.url
        for path, status in (("livez", 200), ("readyz", 200), ("", 404)):
            async with http.get(f"{address}{path}") as response:
                assert response.status == status, path
        with pytest.raises(Exception, match="web page is off"):
            await kit.runner.operations["link"]()


async def test_the_button_of_a_failed_turn_continues_it(tmp_path: Path) -> None:
    scripts = ['H T"The beginning, " RST', "S500", "S500", 'H T"and the end." F stop D']
    async with ModelServer(*scripts) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "tell me")
        notice = (await screen.shows(CHAT, "❌ Sorry, I couldn't finish this"))[-1]
        go_on, _ = notice.buttons
        assert go_on.label == "Go on"
        await screen.press(CHAT, go_on.action)
        await screen.shows(CHAT, "and the end.")
        assert [each["role"] for each in await kit.asked(4)] == ["user", "assistant", "user"]
        await screen.press(
            CHAT, go_on.action
        )  # no effect, because the button belongs to an older turn
        await screen.shows(CHAT, "There's no earlier conversation")
        (session,) = await kit.runner._store.sessions.list()  # type: ignore[union-attr]
        turns = await kit.runner._store.turns.of_session(session.id)  # type: ignore[union-attr]
        assert [turn.state for turn in turns] == [TurnState.FAILED, TurnState.DONE]
        assert turns[1].request == "tell me"


@pytest.mark.quick
async def test_a_failed_turn_is_not_continued_while_another_runs(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, gateway(tmp_path, model) as kit:
        screen = kit.screen
        await screen.say(CHAT, "fail")
        notice = (await screen.shows(CHAT, "❌ Sorry, I couldn't finish this"))[-1]
        await screen.say(CHAT, "hang")
        await screen.shows(CHAT, "so far")
        await screen.press(CHAT, notice.buttons[0].action)
        await screen.shows(CHAT, "There's no earlier conversation")
