"""Turns with tools that the client of the API runs."""

import re
from typing import Any

import pytest

from agent.client_calls import steps_of_loop, turn_of_call
from agent.client_tools import ToolOffer
from agent.events import ToolStarted, TurnDone, TurnEnding
from agent.model.answer_options import AnswerOptions, ClientToolChoice, ToolMode
from agent.model.contract import ToolChoice, ToolSchema
from agent.tools.registry import ToolRegistry
from agent.turn import TurnLimits
from sessions.records import Message, ToolCall
from tests.fakes.agent_kit import Workshop, target_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, calls, ok
from tests.unit.agent.turn_kit import CLOCKS, GO, Play, Stage

pytestmark = pytest.mark.quick

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolSchema("weather", "Look up the weather.", CITY)
BERLIN = '{"city": "Berlin"}'


def options(
    *tools: ToolSchema, mode: ToolMode = ToolMode.AUTO, names: tuple[str, ...] = (), **more: Any
) -> AnswerOptions:
    choice = ClientToolChoice(mode=mode, names=names)
    return AnswerOptions(tools=tools, tool_choice=choice, **more)


async def run(
    play: Play, *scripts: Script, asked: AnswerOptions | None = None
) -> tuple[Stage, TurnDone]:
    stage = await play(*scripts)
    stage.task = {"turn_id": "t_01abc", "options": asked or options(WEATHER)}
    return stage, await stage.run()


async def test_a_call_of_a_client_tool_ends_the_turn(play: Play) -> None:
    stage, done = await run(
        play, 'H T"Let me look." C(0,c1,weather,{"city": "Berlin"}) F tool_calls U D'
    )
    (call,) = done.client_calls
    assert (done.ending, done.text, done.message) == (TurnEnding.ANSWERED, "Let me look.", None)
    assert (call.name, call.arguments) == ("weather", BERLIN)
    assert re.fullmatch(r"call_01abc_[0-9a-f]{12}", call.id)
    assert turn_of_call(call.id) == "t_01abc"
    (row,) = stage.journal.rows
    assert row.tool_calls == done.client_calls
    assert {"weather", "pay"} <= set(stage.offered(1))
    assert not [event for event in stage.events if isinstance(event, ToolStarted)]


async def test_own_calls_of_a_mixed_answer_run_first(play: Play) -> None:
    both = calls(("c1", "weather", BERLIN), ("c2", "pay", '{"amount": 5}'))
    stage, done = await run(play, both)
    assert [call.name for call in done.client_calls] == ["weather"]
    assert stage.shop.effects == ["pay 5"]
    row, result = stage.journal.rows
    assert [call.name for call in row.tool_calls] == ["weather", "pay"]
    assert (result.tool_call_id, result.content) == ("c2", "paid 5")


async def test_a_call_with_arguments_that_do_not_fit_is_refused_and_asked_again(play: Play) -> None:
    stage, done = await run(
        play, calls(("c1", "weather", '{"town": "Berlin"}')), calls(("c2", "weather", BERLIN))
    )
    assert [call.arguments for call in done.client_calls] == [BERLIN]
    assert "has NOT run, its arguments do not fit" in stage.journal.rows[1].content


@pytest.mark.parametrize(
    "cut",
    [
        'H C(0,c1,weather,\'{"city": "Ber\') EOF',
        'H C(0,c1,weather,{"city": "Berlin"}) RST',
        'H C(0,c1,weather,\'{"city": "Ber\') F length U D',
    ],
)
async def test_a_cut_call_is_never_handed_out(play: Play, cut: Script) -> None:
    stage, done = await run(play, cut, ok("Never mind."))
    assert (done.client_calls, done.text) == ((), "Never mind.")
    assert stage.journal.rows == []


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param("C(1,c2,pay,'{\"amo') RST", id="own call cut in its arguments"),
        pytest.param('C(1,c2,pay,{"amount": 5}) RST', id="own call without an end"),
        pytest.param("C(1,c2,pay,'{\"amo') F length U D", id="own call over the limit"),
    ],
)
async def test_a_cut_call_beside_a_valid_one_is_reported_to_the_model(
    play: Play, lost: str
) -> None:
    stage, done = await run(play, f'H C(0,c1,weather,{{"city": "Berlin"}}) {lost}')
    assert [call.name for call in done.client_calls] == ["weather"]
    assert stage.shop.effects == []
    row, result = stage.journal.rows
    assert [(call.name, call.arguments) for call in row.tool_calls] == [
        ("weather", BERLIN),
        ("pay", "{}"),
    ]
    assert result.tool_call_id == row.tool_calls[1].id
    assert "pay has NOT run: the call was cut off" in result.content


async def test_a_cut_call_with_half_a_name_is_left_out(play: Play) -> None:
    stage, done = await run(play, 'H C(0,c1,weather,{"city": "Berlin"}) C(1,c2,pa,-) RST')
    assert [call.name for call in done.client_calls] == ["weather"]
    (row,) = stage.journal.rows
    assert row.tool_calls == done.client_calls


def loop_of(steps: int) -> tuple[Message, ...]:
    """A history in which the client ran a call in each of this many steps."""
    rows = [Message("user", "Before."), *_step("call_01old_000000000000"), Message("user", "Go.")]
    for number in range(steps):
        rows += _step(f"call_01abc_{number:012x}")
    return tuple(rows)


def _step(call_id: str) -> list[Message]:
    call = ToolCall(call_id, "weather", BERLIN)
    return [
        Message("assistant", tool_calls=(call,)),
        Message("tool", "sunny", tool_call_id=call_id),
    ]


