"""One request against a real server that fails in every way; real, scaled clocks."""

import asyncio

import msgspec
import pytest

from agent.accumulate import Accumulator
from agent.attempt import AttemptResult, run_attempt
from agent.events import ReasoningDelta, TextDelta
from agent.providers.contract import ModelRequest, ToolSchema
from agent.settings import Timeouts
from sessions.records import Message
from tests.fakes.agent_kit import SCALED, LoopClock, openai_target
from tests.fakes.model_server import ModelServer

TOOLS = (ToolSchema("pay", "", {"type": "object", "required": ["amount"]}),)


class Seen(AttemptResult, frozen=True, kw_only=True):
    shown: str
    took: float


async def attempt(script: str, timeouts: Timeouts = SCALED) -> Seen:
    """One request; afterwards the server must have seen the connection close or be free again."""
    shown: list[TextDelta | ReasoningDelta] = []
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(8), ModelServer(script) as server:
        target = openai_target(server.url, timeouts)
        request = ModelRequest("m", "", (Message("user", "go"),), TOOLS)
        began = loop.time()
        result = await run_attempt(
            target, request, Accumulator(TOOLS, "p"), clock=LoopClock(), show=shown.append
        )
        took = loop.time() - began
        received = await server.request(1)
        if script.endswith(("HANG", "]*")):
            await received.closed.wait()
        assert len(server.requests) == 1
        await target.provider.aclose()
    text = "".join(delta.text for delta in shown if isinstance(delta, TextDelta))
    return Seen(result.verdict, result.step, result.cause, shown=text, took=took)


@pytest.mark.parametrize(
    ("script", "verdict", "phase", "shown"),
    [
        pytest.param('H T"Hel" T"lo" F stop U D', "complete", "", "Hello", id="whole"),
        pytest.param('H T"all" F stop RST', "complete", "", "all", id="reset after the end"),
        pytest.param('H T"all" F stop HANG', "complete", "", "all", id="silence after the end"),
        pytest.param('H T"ok" D', "soft-complete", "", "ok", id="only the end mark"),
        pytest.param('H T"ok" U EOF', "soft-complete", "", "ok", id="only the count"),
        pytest.param('H T"ok" J{"choices":[],"lastOne":true} EOF', "soft-complete", "", "ok", id="lastOne"),
        pytest.param('H T"ok" D HANG', "soft-complete", "", "ok", id="the socket stays open"),
        pytest.param('H T"half" RST', "cut", "text", "half", id="reset in the text"),
        pytest.param('H T"half" FIN', "cut", "text", "half", id="closed in the text"),
        pytest.param('H T"half" EOF', "cut", "text", "half", id="the text just ends"),
        pytest.param("RST", "cut", "before-first", "", id="reset before the headers"),
        pytest.param("H RST", "cut", "before-first", "", id="reset after the headers"),
        pytest.param("H EOF", "cut", "before-first", "", id="an empty body"),
        pytest.param('H R"hm" RST', "cut", "reasoning", "", id="reset while thinking"),
        pytest.param("H C(0,c1,pay,-) EOF", "cut", "tool-name", "", id="only a name"),
        pytest.param('H C(0,c1,pay,\'{"amount": 1\') EOF', "cut", "tool-args", "", id="half a call"),
        pytest.param('H C(0,c1,pay,{"amount":1}) EOF', "cut", "call-whole-unsealed", "", id="unproven"),
        pytest.param('H C(0,c1,pay,{"amount":1}) F tool_calls RST', "complete", "", "", id="call"),
        pytest.param('H C(0,c1,pay,\'{"amount": 1\') F tool_calls U D', "capped", "", "", id="relabelled"),
        pytest.param('H T"x" F length U D', "capped", "", "x", id="limit"),
        pytest.param('H T"no" F content_filter D', "refused", "", "no", id="refused"),
        pytest.param("H F stop U D", "empty", "", "", id="nothing"),
        pytest.param('H T"<th" D', "soft-complete", "", "<th", id="held back until the end"),
        pytest.param("S500", "cut", "before-first", "", id="server error"),
        pytest.param("S401", "cut", "before-first", "", id="key refused"),
    ],
)  # fmt: skip
async def test_judges(script: str, verdict: str, phase: str, shown: str) -> None:
    seen = await attempt(script)
    assert (seen.name, seen.phase, seen.shown) == (verdict, phase, shown)


# Windows: the clock of the table, and a little for a machine that is busy.
@pytest.mark.parametrize(
    ("script", "cause", "after"),
    [
        pytest.param("HANG", "first_token", SCALED.first_token, id="no headers"),
        pytest.param("H HANG", "first_token", SCALED.first_token, id="headers and silence"),
        pytest.param("H [P W.05]*", "first_token", SCALED.first_token, id="pings only"),
        pytest.param("H [B W.05]*", "first_token", SCALED.first_token, id="empty pieces only"),
        pytest.param('H T"a" HANG', "gap_text", SCALED.gap_text, id="silence in the text"),
        pytest.param('H T"a" [P W.05]*', "gap_text", SCALED.gap_text, id="pings in the text"),
        pytest.param('H R"a" HANG', "gap_reasoning", SCALED.gap_reasoning, id="silence in thought"),
        pytest.param("H C(0,c,pay,'{') HANG", "gap_tool", SCALED.gap_tool, id="silence in a call"),
        pytest.param("H P HANG", "wire_dead", SCALED.wire_dead, id="the pings end"),
    ],
)
async def test_gives_up_on_silence(script: str, cause: str, after: float) -> None:
    seen = await attempt(script)
    assert seen.name == "cut"
    assert seen.cause == f"Stalled: given up: {cause}"
    assert after - 0.02 <= seen.took < after + 1.0


async def test_gives_up_on_an_answer_that_never_ends() -> None:
    seen = await attempt('H [T"a" W.3]*', msgspec.structs.replace(SCALED, lifetime=1.0))
    assert (seen.name, seen.cause) == ("cut", "Stalled: given up: lifetime")
    assert 0.98 <= seen.took < 2.0
    assert set(seen.shown) == {"a"}


async def test_a_slow_but_living_stream_is_left_alone() -> None:
    seen = await attempt('H [T"a " W.4]*5 F stop D')
    assert (seen.name, seen.shown) == ("complete", "a " * 5)


async def test_says_what_it_cost_and_what_the_service_calls_it() -> None:
    seen = await attempt('H T"Hel" R"x" F stop U(7) D')
    assert (seen.input_tokens, seen.output_tokens) == (10, 7)
    assert (seen.received, seen.request_id, seen.cause) == (4, "req_scripted", "")


async def test_cancelling_closes_the_connection_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(5), ModelServer('H T"abc" HANG') as server:
        target = openai_target(server.url)
        request = ModelRequest("m", "", (Message("user", "go"),))
        seen = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                run_attempt(
                    target,
                    request,
                    Accumulator((), "p"),
                    clock=LoopClock(),
                    show=lambda _: seen.set(),
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
