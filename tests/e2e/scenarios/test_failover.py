"""Fallback to other models when the primary fails."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.access.settings import AccessSettings
from sessions.records import TurnState
from tests.e2e.scenarios.scenario_kit import CHAT, SCALED, now, stage
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, calls
from tests.fakes.model_server import ModelServer

OK = 'H T"done" F stop U D EOF'
QUICK = msgspec.structs.replace(SCALED, first_token=0.4)
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def within_two_gaps() -> float:
    """Return the longest acceptable delay of a stalled model, with some tolerance."""
    assert QUICK.first_token is not None
    return 2 * QUICK.first_token + 0.2


def hangs(_: object) -> Script:
    return "H HANG"


def answers(_: object) -> Script:
    return OK


@each_protocol
async def test_a_stalled_model_is_replaced_by_the_fallback(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    async with (
        ModelServer(OK) as f1,
        stage(tmp_path, protocol, hangs, fallbacks=[f1], timeouts=QUICK) as scene,
    ):
        await scene.go()
        assert len(scene.requests) == 2
        assert f1.requests[0].at - scene.requests[0].at < within_two_gaps()
        assert "N5" in scene.told.ids
        (words,) = [words for notice, words in scene.told.notices if notice == "N5"]
        assert "is not responding" in words
        assert words.endswith(" with f1")
        assert f1.requests[0].model == "f1"
        assert b"scripted" not in f1.requests[0].raw
        assert await scene.history() == ["U:go", "A:done"]
        assert scene.shown() == ["done"]
        await scene.check()


@each_protocol
@pytest.mark.parametrize(
    ("scripts", "asked"),
    [
        pytest.param(["S503", "H RST", "H EOF"], 3, id="three failures"),
        pytest.param(["S401"], 1, id="key rejected"),
    ],
)
async def test_a_failing_model_is_replaced_by_the_fallback(
    tmp_path: Path, protocol: ProtocolName, scripts: list[Script], asked: int
) -> None:
    async with (
        ModelServer(OK) as f1,
        stage(tmp_path, protocol, *scripts, fallbacks=[f1]) as scene,
    ):
        turn = await scene.go()
        assert turn.state is TurnState.DONE
        assert len(scene.requests) == asked
        assert len(f1.requests) == 1
        assert f1.requests[0].model == "f1"
        assert "N5" in scene.told.ids
        assert scene.shown()[-1].endswith("done")
        await scene.check()


async def test_two_concurrent_conversations_both_reach_the_fallback(tmp_path: Path) -> None:
    async with (
        ModelServer(answers) as f1,
        stage(tmp_path, "chat", hangs, fallbacks=[f1], timeouts=QUICK) as scene,
    ):
        await scene.say("one", chat=CHAT)
        await scene.say("two", chat="8")
        await scene.ends(chat=CHAT)
        await scene.ends(chat="8")
        assert len(f1.requests) == 2
        for taken_over in f1.requests:
            assert taken_over.at - scene.requests[0].at < within_two_gaps()
        assert await scene.history(CHAT) == ["U:one", "A:done"]
        assert await scene.history("8") == ["U:two", "A:done"]
        await scene.check()


async def test_a_model_with_an_open_breaker_is_skipped_by_the_next_conversation(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(answers) as f1,
        stage(tmp_path, "chat", hangs, fallbacks=[f1], timeouts=QUICK) as scene,
    ):
        await scene.go("one")
        asked = len(scene.requests)
        began = now()
        await scene.say("two", chat="8")
        await scene.ends(chat="8")
        assert now() - began < 0.4
        assert len(scene.requests) == asked
        assert len(f1.requests) == 2
        assert await scene.history("8") == ["U:two", "A:done"]
        await scene.check()


async def test_the_primary_is_tried_again_in_the_turn_after_a_rejected_request(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer(OK) as f1,
        stage(tmp_path, "chat", "S400", OK, fallbacks=[f1]) as scene,
    ):
        await scene.go("one")
        await scene.go("two")
        assert (len(scene.requests), len(f1.requests)) == (2, 1)
        await scene.check()


@each_protocol
@pytest.mark.parametrize("other", ["chat", "anthropic", "responses"])
async def test_the_fallback_sees_completed_calls_and_does_not_repeat_them(
    tmp_path: Path, protocol: ProtocolName, other: ProtocolName
) -> None:
    pay: Script = 'H R"let me think" T"Paying." C(0,c1,pay,{"amount":5}) F tool_calls U D EOF'
    again = calls(("c9", "pay", '{"amount":5}'))
    async with (
        ModelServer(again, OK) as f1,
        stage(tmp_path, protocol, pay, "S401", fallbacks=[f1], fallback_protocol=other) as scene,
    ):
        await scene.go()
        assert scene.desk.ran == ["pay 5"]
        _, paying, result = f1.requests[0].messages
        assert paying["content"] == "Paying."
        assert [(c["name"], c["arguments"]) for c in paying["tool_calls"]] == [
            ("pay", '{"amount":5}')
        ]
        assert result["content"] == "paid 5"
        assert result["tool_call_id"] == paying["tool_calls"][0]["id"]
        assert b"let me think" not in f1.requests[0].raw
        assert b"sealed" not in f1.requests[0].raw
        assert b"signature" not in f1.requests[0].raw
        assert b"scripted" not in f1.requests[0].raw
        history = await scene.history()
        assert history[-2:] == [
            "T:already done in this turn (call c1): paid 5",
            "A:done",
        ]
        await scene.check()


@each_protocol
async def test_visible_text_is_continued_by_the_fallback(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    text = "It was a bright cold day in April, and the clocks "
    async with (
        ModelServer('H T"and the clocks were striking." F stop U D') as f1,
        stage(tmp_path, protocol, f'H T"{text}" RST', "S401", fallbacks=[f1]) as scene,
    ):
        await scene.go()
        assert scene.shown() == [f"{text}were striking."]
        assert await scene.history() == ["U:go", f"A:{text}were striking."]
        *_, shown, asked = f1.requests[0].messages
        assert shown["content"].rstrip() == text.rstrip()
        assert "network" in asked["content"]
        await scene.check()


async def test_the_second_fallback_is_used_when_the_first_fails(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer("S401") as f1,
        ModelServer(OK) as f2,
        stage(tmp_path, "chat", "S402", fallbacks=[f1, f2]) as scene,
    ):
        await scene.go()
        assert [len(each.requests) for each in (scene.kit.model, f1, f2)] == [1, 1, 1]
        assert f2.requests[0].model == "f2"
        assert scene.shown() == ["done"]
        await scene.check()


async def test_a_duplicate_entry_of_the_same_model_is_not_a_fallback(tmp_path: Path) -> None:
    async with (
        ModelServer(OK) as f1,
        stage(tmp_path, "chat", fallbacks=[f1], model={"base_url": f1.url, "name": "f1"}) as scene,
    ):
        await scene.go()
        assert scene.shown() == ["done"]
        await scene.go()
        assert len(f1.requests) == 4  # three attempts in the second turn
        assert "N5" not in scene.told.ids
        assert "❌" in scene.shown()[-1]
        await scene.check()


async def test_each_model_gets_the_same_retry_budget(tmp_path: Path) -> None:
    async with (
        ModelServer("S500", "S500", OK) as f1,
        stage(tmp_path, "chat", "S500", "S500", "S500", fallbacks=[f1]) as scene,
    ):
        await scene.go()
        assert (len(scene.requests), len(f1.requests)) == (3, 3)
        assert scene.shown() == ["done"]
        await scene.check()


async def test_adjusted_limits_do_not_carry_over_to_the_fallback(tmp_path: Path) -> None:
    capped = 'H T"half of it" F length U D'
    async with (
        ModelServer(OK) as f1,
        stage(
            tmp_path, "chat", capped, "S401", fallbacks=[f1], model={"max_output_tokens": 50}
        ) as scene,
    ):
        await scene.go()
        assert [request.max_tokens for request in scene.requests] == [50, 100]
        assert f1.requests[0].max_tokens is None
        await scene.check()


# --- no model answers ----------------------------------------------------------------------------


OPERATORS = ["S401", "S402"]


@each_protocol
@pytest.mark.parametrize("script", OPERATORS, ids=["key", "payment"])
async def test_a_failure_only_an_administrator_can_fix_is_reported_to_the_admins_once(
    tmp_path: Path, protocol: ProtocolName, script: str
) -> None:
    access = AccessSettings(allow=("memory:1001",), admins=("memory:2002",))
    async with stage(tmp_path, protocol, script, script, access=access) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 1
        (notice,) = scene.shown()
        assert "The administrator has been notified." in notice
        assert "I can't reach the model right now" in notice  # the details go to the admins
        (told,) = scene.shown("2002")
        assert "The model can't be used" in told
        await scene.go("once more")
        assert len(scene.shown("2002")) == 1
        assert "The administrator has been notified" not in scene.shown()[-1]
        assert await scene.history() == ["U:go", "U:once more"]
        await scene.check()


async def test_an_outage_is_reported_to_the_admins(tmp_path: Path) -> None:
    access = AccessSettings(allow=("memory:1001",), admins=("memory:2002",))
    async with stage(tmp_path, "chat", *["S503"] * 3, access=access) as scene:
        await scene.go()
        assert len(scene.requests) == 3
        assert "The administrator has been notified." in scene.shown()[0]
        assert len(scene.shown("2002")) == 1
        await scene.check()


async def test_a_service_that_refuses_connections_is_tried_three_times(tmp_path: Path) -> None:
    async with ModelServer() as gone:
        url = gone.url
    async with stage(tmp_path, "chat", OK, model={"base_url": url}) as scene:
        turn = await scene.go()
        assert turn.attempts == 3
        (notice,) = scene.shown()
        assert "cannot be reached" in notice
        assert scene.requests == []
        assert await scene.history() == ["U:go"]
        await scene.check()


@each_protocol
@pytest.mark.parametrize("status", ["S400", "S422", "S404"])
async def test_the_same_rejected_request_is_never_sent_a_third_time(
    tmp_path: Path, protocol: ProtocolName, status: str
) -> None:
    async with (
        ModelServer(f'{status}"no such thing"') as f1,
        stage(tmp_path, protocol, f'{status}"no such thing"', fallbacks=[f1]) as scene,
    ):
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert (len(scene.requests), len(f1.requests)) == (1, 1)
        assert "no such thing" in scene.shown()[0]
        assert await scene.history() == ["U:go"]
        await scene.check()


@each_protocol
@pytest.mark.parametrize(
    "fallback", [False, True], ids=["no fallback", "fallback that declines as well"]
)
async def test_a_refusal_is_reported_with_the_text_so_far(
    tmp_path: Path, protocol: ProtocolName, fallback: bool
) -> None:
    declined = 'H T"I would rather not." F content_filter U D'
    async with (
        ModelServer("H F content_filter U D") as f1,
        stage(tmp_path, protocol, declined, fallbacks=[f1] if fallback else []) as scene,
    ):
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        text, notice = scene.shown()
        assert text == "I would rather not."
        assert notice == "⚠️ The model declined to go on."
        assert len(scene.requests) == 1
        assert len(f1.requests) == int(fallback)
        assert await scene.history() == ["U:go", "A!:I would rather not."]
        await scene.check()


async def test_an_empty_answer_is_retried_once_before_giving_up(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, "chat", *["H F stop U D"] * 2) as scene:
        turn = await scene.go()
        assert turn.state is TurnState.FAILED
        assert len(scene.requests) == 2
        assert scene.requests[0].body == scene.requests[1].body
        assert "empty answer" in scene.shown()[0]
        assert await scene.history() == ["U:go"]
        await scene.check()


@each_protocol
async def test_an_empty_answer_after_tools_is_nudged_once(
    tmp_path: Path, protocol: ProtocolName
) -> None:
    call = calls(("c1", "read", '{"path":"a"}'))
    async with stage(tmp_path, protocol, call, "H F stop U D", "H F stop U D", OK) as scene:
        await scene.go()
        asked: list[dict[str, Any]] = scene.asked(4)
        assert "was empty" in asked[-1]["content"]
        assert all("was empty" not in m["content"] for m in scene.asked(3))
        assert scene.desk.ran == ["read a"]
        assert await scene.history() == ["U:go", "A{read}", "T:content of a", "A:done"]
        await scene.check()