@pytest.mark.parametrize(
    ("history", "steps"),
    [
        ((Message("user", "Go."),), 0),
        (loop_of(0), 0),
        (loop_of(1), 1),
        (loop_of(3), 3),
        ((*loop_of(3), Message("assistant", "Sunny."), Message("user", "And now?")), 0),
    ],
)
def test_steps_of_a_tool_loop_are_counted_from_the_last_message(
    history: tuple[Message, ...], steps: int
) -> None:
    assert steps_of_loop(history) == steps


@pytest.mark.parametrize(("earlier", "offered"), [(0, True), (1, True), (2, False), (9, False)])
async def test_the_step_limit_holds_over_the_requests_of_a_tool_loop(
    play: Play, earlier: int, *, offered: bool
) -> None:
    stage = await play(ok("Sunny."))
    stage.task = {"turn_id": "t_01abc", "options": options(WEATHER), "history": loop_of(earlier)}
    stage.limits = TurnLimits(max_steps=2)
    done = await stage.run()
    assert (done.ending, done.text) == (TurnEnding.ANSWERED, "Sunny.")
    assert bool(stage.offered(1)) is offered


async def test_the_client_tool_wins_over_a_tool_with_the_same_name(play: Play) -> None:
    pay = ToolSchema("pay", "Pay at the client.", CITY)
    stage, done = await run(play, calls(("c1", "pay", BERLIN)), asked=options(pay))
    assert [call.name for call in done.client_calls] == ["pay"]
    assert stage.shop.effects == []
    assert stage.offered(1)["pay"] == CITY


async def test_no_tools_are_offered_if_the_client_wants_none(play: Play) -> None:
    stage, done = await run(play, ok("Plain."), asked=options(WEATHER, mode=ToolMode.NONE))
    assert done.text == "Plain."
    assert "tools" not in stage.server.requests[0].body


async def test_a_required_call_offers_the_client_tools_alone(play: Play) -> None:
    other = ToolSchema("search", "Search.", {"type": "object"})
    asked = options(WEATHER, other, mode=ToolMode.REQUIRED, parallel_tool_calls=False)
    stage, done = await run(play, calls(("c1", "weather", BERLIN)), asked=asked)
    body = stage.server.requests[0].body
    assert set(stage.offered(1)) == {"weather", "search"}
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert done.client_calls


async def test_a_client_that_wants_one_call_at_a_time_gets_one(play: Play) -> None:
    both = calls(("c1", "weather", BERLIN), ("c2", "weather", '{"city": "Rome"}'))
    asked = options(WEATHER, parallel_tool_calls=False)
    stage, done = await run(play, both, asked=asked)
    assert [call.arguments for call in done.client_calls] == [BERLIN]
    assert stage.journal.rows[0].tool_calls == done.client_calls


async def test_a_named_tool_is_the_only_one_on_offer(play: Play) -> None:
    other = ToolSchema("search", "Search.", {"type": "object"})
    asked = options(WEATHER, other, mode=ToolMode.REQUIRED, names=("weather",))
    stage, _ = await run(play, calls(("c1", "weather", BERLIN)), asked=asked)
    named = {"type": "function", "function": {"name": "weather"}}
    assert (set(stage.offered(1)), stage.server.requests[0].body["tool_choice"]) == (
        {"weather"},
        named,
    )


async def test_without_client_tools_only_the_first_step_requires_a_call(play: Play) -> None:
    asked = options(mode=ToolMode.REQUIRED)
    stage, done = await run(play, calls(("c1", "read", '{"path": "a"}')), ok("Done."), asked=asked)
    assert done.text == "Done."
    assert stage.server.requests[0].body["tool_choice"] == "required"
    assert "tool_choice" not in stage.server.requests[1].body


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_protocol_carries_a_call_and_its_result(
    play: Play, protocol: ProtocolName
) -> None:
    stage = await play(calls(("c1", "weather", BERLIN)), ok("Sunny."))
    stage.targets = [target_for(protocol, stage.server.url, CLOCKS)]
    stage.task = {"turn_id": "t_01abc", "options": options(WEATHER)}
    first = await stage.run()
    (call,) = first.client_calls
    assert call.arguments == BERLIN
    result = Message("tool", "sunny", tool_call_id=call.id)
    second = await stage.run(GO, *stage.journal.rows, result)
    assert second.text == "Sunny."
    _, asked, answered = stage.server.requests[1].asked.messages
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] == call.id
    assert answered["content"] == "sunny"


def test_allowed_tools_keep_the_own_tools() -> None:
    own = ToolRegistry(Workshop().tools())
    other = ToolSchema("search", "Search.", {"type": "object"})
    offer = ToolOffer(own, options(WEATHER, other, names=("search",)))
    assert "weather" not in offer.registry.by_name
    assert {"search", "pay"} <= set(offer.registry.by_name)
    assert offer.choice(1) is None


def test_a_turn_without_client_tools_keeps_its_registry() -> None:
    own = ToolRegistry(Workshop().tools())
    offer = ToolOffer(own, AnswerOptions())
    assert (offer.registry, offer.client_names, offer.choice(1)) == (own, frozenset(), None)


@pytest.mark.parametrize("names", [(), ("weather",)])
def test_a_required_call_holds_until_the_client_gets_one(names: tuple[str, ...]) -> None:
    offer = ToolOffer(ToolRegistry(()), options(WEATHER, mode=ToolMode.REQUIRED, names=names))
    assert offer.choice(3) == ToolChoice("weather")


@pytest.mark.parametrize("id_", ["", "call_t_01abc_1_0", "call_abc", "toolu_01", "call_01_xyz"])
def test_other_ids_belong_to_no_turn(id_: str) -> None:
    assert not turn_of_call(id_)
