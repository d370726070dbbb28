"""Turns of conversations that exceed their model's context window."""

import json
from typing import Any

import msgspec
import pytest

from agent.events import TurnEnding
from agent.model.usage import Usage
from sessions.records import Message
from tests.fakes.model_script import Script, calls, ok
from tests.unit.agent.turn_kit import (
    GO,
    LONG,
    OLD,
    READ_A,
    TOO_LONG,
    Play,
)

pytestmark = pytest.mark.quick


async def test_a_conversation_that_is_too_long_is_compacted_and_sent_again(play: Play) -> None:
    stage = await play(TOO_LONG, ok("An old story."), ok("done"))
    done = await stage.run(*OLD)
    assert (done.text, done.attempts) == ("done", 3)
    assert done.usage == Usage(20, 10)  # includes the summary request
    assert stage.journal.summaries == [(1, "An old story.")]
    assert stage.journal.log == [
        "attempt 1 openai/scripted",
        "attempt 1 cut",
        "attempt 2 openai/scripted",
        "attempt 2 complete",
        "compacted",
        "attempt 3 openai/scripted",
        "attempt 3 complete",
    ]
    assert stage.notices == ["N12"]
    assert stage.shown == "done"
    assert LONG not in json.dumps(stage.sent(3))
    assert "An old story." in stage.sent(3)[1]["content"]
    assert stage.learned().context_window == 3000


async def test_requests_are_listed_when_the_summary_request_fails(play: Play) -> None:
    stage = await play(TOO_LONG, "S500", ok("done"))
    assert (await stage.run(*OLD)).text == "done"
    ((keep, summary),) = stage.journal.summaries
    assert keep == 1
    assert "Earlier messages are no longer visible" in summary


async def test_a_conversation_known_to_be_too_long_is_compacted_before_sending(play: Play) -> None:
    stage = await play(ok("An old story."), calls(READ_A), ok("done"))
    stage.settings = {"context_window": 4000}
    done = await stage.run(*OLD)
    assert (done.text, done.attempts) == ("done", 3)
    assert stage.notices == ["N12"]
    assert len(stage.journal.summaries) == 1


async def test_a_continued_text_that_outgrows_the_window_triggers_compaction(play: Play) -> None:
    parts = [" ".join(f"w{part}x{word}" for word in range(300)) for part in range(2)]
    capped = [f'H T" {part}" F length U(100) D' for part in parts]
    stage = await play(*capped, ok("An old story."), ok("And so it ends."))
    stage.settings = {"context_window": 4000}
    old = [Message(role, "old words " * 80) for _ in range(5) for role in ("user", "assistant")]
    done = await stage.run(*old, GO)
    assert done.ending is TurnEnding.ANSWERED
    assert all(part in done.text for part in (*parts, "And so it ends."))
    assert stage.notices.count("N12") == 1
    assert stage.journal.verdicts == ["capped", "capped", "complete", "complete"]


async def test_a_conversation_that_cannot_be_compacted_ends_the_turn(play: Play) -> None:
    stage = await play(*[TOO_LONG] * 9)
    done = await stage.run(Message("user", LONG * 3))
    assert (done.ending, done.attempts) == (TurnEnding.FAILED, 1)
    assert "too long for the model" in done.cause
    assert stage.notices == []  # no summary was requested


async def test_a_conversation_is_checked_against_the_window_once_per_target(play: Play) -> None:
    """A conversation that stays too long is sent anyway, because the estimate may be wrong."""
    stage = await play(ok("An old story."), "H RST", "H RST", ok("done"))
    stage.settings = {"context_window": 1200}
    done = await stage.run(*OLD[:2], Message("user", LONG))
    assert (done.text, done.attempts) == ("done", 4)
    assert len(stage.journal.summaries) == 1


async def test_switching_to_a_model_with_a_smaller_window_compacts_the_conversation(
    play: Play,
) -> None:
    stage = await play("S401")
    second = await stage.fallback(ok("An old story."), ok("done"))
    stage.target()
    settings = msgspec.structs.replace(stage.target(1).settings, context_window=4000)
    stage.targets[1] = msgspec.structs.replace(stage.target(1), settings=settings)
    done = await stage.run(*OLD)
    assert (done.text, done.attempts) == ("done", 3)
    assert stage.notices == ["N5", "N12"]
    assert LONG not in second.requests[1].raw.decode()


async def test_reported_token_counts_correct_the_estimate(play: Play) -> None:
    stage = await play("H F stop U(1,9000) D", ok("done"))
    stage.settings = {"context_window": 8000}
    await stage.run(*OLD)
    assert 1.5 < stage.learned().token_correction <= 2.0


async def test_an_estimate_from_before_a_compaction_is_not_compared_with_reported_tokens(
    play: Play,
) -> None:
    stage = await play(ok("An old story."), ok("done"))
    stage.settings = {"context_window": 4000}
    await stage.run(*OLD)
    assert len(stage.journal.summaries) == 1
    assert stage.learned().token_correction == 1.0


async def test_a_service_that_always_reports_overflow_ends_the_turn(play: Play) -> None:
    def complain(body: dict[str, Any]) -> Script:
        return ok("short") if "tools" not in body else TOO_LONG

    stage = await play(complain)
    rows = [
        row
        for at in range(40)
        for row in (Message("user", f"{at} {LONG}"), Message("assistant", "ok"))
    ]
    done = await stage.run(*rows, GO)
    assert done.ending is TurnEnding.FAILED
    assert "too long" in done.cause
    assert len(stage.journal.summaries) <= 3
