"""Tools of API clients over a whole gateway, by OpenAI's library and raw HTTP."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from agent.settings import AgentSettings
from gateway.access.api_keys import Requester
from gateway.http.api.answers import StoredAnswers
from gateway.settings import HttpSettings
from sessions.records import AWAITING_CLIENT, Message, Turn
from sessions.values.secret import Secret
from tests.e2e.api_kit import (
    KEY,
    ApiKit,
    Wire,
    chunks,
    daemon_for,
    finish_of,
    named,
    polled,
    served,
    user,
    why,
)
from tests.fakes.agent_kit import Workshop
from tests.fakes.http_client import library_client
from tests.fakes.model_script import Script, calls, ok
from tests.fakes.model_server import ModelServer

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "Look it up.", "parameters": CITY},
}
FLAT: Any = {"type": "function", **WEATHER["function"]}
BERLIN = '{"city":  "Berlin"}'
CALL = calls(("c1", "weather", BERLIN))
MIXED = calls(("c1", "weather", BERLIN), ("c2", "pay", '{"amount": 5}'))


def calls_of(answer: ChatCompletion) -> list[Any]:
    return list(answer.choices[0].message.tool_calls or ())


def result(call: Any, content: str = "sunny") -> Any:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def output_of(answer: Response, said: str) -> Any:
    (call,) = [each for each in answer.output if each.type == "function_call"]
    return {"type": "function_call_output", "call_id": call.call_id, "output": said}


async def rows(api: ApiKit, number: int = 0) -> list[Message]:
    assert api.kit.runner._store
    found = await api.kit.runner._store.sessions.list()
    return list(await api.kit.runner._store.sessions.history(found[number].id))


async def turns(api: ApiKit) -> list[Turn]:
    assert api.kit.runner._store
    (session,) = await api.kit.runner._store.sessions.list()
    return list(await api.kit.runner._store.turns.of_session(session.id))


async def sound(api: ApiKit) -> None:
    """Every call in the store has exactly one result after it."""
    assert api.kit.runner._store
    for session in await api.kit.runner._store.sessions.list():
        history = await api.kit.runner._store.sessions.history(session.id)
        asked: list[Any] = [call.id for row in history for call in row.tool_calls]
        answered: list[Any] = [row.tool_call_id for row in history if row.role == "tool"]
        assert sorted(asked) == sorted(answered)


async def test_a_call_goes_to_the_client_and_its_result_continues_the_turn(tmp_path: Path) -> None:
    async with ModelServer(CALL, ok("Sunny.")) as model, served(tmp_path, model) as api:
        first = await api.chat.create(model="scripted", messages=user("hi"), tools=[WEATHER])
        (choice,) = first.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        (call,) = calls_of(first)
        assert (call.function.name, call.function.arguments) == ("weather", BERLIN)
        await sound(api)
        said: Any = [*user("hi"), choice.message.to_dict(), result(call)]
        second = await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
        assert second.choices[0].message.content == "Sunny."
        assert await api.sessions() == [("closed", "answered")]
        assert [row.content for row in await rows(api)] == ["hi", "", "sunny", "Sunny."]
        sent = await api.kit.asked(2)
        assert [each["role"] for each in sent] == ["user", "assistant", "tool"]
        assert sent[1]["tool_calls"][0]["function"]["arguments"] == BERLIN
        await sound(api)
        (turn,) = await turns(api)
        assert (turn.state, turn.cause, turn.attempts, turn.request) == ("done", None, 2, "hi")


async def test_each_answer_of_a_turn_is_kept_for_itself(tmp_path: Path) -> None:
    """Calls, calls and a text: one turn, of which the client can fetch each answer again."""
    call_it = 'C(0,c1,weather,{"city":"Berlin"}) F tool_calls'
    scripts = (
        f'H T"First I look." {call_it} U(1,10) D EOF',
        f'H T"Once more." {call_it} U(2,20) D EOF',
        'H T"Sunny." F stop U(3,30) D EOF',
    )
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        more: Any = {"model": "scripted", "tools": [FLAT]}
        answers = [await api.client.responses.create(input="hi", **more)]
        for said in ("cloudy", "sunny"):
            answers.append(
                await api.client.responses.create(
                    input=[output_of(answers[-1], said)],
                    previous_response_id=answers[-1].id,
                    **more,
                )
            )
        for answer in answers:
            kept = await api.client.responses.retrieve(answer.id)
            assert kept.output_text == answer.output_text
            assert [each.call_id for each in kept.output if each.type == "function_call"] == [
                each.call_id for each in answer.output if each.type == "function_call"
            ]
            assert kept.usage == answer.usage
        assert [each.usage and each.usage.input_tokens for each in answers] == [10, 20, 30]
        (turn,) = await turns(api)
        assert (turn.state, turn.attempts) == ("done", 3)
        await sound(api)


@pytest.mark.parametrize("stored", [True, False])
async def test_the_step_limit_ends_an_endless_loop_of_the_client(
    tmp_path: Path, *, stored: bool
) -> None:
    def script(body: dict[str, Any]) -> Script:
        return CALL if body.get("tools") else ok("Enough.")

    agent = AgentSettings(max_steps=3)
    headers = {"x-holdfast-session": "loop"} if stored else {}
    async with ModelServer(script) as model, served(tmp_path, model, agent=agent) as api:
        said: Any = user("hi")
        for _ in range(3):
            answer = await api.chat.create(
                model="scripted", messages=said, tools=[WEATHER], extra_headers=headers
            )
            (call,) = calls_of(answer)
            said += [answer.choices[0].message.to_dict(), result(call)]
        last = await api.chat.create(
            model="scripted", messages=said, tools=[WEATHER], extra_headers=headers
        )
        assert last.choices[0].message.content == "Enough."
        assert len(model.requests) == 4
        said += [last.choices[0].message.to_dict(), *user("again")]
        again = await api.chat.create(
            model="scripted", messages=said, tools=[WEATHER], extra_headers=headers
        )
        assert calls_of(again)


async def test_own_results_of_a_mixed_answer_are_kept_for_the_continuation(tmp_path: Path) -> None:
    shop = Workshop()
    async with (
        ModelServer(MIXED, ok("Done.")) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        first = await api.chat.create(model="scripted", messages=user("hi"), tools=[WEATHER])
        (call,) = calls_of(first)
        assert shop.effects == ["pay 5"]
        said: Any = [*user("hi"), first.choices[0].message.to_dict(), result(call)]
        await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
        sent = await api.kit.asked(2)
        assert {each["content"] for each in sent if each["role"] == "tool"} == {"paid 5", "sunny"}
        assert len(sent[1]["tool_calls"]) == 2
        assert shop.effects == ["pay 5"]
        await sound(api)


async def test_a_stream_ends_with_the_calls(tmp_path: Path) -> None:
    shop = Workshop()
    async with (
        ModelServer(MIXED) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("hi", tools=[WEATHER])
        assert finish_of(found) == ["tool_calls"]
        (call,) = [
            each
            for chunk in chunks(found)
            for choice in chunk["choices"]
            for each in choice["delta"].get("tool_calls", ())
        ]
        assert call["function"] == {"name": "weather", "arguments": BERLIN}
        assert (call["index"], call["type"]) == (0, "function")
        assert {each["tool"] for each in named(found, "hermes.tool.progress")} == {"pay"}


async def test_openai_library_runs_a_tool_loop_over_streams(tmp_path: Path) -> None:
    async with ModelServer(CALL, ok("Sunny.")) as model, served(tmp_path, model) as api:
        async with api.chat.stream(model="scripted", messages=user("hi"), tools=[WEATHER]) as made:
            first = await made.get_final_completion()
        (call,) = calls_of(first)
        said: Any = [*user("hi"), first.choices[0].message.to_dict(), result(call)]
        async with api.chat.stream(model="scripted", messages=said, tools=[WEATHER]) as made:
            second = await made.get_final_completion()
        assert second.choices[0].message.content == "Sunny."


async def test_a_repeated_request_gets_the_same_calls(tmp_path: Path) -> None:
    keyed = {"Idempotency-Key": "k1"}
    async with ModelServer(CALL, ok("Sunny.")) as model, served(tmp_path, model) as api:
        first = await api.wire.ask("hi", tools=[WEATHER], headers=keyed)
        again = await api.wire.ask("hi", tools=[WEATHER], headers=keyed)
        assert first[2] == again[2]
        message = again[2]["choices"][0]["message"]
        said = [*user("hi"), message]
        said.append(
            {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "x"}
        )
        body = {"messages": said, "tools": [WEATHER]}
        more = {"Idempotency-Key": "k2"}
        for _ in range(2):
            _, _, found = await api.wire.send("POST", "/chat/completions", json=body, headers=more)
            assert found["choices"][0]["message"]["content"] == "Sunny."
        assert (await api.wire.ask("hi", tools=[WEATHER], headers=keyed))[2] == first[2]
        assert len(model.requests) == 2


async def test_results_sent_twice_branch_off(tmp_path: Path) -> None:
    async with (
        ModelServer(MIXED, ok("One."), ok("Two.")) as model,
        served(tmp_path, model, tools=Workshop().tools()) as api,
    ):
        first = await api.chat.create(model="scripted", messages=user("hi"), tools=[WEATHER])
        (call,) = calls_of(first)
        for content, answer in (("sunny", "One."), ("rainy", "Two.")):
            said: Any = [*user("hi"), first.choices[0].message.to_dict(), result(call, content)]
            found = await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
            assert found.choices[0].message.content == answer
        sent = await api.kit.asked(3)
        assert {each["content"] for each in sent if each["role"] == "tool"} == {"paid 5", "rainy"}
        assert len(await api.sessions()) == 2
        await sound(api)


async def test_results_sent_twice_branch_off_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """The second time, the turn has gone on; what came behind the calls is not in the branch."""
    scripts = (MIXED, CALL, ok("One."), ok("Two."))
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=Workshop().tools()) as api,
    ):
        said: Any = user("hi")
        histories: list[Any] = []
        for content in ("sunny", "cloudy"):
            found = await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
            (call,) = calls_of(found)
            said = [*said, found.choices[0].message.to_dict(), result(call, content)]
            histories.append(said)
        found = await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
        assert found.choices[0].message.content == "One."
        (turn,) = await turns(api)
        assert turn.attempts == 3
        again = [*histories[0][:-1], histories[0][-1] | {"content": "rainy"}]
        found = await api.chat.create(model="scripted", messages=again, tools=[WEATHER])
        assert found.choices[0].message.content == "Two."
        sent = await api.kit.asked(4)
        assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool"]
        assert {each["content"] for each in sent if each["role"] == "tool"} == {"paid 5", "rainy"}
        assert len(await api.sessions()) == 2
        await sound(api)


async def test_results_sent_twice_at_once_continue_the_turn_once(tmp_path: Path) -> None:
    async with ModelServer(CALL, *[ok("Sunny.")] * 5) as model, served(tmp_path, model) as api:
        first = await api.chat.create(model="scripted", messages=user("hi"), tools=[WEATHER])
        (call,) = calls_of(first)
        said: Any = [*user("hi"), first.choices[0].message.to_dict(), result(call)]
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(api.chat.create(model="scripted", messages=said, tools=[WEATHER]))
        assert api.kit.runner._store
        sessions = await api.kit.runner._store.sessions.list()
        found = [await api.kit.runner._store.turns.of_session(each.id) for each in sessions]
        assert sorted(turn.attempts for (turn,) in found) == [1, 1, 1, 1, 2]
        for number in range(2, 7):
            roles = [each["role"] for each in await api.kit.asked(number)]
            assert roles == ["user", "assistant", "tool"]
        await sound(api)


async def test_results_can_be_sent_again_after_their_turn_failed(tmp_path: Path) -> None:
    async with ModelServer(CALL, "S401", ok("Sunny.")) as model, served(tmp_path, model) as api:
        first = await api.chat.create(model="scripted", messages=user("hi"), tools=[WEATHER])
        (call,) = calls_of(first)
        said: Any = [*user("hi"), first.choices[0].message.to_dict(), result(call)]
        with pytest.raises(openai.APIStatusError):
            await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
        (turn,) = await turns(api)
        assert (turn.state, turn.attempts) == ("failed", 2)
        again = await api.chat.create(model="scripted", messages=said, tools=[WEATHER])
        assert again.choices[0].message.content == "Sunny."
        assert [each["role"] for each in await api.kit.asked(3)] == ["user", "assistant", "tool"]
        await sound(api)


async def test_a_history_of_another_server_may_end_with_results(tmp_path: Path) -> None:
    said: Any = [
        *user("hi"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "x1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
                {"id": "x2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "x2", "content": "two"},
    ]
    async with ModelServer(ok("Fine.")) as model, served(tmp_path, model) as api:
        answer = await api.chat.create(model="scripted", messages=said)
        assert answer.choices[0].message.content == "Fine."
        await sound(api)
        with pytest.raises(openai.BadRequestError, match="No tool call waits"):
            await api.chat.create(model="scripted", messages=[*user("hi"), said[-1]])


async def test_a_named_session_takes_results_and_closes_forgotten_calls(tmp_path: Path) -> None:
    session = {"X-Holdfast-Session": "notes"}
    scripts = (CALL, ok("Sunny."), CALL, ok("Never mind."))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        first = await api.chat.create(
            model="scripted", messages=user("hi"), tools=[WEATHER], extra_headers=session
        )
        (call,) = calls_of(first)
        await api.chat.create(
            model="scripted",
            messages=[result(call)],
            tools=[WEATHER],
            extra_headers=session,
        )
        assert [row.content for row in await rows(api)] == ["hi", "", "sunny", "Sunny."]
        with pytest.raises(openai.BadRequestError, match="No tool call waits"):
            await api.chat.create(
                model="scripted",
                messages=[result(call)],
                extra_headers=session,
            )
        await api.chat.create(
            model="scripted", messages=user("again"), tools=[WEATHER], extra_headers=session
        )
        await api.chat.create(model="scripted", messages=user("forget it"), extra_headers=session)
        *_, asked, forgotten, said, _ = await rows(api)
        assert asked.tool_calls
        assert (forgotten.interrupted, said.content) == (AWAITING_CLIENT, "forget it")
        assert "not returned a result" in forgotten.content
        await sound(api)


async def test_why_connects_a_call_with_the_message_that_brought_its_result(tmp_path: Path) -> None:
    session = {"X-Holdfast-Session": "notes"}
    async with ModelServer(CALL, ok("Sunny.")) as model, served(tmp_path, model) as api:
        first = await api.chat.create(
            model="scripted", messages=user("hi"), tools=[WEATHER], extra_headers=session
        )
        (call,) = calls_of(first)
        await api.chat.create(
            model="scripted", messages=[result(call)], tools=[WEATHER], extra_headers=session
        )
        assert api.kit.runner._store
        brought, asked = await api.kit.runner._store.inbox.newest("api", 10)
    shown = await asyncio.to_thread(why, tmp_path, asked.id)
    assert brought.turn_id == asked.turn_id
    assert f"tool calls handed to the client; message {brought.id} brought their results" in shown
    assert "now: it was answered with tool calls, which the client ran" in shown
    assert "turn done" not in shown
    shown = await asyncio.to_thread(why, tmp_path, brought.id)
    assert f"brought results of the tool calls of turn {asked.turn_id}" in shown
    assert f"turn {asked.turn_id} went on" in shown
    assert "turn done, 2 model requests" in shown
    (report,) = json.loads(await asyncio.to_thread(why, tmp_path, brought.id, "--json"))
    assert report["client"]["continues"] == asked.turn_id


async def test_responses_hand_out_calls_and_take_their_outputs(tmp_path: Path) -> None:
    async with (
        ModelServer(CALL, ok("Sunny."), ok("More.")) as model,
        served(tmp_path, model) as api,
    ):
        first = await api.client.responses.create(model="scripted", input="hi", tools=[FLAT])
        (item,) = first.output
        assert item.type == "function_call"
        assert (first.status, item.name, item.arguments) == ("completed", "weather", BERLIN)
        kept = await api.client.responses.retrieve(first.id)
        assert kept.output == first.output
        output: Any = {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        second = await api.client.responses.create(
            model="scripted", input=[output], previous_response_id=first.id, tools=[FLAT]
        )
        assert second.output_text == "Sunny."
        listed = await api.client.responses.input_items.list(second.id)
        assert listed.data[0].type == "function_call_output"
        third = await api.client.responses.create(
            model="scripted", input="forget it", previous_response_id=first.id
        )
        assert third.output_text == "More."
        sent = await api.kit.asked(3)
        assert "not returned a result" in sent[2]["content"]
        await sound(api)


async def test_a_repeated_call_beside_its_output_is_not_stored_twice(tmp_path: Path) -> None:
    async with ModelServer(CALL, ok("Sunny.")) as model, served(tmp_path, model) as api:
        first = await api.client.responses.create(model="scripted", input="hi", tools=[FLAT])
        (item,) = first.output
        assert item.type == "function_call"
        output: Any = {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        said: Any = [item.to_dict(), output]
        second = await api.client.responses.create(
            model="scripted", input=said, previous_response_id=first.id
        )
        assert second.output_text == "Sunny."
        assert [row.content for row in await rows(api)] == ["hi", "", "sunny", "Sunny."]


async def test_responses_without_storage_match_results_by_call_id(tmp_path: Path) -> None:
    async with ModelServer(CALL, ok("Sunny.")) as model, served(tmp_path, model) as api:
        more: Any = {"model": "scripted", "store": False, "tools": [FLAT]}
        async with api.client.responses.stream(input="hi", **more) as made:
            first = await made.get_final_response()
        (item,) = first.output
        assert item.type == "function_call"
        output = {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        said: Any = [*user("hi"), item.to_dict(), output]
        second = await api.client.responses.create(input=said, **more)
        assert second.output_text == "Sunny."
        assert len(await api.sessions()) == 1


async def test_no_tools_at_all_if_the_client_wants_none(tmp_path: Path) -> None:
    async with ModelServer(ok("Plain."), ok("Plain.")) as model, served(tmp_path, model) as api:
        await api.chat.create(
            model="scripted", messages=user("hi"), tools=[WEATHER], tool_choice="none"
        )
        await api.client.responses.create(model="scripted", input="hi", tool_choice="none")
        assert all("tools" not in each.body for each in model.requests)


async def test_unknown_types_of_tools_are_left_out_with_a_notice(tmp_path: Path) -> None:
    tools = [WEATHER, {"type": "web_search"}, {"type": "custom", "custom": {"name": "x"}}]
    async with ModelServer(ok("Fine.")) as model, served(tmp_path, model) as api:
        found = await api.wire.stream("hi", tools=tools)
        (notice,) = named(found, "holdfast.notice")
        assert "web_search, custom" in notice["text"]
        assert (notice["object"], notice["choices"]) == ("chat.completion.chunk", [])
        assert "weather" in model.requests[0].tools


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("sometimes", "`tool_choice` can be"),
        ({"type": "function", "function": {"name": "other"}}, "not in `tools`: other"),
    ],
)
async def test_a_wrong_tool_choice_is_refused(tmp_path: Path, choice: Any, message: str) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        status, _, body = await api.wire.ask("hi", tools=[WEATHER], tool_choice=choice)
        assert (status, body["error"]["param"]) == (400, "tool_choice")
        assert message in body["error"]["message"]


async def test_client_tools_can_be_ignored_or_refused(tmp_path: Path) -> None:
    ignoring = HttpSettings(port=0, api_key=Secret(KEY), ui=False, client_tools="ignore")
    async with (
        ModelServer(ok("Fine.")) as model,
        served(tmp_path / "a", model, http=ignoring) as api,
    ):
        assert (await api.wire.ask("hi", tools=[WEATHER]))[0] == 200
        assert "weather" not in model.requests[0].tools
        status, _, body = await api.wire.ask("hi", tools=[WEATHER], tool_choice="required")
        assert (status, body["error"]["code"]) == (400, "unsupported_parameter")
    refusing = HttpSettings(port=0, api_key=Secret(KEY), ui=False, client_tools="refuse")
    async with ModelServer() as model, served(tmp_path / "b", model, http=refusing) as api:
        status, _, body = await api.wire.ask("hi", tools=[WEATHER])
        assert (status, body["error"]["param"]) == (400, "tools")


async def test_another_key_cannot_use_a_call_id(tmp_path: Path) -> None:
    async with ModelServer(CALL) as model, served(tmp_path, model) as api:
        first = await api.chat.create(model="scripted", messages=user("hi"), tools=[WEATHER])
        (call,) = calls_of(first)
        store = api.kit.runner._store
        assert store
        answers = StoredAnswers(store)
        assert await answers.find_by_call(call.id, Requester())
        assert await answers.find_by_call(call.id, Requester(key="other.1a2b3c")) is None
        assert await answers.find_by_call(call.id[:-1] + "z", Requester()) is None


async def test_kill_9_after_a_call_was_handed_out_keeps_it(tmp_path: Path) -> None:
    keyed = {"idempotency-key": "k"}
    async with ModelServer(CALL, ok("Sunny.")) as model:
        async with daemon_for(tmp_path, model) as daemon:
            wire = Wire(f"{daemon.url}/v1")
            first = (await wire.ask("hi", tools=[WEATHER], headers=keyed))[2]
            await daemon.kill()
            await daemon.start()
            assert (await wire.ask("hi", tools=[WEATHER], headers=keyed))[2] == first
            message = first["choices"][0]["message"]
            (call,) = message["tool_calls"]
            output = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
            body = {"messages": [*user("hi"), message, output]}
            answer = (await wire.send("POST", "/chat/completions", json=body))[2]
            assert answer["choices"][0]["message"]["content"] == "Sunny."
            await wire.close()
        assert len(model.requests) == 2


async def test_kill_9_while_a_turn_goes_on_with_results_keeps_all_its_answers(
    tmp_path: Path,
) -> None:
    def script(_: dict[str, Any]) -> Script:
        return (CALL, 'H T"so far, " HANG', ok("the rest"))[len(model.requests) - 1]

    async with ModelServer(script) as model, daemon_for(tmp_path, model) as daemon:
        async with library_client(f"{daemon.url}/v1", KEY) as client:
            library = client.responses
            more: Any = {"model": "scripted", "tools": [FLAT]}
            first = await library.create(input="hi", **more)
            second = await library.create(
                input=[output_of(first, "sunny")],
                previous_response_id=first.id,
                background=True,
                **more,
            )
            await model.request(2)
            await daemon.kill()
            await daemon.start()
            ended = await polled(lambda: library.retrieve(second.id))
            assert ended.output_text.endswith("the rest")
            assert (await library.retrieve(first.id)).output == first.output
        await daemon.stop()
    assert len(model.requests) == 3
    sent = [each["role"] for each in model.requests[2].body["messages"]]
    assert sent[:4] == ["system", "user", "assistant", "tool"]
    found = json.loads(await asyncio.to_thread(why, tmp_path, "api", "--json"))
    assert [report["turn"]["attempts"] for report in found] == [3, 3]
    assert len({report["turn"]["id"] for report in found}) == 1


async def test_a_crash_while_own_calls_run_hands_the_client_calls_out(tmp_path: Path) -> None:
    """The turn ends with its stored answer: the same calls, and nothing runs a second time."""
    shop, keyed = Workshop(), {"idempotency-key": "k"}
    both = calls(("c1", "weather", BERLIN), ("c2", "sleepy", "{}"))
    async with ModelServer(both, ok("Sunny.")) as model:
        async with served(tmp_path, model, tools=shop.tools()) as api, asyncio.TaskGroup() as group:
            body = group.create_task(_until_cut(api, keyed))
            await shop.entered.wait()
            await api.kit.crash()
            body.cancel()
        async with served(tmp_path, model, tools=Workshop().tools()) as api:
            _, _, found = await api.wire.ask("hi", tools=[WEATHER], headers=keyed)
            message = found["choices"][0]["message"]
            (call,) = message["tool_calls"]
            assert call["function"] == {"name": "weather", "arguments": BERLIN}
            output = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
            more = {"messages": [*user("hi"), message, output], "tools": [WEATHER]}
            answer = (await api.wire.send("POST", "/chat/completions", json=more))[2]
            assert answer["choices"][0]["message"]["content"] == "Sunny."
            results = [each["content"] for each in await api.kit.asked(2) if each["role"] == "tool"]
            assert len(results) == 2
            assert any(each.startswith("UNKNOWN") for each in results)
            await sound(api)
        assert len(model.requests) == 2


async def _until_cut(api: ApiKit, headers: dict[str, str]) -> None:
    with contextlib.suppress(aiohttp.ClientError):
        await api.wire.ask("hi", tools=[WEATHER], headers=headers)
