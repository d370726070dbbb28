"""One request to a real server that fails in every way, with scaled timeouts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from agent.answer.accumulate import (
    ANSWER_CUT_OFF,
    DEFAULT_MAX_CHARACTERS,
    Accumulator,
    ProgressKind,
)
from agent.answer.call_slots import ArgumentsState
from agent.answer.reasoning_blocks import ReasoningBlocks, decode_reasoning
from agent.attempt import AttemptResult, _compute_limits, run_attempt
from agent.errors import Looping, Stalled
from agent.events import ReasoningDelta, TextDelta
from agent.model.contract import Chunk, ModelRequest, TextChunk, ToolSchema
from agent.model.learned import LearnedTarget
from agent.model.usage import Usage
from agent.providers.registry import Target
from agent.settings import PriceSettings, TargetSettings, Timeouts
from agent.verdict import verdict_name
from sessions.records import Message
from tests.fakes.agent_kit import SCALED, LoopClock, openai_target
from tests.fakes.model_script import Script, steps, text
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

CLOCKS = msgspec.structs.replace(
    SCALED, first_token=0.6, gap_text=0.4, gap_tool=0.5, gap_reasoning=0.5, wire_dead=0.3
)
TOOLS = (ToolSchema("pay", "", {"type": "object", "required": ["amount"]}),)
REQUEST = ModelRequest("m", "", messages=(Message("user", "go"),), tools=TOOLS)


class Seen(AttemptResult, frozen=True, kw_only=True):
    shown: str
    thought: str
    took: float
    silences: list[tuple[float, float]]  # (seconds of silence, seconds until the timeout)
    requests: int


def never(_seconds: float, _remaining: float) -> None:
    """Fail the test: the answer must arrive in time."""
    raise AssertionError


async def attempt(
    script: Script,
    timeouts: Timeouts = CLOCKS,
    *,
    learned: LearnedTarget | None = None,
    price: PriceSettings | None = None,
    max_characters: int = DEFAULT_MAX_CHARACTERS,
) -> Seen:
    """Send one request; for an endless script, wait until the server sees the connection close."""
    shown: list[TextDelta | ReasoningDelta] = []
    silences: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(8), ModelServer(script) as server:
        target = openai_target(server.url, timeouts)
        target = msgspec.structs.replace(
            target, settings=msgspec.structs.replace(target.settings, price=price)
        )
        began = loop.time()
        result = await run_attempt(
            target,
            REQUEST,
            Accumulator(TOOLS, "p", max_characters=max_characters),
            clock=LoopClock(),
            learned=learned or LearnedTarget(),
            on_delta=shown.append,
            on_silence=lambda seconds, remaining: silences.append((seconds, remaining)),
        )
        took = loop.time() - began
        received = await server.request(1)
        if isinstance(script, str) and script.endswith(("HANG", "]*")):
            await received.closed.wait()
        requests = len(server.requests)
        await target.provider.aclose()
    return Seen(
        verdict=result.verdict,
        step=result.step,
        cause=result.cause,
        usage=result.usage,
        shown="".join(delta.text for delta in shown if isinstance(delta, TextDelta)),
        thought="".join(delta.text for delta in shown if isinstance(delta, ReasoningDelta)),
        took=took,
        silences=silences,
        requests=requests,
    )


@pytest.mark.parametrize(
    ("script", "verdict", "phase", "shown"),
    [
        pytest.param('H T"Hel" T"lo" F stop U D', "complete", "", "Hello", id="complete"),
        pytest.param('H T"all" F stop RST', "complete", "", "all", id="reset after the end"),
        pytest.param('H T"ok" D', "soft-complete", "", "ok", id="end marker only"),
        pytest.param('H T"ok" U EOF', "soft-complete", "", "ok", id="usage only"),
        pytest.param('H T"ok" J{"choices":[],"lastOne":true} EOF', "soft-complete", "", "ok", id="lastOne"),
        pytest.param('H T"ok" D HANG', "soft-complete", "", "ok", id="the socket stays open"),
        pytest.param('H T"half" RST', "cut", "text", "half", id="reset in the text"),
        pytest.param('H T"half" FIN', "cut", "text", "half", id="closed in the text"),
        pytest.param('H T"half" EOF', "cut", "text", "half", id="end of stream in the text"),
        pytest.param("RST", "cut", "before-first", "", id="reset before the headers"),
        pytest.param("H RST", "cut", "before-first", "", id="reset after the headers"),
        pytest.param("H EOF", "cut", "before-first", "", id="an empty body"),
        pytest.param('H R"hm" RST', "cut", "reasoning", "", id="reset in the reasoning"),
        pytest.param("H C(0,c1,pay,-) EOF", "cut", "tool-name", "", id="only a name"),
        pytest.param('H C(0,c1,pay,\'{"amount": 1\') EOF', "cut", "tool-args", "", id="half a call"),
        pytest.param('H C(0,c1,pay,{"amount":1}) EOF', "cut", "call-whole-unsealed", "", id="unsealed call"),
        pytest.param('H C(0,c1,pay,{"amount":1}) F tool_calls RST', "complete", "", "", id="complete call"),
        pytest.param('H C(0,c1,pay,\'{"amount": 1\') F tool_calls U D', "capped", "", "", id="output limit relabelled as tool_calls"),
        pytest.param('H T"x" F length U D', "capped", "", "x", id="output limit"),
        pytest.param('H T"no" F content_filter D', "refused", "", "no", id="refused"),
        pytest.param("H F stop U D", "empty", "", "", id="empty"),
        pytest.param('H T"<th" D', "soft-complete", "", "<th", id="held text released at the end"),
        pytest.param("S500", "cut", "before-first", "", id="server error"),
        pytest.param("S401", "cut", "before-first", "", id="key refused"),
    ],
)  # fmt: skip
async def test_an_attempt_is_judged(script: str, verdict: str, phase: str, shown: str) -> None:
    seen = await attempt(script)
    assert (seen.verdict_name, seen.phase, seen.shown) == (verdict, phase, shown)
    assert seen.requests == 1


async def test_silence_after_the_finish_reason_is_not_an_error() -> None:
    seen = await attempt('H T"all" F stop HANG')
    assert (seen.verdict_name, seen.shown, seen.cause) == ("complete", "all", "")


# Each window is the timeout plus some tolerance for a busy machine.
@pytest.mark.parametrize(
    ("script", "cause", "after"),
    [
        pytest.param("HANG", "first_token", CLOCKS.first_token, id="no headers"),
        pytest.param("H HANG", "first_token", CLOCKS.first_token, id="headers and silence"),
        pytest.param("H [P W.05]*", "first_token", CLOCKS.first_token, id="pings only"),
        pytest.param("H [B W.05]*", "first_token", CLOCKS.first_token, id="empty deltas only"),
        pytest.param('H T"a" HANG', "gap_text", CLOCKS.gap_text, id="silence in the text"),
        pytest.param('H T"a" [P W.05]*', "gap_text", CLOCKS.gap_text, id="pings in the text"),
        pytest.param(
            'H R"a" HANG', "gap_reasoning", CLOCKS.gap_reasoning, id="silence in the reasoning"
        ),
        pytest.param("H C(0,c,pay,'{') HANG", "gap_tool", CLOCKS.gap_tool, id="silence in a call"),
        pytest.param("H W.05 P HANG", "wire_dead", CLOCKS.wire_dead, id="pings stop"),
    ],
)
async def test_a_silent_request_times_out(script: str, cause: str, after: float) -> None:
    seen = await attempt(script)
    assert seen.verdict_name == "cut"
    assert seen.cause == f"Stalled: timeout: {cause}"
    assert after - 0.02 <= seen.took < after + 1.0


async def test_an_endless_answer_hits_the_lifetime_limit() -> None:
    seen = await attempt('H [T"a" W.1]*', msgspec.structs.replace(CLOCKS, lifetime=0.7))
    assert (seen.verdict_name, seen.cause) == ("cut", "Stalled: timeout: lifetime")
    assert 0.68 <= seen.took < 1.7
    assert set(seen.shown) == {"a"}


async def test_a_slow_stream_with_progress_does_not_time_out() -> None:
    seen = await attempt('H [T"a " W.2]*5 F stop D')
    assert (seen.verdict_name, seen.shown) == ("complete", "a " * 5)


async def test_an_answer_below_the_minimum_rate_times_out() -> None:
    slow = msgspec.structs.replace(CLOCKS, min_rate=10.0, min_rate_window=0.6)
    seen = await attempt('H [T"a" W.15]*', slow)
    assert (seen.verdict_name, seen.cause) == ("cut", "Stalled: timeout: min_rate")
    assert 0.58 <= seen.took < 1.5


# --- learned facts, cost and notices ---------------------------------------------------------------


async def test_the_time_to_the_first_token_is_learned() -> None:
    learned = LearnedTarget()
    for _ in range(4):
        learned.record_first_token(0.001)
    assert learned.slow_first_token_seconds() is None
    await attempt('H W.1 T"a" F stop D', learned=learned)
    soft = learned.slow_first_token_seconds()
    assert soft is not None
    assert soft >= 0.2


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ('H T"a" W.3 T"b" F stop D', "text"),
        ('H R"a" W.3 R"b" F stop D', "reasoning"),
        ('H T"a" W.1 T"b" F stop D', None),
    ],
)
async def test_only_long_gaps_are_learned(script: str, kind: str | None) -> None:
    learned = LearnedTarget()
    for each in ("text", "reasoning"):
        for _ in range(49):
            learned.record_gap(each, 0.001)
    await attempt(script, learned=learned)
    gaps = {each: learned.longest_gap_seconds(each) for each in ("text", "reasoning")}
    assert [each for each, gap in gaps.items() if gap is not None] == ([kind] if kind else [])
    assert all(gap is None or gap >= 2.4 for gap in gaps.values())


async def test_a_slow_start_learned_earlier_delays_the_silence_notice() -> None:
    learned = LearnedTarget()
    early = msgspec.structs.replace(CLOCKS, notice_after=0.1)
    script = 'W.2 H T"x" F stop D'
    assert (await attempt(script, early)).silences
    for _ in range(5):
        learned.record_first_token(0.3)
    assert (await attempt(script, early, learned=learned)).silences == []


def test_timeouts_depend_on_the_model_the_request_and_learned_gaps() -> None:
    learned = LearnedTarget()
    settings = TargetSettings(provider="openai", name="o1")
    target = Target(Tired(), "o1", settings)
    plain = ModelRequest("m", "", (Message("user", "go"),))
    long = ModelRequest("m", "x" * 40_000, (Message("user", "y" * 40_000),))
    assert _compute_limits(target, plain, learned).first_token == 90
    assert _compute_limits(target, long, learned).first_token == 90 + 1.5 * 10
    thinker = msgspec.structs.replace(plain, reasoning_effort="high")
    assert _compute_limits(target, thinker, learned).first_token == 300
    known = msgspec.structs.replace(plain, model="o1")
    assert _compute_limits(target, known, learned).first_token == 600
    for _ in range(50):
        learned.record_gap("text", 20.0)
    gaps = _compute_limits(target, plain, learned).gaps
    assert 160 <= gaps[ProgressKind.TEXT] <= 190
    assert gaps[ProgressKind.TOOL] == 150


async def test_text_without_an_end_marker_is_complete_for_a_service_known_to_omit_it() -> None:
    learned = LearnedTarget()
    assert (await attempt('H T"ok" EOF', learned=learned)).verdict_name == "cut"
    learned.record_unmarked_end()
    learned.record_unmarked_end()
    assert (await attempt('H T"ok" EOF', learned=learned)).verdict_name == "soft-complete"
    assert (await attempt('H T"ok" RST', learned=learned)).verdict_name == "cut"


async def test_the_result_contains_usage_and_request_id() -> None:
    seen = await attempt('H T"Hel" R"x" F stop U(7) D')
    assert seen.usage == Usage(10, 7)
    assert (seen.received_characters, seen.request_id, seen.cause) == (4, "req_scripted", "")


async def test_a_configured_price_sets_the_cost() -> None:
    seen = await attempt(
        'H T"x" F stop U(7,100,60) D', price=PriceSettings(input=1.0, output=10.0, cached=0.5)
    )
    assert seen.usage == Usage(100, 7, 60, (40 * 1.0 + 60 * 0.5 + 7 * 10.0) / 1_000_000)


async def test_the_cost_is_unknown_without_reported_usage() -> None:
    seen = await attempt('H T"x" D', price=PriceSettings(input=1.0, output=10.0))
    assert seen.usage == Usage()


async def test_stored_reasoning_carries_the_targets_label() -> None:
    seen = await attempt('H R"hm " R"well" T"x" F stop D')
    row = seen.stored_reasoning("openai/m")
    assert decode_reasoning(row, "openai/m") == ReasoningBlocks("openai/m", "hm well")
    assert decode_reasoning(row, "openai/other") is None
    assert (await attempt('H T"x" F stop D')).stored_reasoning("openai/m") is None


async def test_only_a_cut_verdict_has_an_error() -> None:
    assert isinstance((await attempt('H T"x" HANG')).error, Stalled)
    assert (await attempt('H T"x" EOF')).error is None
    assert (await attempt('H T"x" F stop D')).error is None


SOON = msgspec.structs.replace(CLOCKS, first_token_soft=0.2, notice_after=0.15, gap_text=0.8)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # The first notice has its own delay; more follow every third of `notice_after`.
        pytest.param('W.33 H T"x" F stop D', [0.2, 0.25, 0.3], id="before the first token"),
        pytest.param('H T"x" W.22 T"y" F stop D', [0.15, 0.2], id="inside the text"),
        pytest.param('H T"x" W.1 T"y" W.1 T"z" F stop D', [], id="only short gaps"),
        pytest.param('H T"x" W.18 T"y" W.18 F stop D', [0.15, 0.15], id="each gap on its own"),
        pytest.param('H T"x" [P W.05]*4 F stop D', [0.15, 0.2], id="pings are silence"),
        pytest.param('H T"x" F stop W.3 D', [], id="after the finish reason"),
    ],
)
async def test_long_silence_triggers_the_silence_callback(
    script: str, expected: list[float]
) -> None:
    seen = await attempt(script, SOON)
    assert [seconds for seconds, _ in seen.silences] == pytest.approx(expected, abs=0.04)


async def test_the_silence_callback_receives_the_remaining_time() -> None:
    seen = await attempt('H T"x" W.18 F stop D', SOON)
    ((seconds, remaining),) = seen.silences
    assert seconds + remaining == pytest.approx(0.8, abs=0.02)


async def test_a_failing_silence_callback_leaves_the_timeouts_running() -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: reported.append(str(context.get("exception")))
    )

    def broken(_seconds: float, _remaining: float) -> None:
        msg = "no words for it"
        raise ValueError(msg)

    async with asyncio.timeout(3), ModelServer("H HANG") as server:
        target = openai_target(server.url, SOON)
        result = await run_attempt(
            target,
            REQUEST,
            Accumulator(TOOLS, "p"),
            clock=LoopClock(),
            learned=LearnedTarget(),
            on_delta=lambda _: None,
            on_silence=broken,
        )
        await target.provider.aclose()
    assert isinstance(result.error, Stalled)
    assert set(reported) == {"no words for it"}


# --- endless answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "verdict", "shown"),
    [
        pytest.param(
            'H T"12345678" T"90abc" T"never read" HANG',
            "complete",
            "1234567890" + ANSWER_CUT_OFF,
            id="text",
        ),
        pytest.param('H T"1234567890" F stop U D', "complete", "1234567890", id="just fits"),
        pytest.param('H R"12345678" R"90abc" HANG', "capped", "", id="reasoning"),
        pytest.param(
            "H C(0,c1,pay,'{\"amount\": 1234567890') HANG", "capped", "", id="arguments of a call"
        ),
    ],
)
async def test_an_answer_beyond_the_limit_is_ended_and_its_connection_closed(
    script: str, verdict: str, shown: str
) -> None:
    seen = await attempt(script, max_characters=10)
    assert verdict_name(seen.verdict) == verdict
    assert seen.shown == shown
    assert seen.step.text == shown
    assert all(call.arguments_state is not ArgumentsState.COMPLETE for call in seen.step.calls)


# --- repetition ------------------------------------------------------------------------------------

BLOCK = "".join(chr(97 + at * 7 % 26) for at in range(120)) + " end. "
LOOP = BLOCK * 200


async def test_a_repeating_text_is_stopped_and_its_repetition_dropped() -> None:
    seen = await attempt((*steps("H"), text("Well then: "), text(LOOP), *steps("HANG")))
    assert isinstance(seen.error, Looping)
    assert (seen.verdict_name, seen.step.text, seen.step.calls) == ("cut", "Well then: ", ())


async def test_text_emitted_inside_a_loop_is_not_part_of_the_result() -> None:
    pieces = [text(LOOP[at : at + 500]) for at in range(0, len(LOOP), 500)]
    seen = await attempt((*steps('H C(0,c1,pay,{"amount":1}) T"So. "'), *pieces, *steps("HANG")))
    assert len(seen.shown) > 4000  # shown until the loop was detected
    assert (seen.step.text, seen.step.calls) == ("So. ", ())
    assert seen.took < (CLOCKS.gap_text or 0)


async def test_repeating_reasoning_is_stopped_and_dropped() -> None:
    script = f'H R"First. " R"{LOOP}" HANG'
    seen = await attempt(script)
    assert isinstance(seen.error, Looping)
    assert (seen.step.reasoning, seen.step.opaque_parts, seen.step.text) == ("First. ", (), "")
    assert seen.phase == "reasoning"


async def test_repeating_arguments_are_stopped() -> None:
    seen = await attempt(f'H C(0,c1,pay,\'{{"amount":"{LOOP}\') HANG')
    assert isinstance(seen.error, Looping)
    assert (seen.verdict_name, seen.phase) == ("cut", "tool-args")


# --- cancellation ----------------------------------------------------------------------------------


async def test_cancelling_closes_the_connection_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5), ModelServer('H T"abc" HANG') as server:
        target = openai_target(server.url)
        seen = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                run_attempt(
                    target,
                    REQUEST,
                    Accumulator((), "p"),
                    clock=LoopClock(),
                    learned=LearnedTarget(),
                    on_delta=lambda _: seen.set(),
                    on_silence=never,
                )
            )
            await seen.wait()
            told = loop.time()
            task.cancel()
        received = await server.request(1)
        await received.closed.wait()
        assert task.cancelled()
        assert received.left
        assert received.closed_at is not None
        assert received.closed_at - told < 0.1
        await target.provider.aclose()


class Tired:
    """Provider whose own code raises `TimeoutError`."""

    name = "tired"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        async def chunks() -> AsyncIterator[Chunk]:
            yield TextChunk("x")
            raise TimeoutError

        yield chunks()

    async def aclose(self) -> None:
        pass


async def test_a_foreign_timeout_error_is_not_treated_as_a_watchdog_timeout() -> None:
    target = Target(Tired(), "m", TargetSettings(timeouts=SCALED))
    with pytest.raises(TimeoutError):
        await run_attempt(
            target,
            REQUEST,
            Accumulator((), "p"),
            clock=LoopClock(),
            learned=LearnedTarget(),
            on_delta=lambda _: None,
            on_silence=never,
        )
