"""Turns whose model fails, is cut off, or exhausts its output on reasoning."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from agent.answer.reasoning_blocks import ReasoningBlocks, decode_reasoning
from agent.events import Notice, ReasoningReplaced, TextDelta, TextReplaced, TurnEnding
from agent.model.contract import Chunk, ModelRequest, TextChunk
from agent.model.usage import Usage
from agent.settings import Timeouts
from sessions.records import Message
from tests.fakes.model_script import Event, calls, ok, steps, text
from tests.fakes.model_server import always
from tests.unit.agent.turn_kit import CLOCKS, LOST_PAY, READ_A, Play

pytestmark = pytest.mark.quick

# --- retries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("RST", id="reset before headers"),
        pytest.param("H RST", id="reset after headers"),
        pytest.param("H EOF", id="empty body"),
        pytest.param('H R"hm" RST', id="reset in the reasoning"),
        pytest.param(f"H {LOST_PAY} RST", id="half a call"),
        pytest.param("H C(0,c1,pay,-) EOF", id="only a name"),
        pytest.param("S500", id="server error"),
        pytest.param('S429:{"retry-after":"0.01"}', id="rate limit"),
        pytest.param("H F stop D", id="empty answer"),
        pytest.param("H HANG", id="silence"),
    ],
)
async def test_failures_before_any_text_are_retried_and_nothing_runs(
    play: Play, first: str
) -> None:
    stage = await play(first, ok("done"))
    done = await stage.run()
    assert (done.ending, done.text, done.attempts) == (TurnEnding.ANSWERED, "done", 2)
    assert stage.shop.effects == []
    assert stage.journal.rows == []
    assert stage.server.requests[0].body == stage.server.requests[1].body


async def test_a_blank_answer_counts_as_empty(play: Play) -> None:
    stage = await play('H T"\\n\\n" F stop D', ok("done"))
    done = await stage.run()
    assert (done.text.strip(), done.attempts) == ("done", 2)
    assert stage.server.requests[0].body == stage.server.requests[1].body


async def test_the_turn_ends_with_the_cause_after_two_retries(play: Play) -> None:
    stage = await play(always("H RST"))
    done = await stage.run()
    assert (done.ending, done.text, done.message, done.attempts) == (TurnEnding.FAILED, "", None, 3)
    assert (done.cause, done.notice) == ("connection drops on the way to the model", "N7")
    assert done.tell_operator  # an outage affects all users
    assert stage.journal.verdicts == ["cut"] * 3


@pytest.mark.parametrize(
    ("script", "words", "tell"),
    [
        ("S400", "refused the request (scripted error)", False),
        ("S401", "key", True),
        ("S402", "account", True),
        ('S429:{"retry-after":"601"}', "limits the rate", False),
        ('H J{"error":{"message":"x","code":"context_length_exceeded"}}', "too long", False),
    ],
)
async def test_permanent_errors_are_not_retried(
    play: Play, script: str, words: str, tell: bool
) -> None:
    stage = await play(script)
    done = await stage.run()
    assert (done.ending, done.attempts, done.tell_operator) == (TurnEnding.FAILED, 1, tell)
    assert words in done.cause


async def test_a_refusal_is_quoted(play: Play) -> None:
    stage = await play('H T"I will not." F content_filter D')
    done = await stage.run()
    assert (done.ending, done.notice, done.cause) == (TurnEnding.FAILED, "N9", "I will not.")
    assert done.message == Message(
        "assistant", "I will not.", interrupted="the model declined to answer"
    )


async def test_a_refusal_without_text_has_a_default_cause(play: Play) -> None:
    done = await (await play("H F content_filter D")).run()
    assert (done.notice, done.cause, done.message) == ("N9", "no reason given", None)


@pytest.mark.parametrize(
    ("first", "follow", "text", "cause", "tries"),
    [
        pytest.param('H T"The quick " RST', "H RST", "The quick ", "connection drops", 3, id="cut"),
        pytest.param('H T"The quick " HANG', "S401", "The quick ", "key", 2, id="silence"),
        pytest.param(
            'H T"The quick " F length D', 'H T"x" F length D', "The quick x",
            "output limit", 3, id="limit",
        ),
        pytest.param(
            f'H T"Paying. " {LOST_PAY} RST', "S401", "Paying. ", "key", 2, id="half a call"
        ),
    ],
)  # fmt: skip
async def test_visible_text_is_kept_when_the_turn_fails(
    play: Play, first: str, follow: str, text: str, cause: str, tries: int
) -> None:
    stage = await play(first, *[follow] * 4)
    done = await stage.run()
    assert (done.ending, done.text, done.attempts) == (TurnEnding.FAILED, text, tries)
    assert stage.shown == text
    assert cause in done.cause
    assert done.message == Message("assistant", text, interrupted=done.cause)
    assert stage.shop.effects == []


async def test_waits_have_jitter_unless_the_service_named_them(play: Play) -> None:
    """Half of each wait is random."""
    told = 'S429:{"retry-after":"0.3"}'
    for script, least, most in (("S500", 0.15, 0.28), (told, 0.3, 0.45)):
        stage = await play(script, ok("done"))
        stage.settings = {"timeouts": msgspec.structs.replace(CLOCKS, backoff=0.3)}
        stage.randomness = lambda: 0.0
        await stage.run()
        first, second = stage.server.requests
        assert least <= round(second.at - first.at, 6) < most


# --- cut texts --------------------------------------------------------------------------------


COUNTED = Event(
    b'{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":10,"completion_tokens":3}}'
)


"""Some services send usage with every chunk."""


async def test_a_cut_text_is_continued_exactly(play: Play) -> None:
    stage = await play(
        (*steps('H T"The quick brown "'), COUNTED, *steps("RST")),
        'H T"The quick brown fox jumps." F stop U(4) D',
    )
    done = await stage.run()
    assert (done.text, done.attempts) == ("The quick brown fox jumps.", 2)
    assert done.usage == Usage(20, 7)
    assert stage.events == [TextDelta("The quick brown "), TextDelta("fox jumps.")]
    assert stage.sent(2)[:-1] == [
        *stage.sent(1),
        {"role": "assistant", "content": "The quick brown "},
    ]
    assert "«The quick brown »" in stage.asked(2)
    assert "network" in stage.asked(2)
    assert "length limit" not in stage.asked(2)
    assert stage.journal.verdicts == ["cut", "complete"]


async def test_a_capped_text_is_continued_with_a_higher_limit(play: Play) -> None:
    stage = await play('H T"One, " F length D', 'H T"One, two, " F length D', ok("three."))
    stage.settings = {"max_output_tokens": 100}
    done = await stage.run()
    assert done.text == "One, two, three."
    assert [request.max_tokens for request in stage.server.requests] == [100, 200, 400]
    for number in (2, 3):
        assert "output length limit" in stage.asked(number)
        assert "network" not in stage.asked(number)


async def test_without_a_configured_limit_the_used_tokens_are_doubled(play: Play) -> None:
    stage = await play('H T"One, " F length U(5000) D', ok("two."))
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [None, 10_000]


async def test_a_raised_limit_applies_to_one_step(play: Play) -> None:
    stage = await play('H T"One " F length D', calls(READ_A), ok("done"))
    stage.settings = {"max_output_tokens": 100}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [100, 200, 100]


async def test_a_rejected_limit_is_lowered_to_the_models_maximum(play: Play) -> None:
    stage = await play(
        'S400"max_tokens is too large: 9999. This model supports at most 4096 completion tokens"',
        ok("done"),
    )
    stage.settings = {"max_output_tokens": 9999}
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 2)
    assert [request.max_tokens for request in stage.server.requests] == [9999, 4096]


async def test_a_rejected_limit_without_a_named_maximum_is_halved(play: Play) -> None:
    stage = await play('S400"max_tokens is too large"', ok("done"))
    stage.settings = {"max_output_tokens": 9998}
    await stage.run()
    assert [request.max_tokens for request in stage.server.requests] == [9998, 4999]


async def test_a_restarted_answer_is_not_shown_twice(play: Play) -> None:
    old = "It was the best of times, it was the worst of times, it was the age of "
    stage = await play(f'H T"{old}" RST', f'H T"{old}" T"wisdom." F stop D')
    done = await stage.run()
    assert done.text == stage.shown == f"{old}wisdom."


async def test_reasoning_is_replaced_by_each_request(play: Play) -> None:
    stage = await play('H R"think" RST', 'H R"again" T"42" F stop D')
    done = await stage.run()
    kinds = [type(event).__name__ for event in stage.events]
    assert kinds == ["ReasoningDelta", "ReasoningReplaced", "ReasoningDelta", "TextDelta"]
    assert ReasoningReplaced() in stage.events
    assert done.message is not None
    assert decode_reasoning(done.message.reasoning, "openai/scripted") == ReasoningBlocks(
        "openai/scripted", "again"
    )


async def test_exhausted_reasoning_is_retried_with_less_effort(play: Play) -> None:
    stage = await play('H R"hm" F length D', ok("done"))
    stage.settings = {"max_output_tokens": 100, "reasoning_effort": "medium"}
    assert (await stage.run()).text == "done"
    sent = [(r.body["reasoning_effort"], r.max_tokens) for r in stage.server.requests]
    assert sent == [("medium", 100), ("low", 200)]


async def test_exhausted_reasoning_ends_the_turn_the_second_time(play: Play) -> None:
    stage = await play(always('H R"hm" F length D'))
    done = await stage.run()
    assert (done.notice, done.attempts) == ("N8", 2)


async def test_an_empty_answer_after_tools_is_nudged(play: Play) -> None:
    stage = await play(calls(READ_A), "H F stop D", "H F stop D", ok("done"))
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 4)
    assert stage.sent(2) == stage.sent(3)
    assert "empty" in stage.asked(4)


async def test_repeating_text_is_removed(play: Play) -> None:
    block = "".join(chr(97 + at * 7 % 26) for at in range(120)) + " end. "
    stage = await play(
        (*steps("H"), *[text(block)] * 200, *steps("HANG")),
        'H T"Then it was over." F stop D',
    )
    done = await stage.run()
    assert done.text == stage.shown == "Then it was over."
    assert any(isinstance(event, TextReplaced) for event in stage.events)
    assert "repeating the same words" in stage.asked(2)
    assert block not in json.dumps(stage.sent(2))


# --- services without streaming ---------------------------------------------------------------


async def test_a_service_that_cannot_stream_is_asked_without_streaming(play: Play) -> None:
    stage = await play('S400"Streaming is not supported by this model"', calls(READ_A), ok("done"))
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 3)
    assert [request.stream for request in stage.server.requests] == [True, False, False]
    assert not stage.learned().should_stream(stage.clock.monotonic())


async def test_a_service_whose_streams_all_break_is_asked_without_streaming(play: Play) -> None:
    stage = await play(*["H FIN"] * 3, ok("done"))
    done = await stage.run()
    assert (done.text, done.attempts) == ("done", 4)
    assert [request.stream for request in stage.server.requests] == [True, True, True, False]
    assert not stage.learned().should_stream(stage.clock.monotonic())


async def test_an_error_that_breaks_each_stream_is_named_without_a_stream(play: Play) -> None:
    too_long = 'S400"This model\'s maximum context length is 20 tokens"'
    stage = await play(*["H FIN"] * 3, *[too_long] * 5)
    done = await stage.run()
    assert done.ending is TurnEnding.FAILED
    assert "too long" in done.cause
    assert done.too_long


async def test_learned_facts_apply_to_the_next_turn(play: Play) -> None:
    stage = await play(ok("done"))
    stage.learned().record_no_streaming(stage.clock.monotonic())
    assert (await stage.run()).text == "done"
    assert [request.stream for request in stage.server.requests] == [False]


async def test_an_unmarked_end_is_checked_until_it_is_learned(play: Play) -> None:
    bare = 'H T"All is well here." EOF'
    stage = await play(*[bare] * 9)
    tries = []
    for _ in range(3):
        done = await stage.run()
        assert done.text == "All is well here."
        tries.append(done.attempts)
    assert tries == [2, 2, 1]


async def test_one_end_marker_makes_unmarked_ends_suspect_again(play: Play) -> None:
    bare = 'H T"All is well here." EOF'
    stage = await play(bare, bare, ok("done"), *[bare] * 4)
    assert [(await stage.run()).attempts for _ in range(4)] == [2, 1, 2, 2]


# --- notices -------------------------------------------------------------------------------------


def clocks(**changed: float) -> dict[str, Timeouts]:
    return {"timeouts": msgspec.structs.replace(CLOCKS, **changed)}


async def test_a_silence_notice_contains_its_length_and_the_next_retry(play: Play) -> None:
    stage = await play("H HANG", ok("done"))
    stage.settings = clocks(notice_after=3.0, first_token=5.0)
    await stage.run()
    told = [
        event.fields for event in stage.events if isinstance(event, Notice) and event.id == "N1"
    ]
    assert [(fields["model"], fields["n"], fields["d"]) for fields in told] == [
        ("scripted", 3, 5),
        ("scripted", 4, 5),
    ]


@pytest.mark.parametrize(("backoff", "told"), [(0.9, []), (1.1, ["N2"])])
async def test_a_recovery_notice_is_emitted_after_a_sixth_of_notice_after(
    play: Play, backoff: float, told: list[str]
) -> None:
    stage = await play("H RST", ok("done"))
    stage.settings = clocks(notice_after=6.0, backoff=backoff)
    await stage.run()
    assert stage.notices == told


# --- unknown errors -----------------------------------------------------------------------------


class Unsound:
    """Provider that raises an error it should have mapped to a `ProviderError`."""

    name = "unsound"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0
        self.left = 0

    @asynccontextmanager
    async def stream(self, _request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        self.asked += 1
        try:
            yield self._chunks()
        finally:
            self.left += 1

    async def _chunks(self) -> AsyncIterator[Chunk]:
        yield TextChunk("so far ")
        raise self.error

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


@pytest.mark.parametrize(
    "error", [Exception("Connection reset by peer"), RuntimeError("stream broke")], ids=str
)
async def test_an_unknown_error_propagates_after_one_request(play: Play, error: Exception) -> None:
    stage = await play(ok("never asked"))
    second = await stage.fallback(ok("never asked either"))
    unsound = Unsound(error)
    stage.target()
    stage.targets[0] = msgspec.structs.replace(stage.targets[0], provider=unsound)
    with pytest.raises(type(error)) as raised:
        await stage.run()
    assert raised.value is error
    assert (unsound.asked, unsound.left) == (1, 1)
    assert stage.server.requests == second.requests == []
    assert stage.shown == "so far "


# --- models that continue a final assistant message ----------------------------------------------


async def test_a_service_that_ignores_a_prefilled_text_is_asked_in_words_from_then_on(
    play: Play,
) -> None:
    text = "The quick brown fox jumps over the lazy dog."
    stage = await play(
        f'H T"{text[:20]}" RST', f'H T"{text[:30]}" RST', f'H T"{text[10:]}" F stop D'
    )
    stage.target()
    stage.targets[0] = msgspec.structs.replace(stage.target(), model="claude-opus-4-1")
    done = await stage.run()
    assert done.text == stage.shown == text
    last = [stage.sent(number)[-1]["role"] for number in (1, 2, 3)]
    assert last == ["user", "assistant", "user"]


async def test_the_estimate_of_a_budget_leaves_a_prefilled_text_alone(play: Play) -> None:
    stage = await play('H T"It is Java" RST', ok("Script."))
    stage.target()
    stage.targets[0] = msgspec.structs.replace(stage.target(), model="claude-opus-4-1")
    stage.journal.reserves = True
    done = await stage.run()
    assert done.text == stage.shown == "It is JavaScript."
