"""`/v1/chat/completions` and `/v1/models` over the whole gateway, by OpenAI's library and raw HTTP."""

import asyncio
import base64
import json
import socket
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from openai import AsyncOpenAI

from gateway.settings import HttpSettings, RouteSettings
from sessions.values.duration import Duration
from sessions.values.secret import Secret
from tests.e2e.api_kit import (
    HTTP,
    KEY,
    Event,
    Wire,
    chunks,
    events,
    finish_of,
    named,
    served,
    text_of,
    user,
)
from tests.e2e.gateway_kit import talkative
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import Script, calls, ok, words
from tests.fakes.model_server import ModelServer

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PROGRESS = "hermes.tool.progress"


def data_url(content: bytes = PNG, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def looking(url: str, text: str = "what is this?") -> Any:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


# --- answers ---------------------------------------------------------------------------------


async def test_openai_library_gets_a_whole_answer(tmp_path: Path) -> None:
    async with ModelServer(ok("Hello.")) as model, served(tmp_path, model) as api:
        answer = await api.chat.create(model="scripted", messages=user("hi"))
        (choice,) = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", "Hello.")
        assert (choice.finish_reason, answer.model) == ("stop", "scripted")
        assert answer.id.startswith("chatcmpl-")
        assert answer.usage
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5
        assert await api.sessions() == [("closed", "answered")]


async def test_messages_of_a_request_are_the_conversation(tmp_path: Path) -> None:
    said: Any = [
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        answer = await api.chat.create(model="scripted", messages=said)
        assert answer.choices[0].message.content == "echo: three"
        assert [each["content"] for each in await api.kit.asked(1)] == ["one", "two", "three"]
        system = api.kit.system(1)
        assert system.endswith("Speak like a pirate.\n\nBe brief.")
        assert len(system) > len("Speak like a pirate.\n\nBe brief.")
        assert api.kit.runner._store
        (session,) = await api.kit.runner._store.sessions.list()
        history = await api.kit.runner._store.sessions.history(session.id)
        assert [row.content for row in history] == ["one", "two", "three", "echo: three"]


async def test_stream_has_the_text_in_order_and_ends_with_done(tmp_path: Path) -> None:
    async with (
        ModelServer(words("one two three four")) as model,
        served(tmp_path, model) as api,
        api.wire.opened("go") as response,
    ):
        headers = response.headers
        found = [event async for event in events(response)]
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert text_of(found) == "one two three four"
    assert finish_of(found) == ["stop"]
    assert found[-1] == Event("", "[DONE]")
    first, *_, last = chunks(found)
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["delta"] == {}
    assert {each["id"] for each in chunks(found)} == {first["id"]}
    assert not any("usage" in each for each in chunks(found))


async def test_openai_library_reads_a_stream_with_usage(tmp_path: Path) -> None:
    async with ModelServer(words("one two three")) as model, served(tmp_path, model) as api:
        stream = await api.chat.create(
            model="scripted",
            messages=user("go"),
            stream=True,
            stream_options={"include_usage": True},
        )
        found = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in found[:-1]) == "one two three"
    assert found[-2].choices[0].finish_reason == "stop"
    assert found[-1].choices == []
    assert found[-1].usage
    assert found[-1].usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in found[:-1])


async def test_ten_concurrent_streams_get_their_own_answers(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        found: dict[int, str] = {}

        async def one(number: int) -> None:
            found[number] = text_of(await api.wire.stream(f"number {number}"))

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(one(number))
    assert found == {number: f"echo: number {number}" for number in range(10)}


# --- models ----------------------------------------------------------------------------------


async def test_models_list_the_configured_model_and_those_of_routes(tmp_path: Path) -> None:
    routes = (RouteSettings(match="telegram:*", model="vendor/small"),)
    async with ModelServer(talkative) as model, served(tmp_path, model, route=routes) as api:
        listed = await api.client.models.list()
        assert [each.id for each in listed.data] == ["scripted", "vendor/small"]
        assert (await api.client.models.retrieve("vendor/small")).owned_by == "openai"
        with pytest.raises(openai.NotFoundError) as error:
            await api.client.models.retrieve("nobody")
        assert error.value.code == "model_not_found"


async def test_request_can_name_any_known_model(tmp_path: Path) -> None:
    routes = (RouteSettings(match="telegram:*", model="vendor/small"),)
    models = ("scripted", "big-one")
    meant = {
        "scripted": "scripted",
        "vendor/small": "vendor/small",
        "big": "big-one",
        "": "scripted",
    }
    async with (
        ModelServer(talkative, models=models) as model,
        served(tmp_path, model, route=routes) as api,
    ):
        for name, asked in meant.items():
            answer = await api.chat.create(model=name, messages=user("hi"))
            assert model.requests[-1].model == asked == answer.model


async def test_unknown_model_is_a_404(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        with pytest.raises(openai.NotFoundError) as error:
            await api.chat.create(model="scriptet", messages=user("hi"))
        assert error.value.code == "model_not_found"
        assert "Did you mean `scripted`?" in str(error.value)
        assert model.requests == []


# --- authentication --------------------------------------------------------------------------


async def test_requests_without_the_key_are_refused(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        for key in ("", "wrong", f"{KEY}x", KEY[:-1]):
            wire = Wire(api.wire.base, key)
            for method, path in (("POST", "/chat/completions"), ("GET", "/models")):
                status, headers, body = await wire.send(method, path)
                assert (status, body["error"]["code"]) == (401, "invalid_api_key"), key
                assert headers["www-authenticate"] == "Bearer"
            await wire.close()


async def test_openai_library_raises_authentication_error_for_a_wrong_key(tmp_path: Path) -> None:
    async with (
        ModelServer() as model,
        served(tmp_path, model) as api,
        AsyncOpenAI(base_url=api.wire.base, api_key="wrong") as stranger,
    ):
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


async def test_error_without_a_configured_key_names_the_setting(tmp_path: Path) -> None:
    async with (
        ModelServer() as model,
        served(tmp_path, model, http=HttpSettings(port=0, ui=False)) as api,
    ):
        status, _, body = await api.wire.ask("hi")
        assert status == 401
        assert "http.api_key" in body["error"]["message"]


# --- refusals --------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "functions": ({"functions": [{"name": "a"}]}, "functions", "use `tools`"),
    "several answers": ({"n": 2}, "n", "one answer"),
    "no messages": ({"messages": []}, "messages", "length >= 1"),
    "no user message": (
        {"messages": [{"role": "system", "content": "x"}]},
        "messages",
        "role `user`",
    ),
    "blank": ({"messages": user("  ")}, "messages[0].content", "is empty"),
    "role": ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "king"),
    "type": ({"max_tokens": "many"}, "max_tokens", "got `str`"),
    "missing": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0].image_url",
        "`messages[0].content[0].image_url` is missing.",
    ),
    "remote picture": (
        {"messages": looking("https://example.org/cat.png")},
        "messages[0].content[1].image_url.url",
        "does not fetch pictures",
    ),
    "broken picture": (
        {"messages": looking("data:image/png;base64,%%%")},
        "messages[0].content[1].image_url.url",
        "not valid base64",
    ),
    "not a picture": (
        {"messages": looking("data:text/html;base64,QUJD")},
        "messages[0].content[1].image_url.url",
        "neither a picture",
    ),
    "too many pictures": (
        {"messages": [message for _ in range(21) for message in looking(data_url())]},
        "messages[20].content[1].image_url.url",
        "at most 20",
    ),
    "video": (
        {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]},
        "messages[0].content[0]",
        "video_url",
    ),
}


async def test_unsupported_requests_are_refused_in_one_sentence(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        for name, (change, param, words_of_it) in REFUSED.items():
            body = {"model": "scripted", "messages": user("hi"), **change}
            status, _, answer = await api.wire.send("POST", "/chat/completions", json=body)
            error = answer["error"]
            assert (status, error["type"]) == (400, "invalid_request_error"), name
            assert error["param"] == param, name
            assert words_of_it in error["message"], name
        assert await api.sessions() == []


async def test_missing_required_field_is_named(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        for path, body, name in (
            ("/chat/completions", {"message": user("hi")}, "messages"),
            ("/responses", {"inputs": "hi"}, "input"),
        ):
            status, _, answer = await api.wire.send("POST", path, json=body)
            assert (status, answer["error"]) == (
                400,
                {
                    "message": f"`{name}` is missing.",
                    "type": "invalid_request_error",
                    "param": name,
                    "code": "missing_required_parameter",
                },
            )


async def test_malformed_body_is_a_400(tmp_path: Path) -> None:
    async with ModelServer() as model, served(tmp_path, model) as api:
        for body in (b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000):
            status, _, answer = await api.wire.send("POST", "/chat/completions", data=body)
            assert (status, answer["error"]["type"]) == (400, "invalid_request_error"), body[:9]


async def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    async with ModelServer(ok("Hello.")) as model, served(tmp_path, model) as api:
        status, _, answer = await api.wire.ask(
            "hi", logit_bias={}, seed=7, user="me", stop=["x"], tools=[], whatever={"a": 1}
        )
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello.")


async def test_text_that_looks_like_a_command_is_not_a_command(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        for text in ("/stop", "/queue later", "/nonsense", "claim ABCD"):
            _, _, answer = await api.wire.ask(text)
            assert answer["choices"][0]["message"]["content"] == f"echo: {text}"


# --- tools -----------------------------------------------------------------------------------


async def test_tool_runs_while_the_stream_stays_open(tmp_path: Path) -> None:
    """The tool boundary does not end the stream, and the tool has exactly one pair of events."""
    shop = Workshop()
    scripts = (
        'H T"Let me look." C(0,c1,read,{"path":"a"}) F tool_calls U D',
        ok("It says so."),
    )
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("go")
        assert shop.effects == ["read a"]
        running, completed = named(found, PROGRESS)
        emoji = {"emoji": "🔧"}
        whole = {key: running[key] for key in ("id", "object", "created", "model", "choices")}
        assert (whole["object"], whole["choices"]) == ("chat.completion.chunk", [])
        assert (
            running
            == {
                "tool": "read",
                "label": "a",
                "toolCallId": "c1",
                "status": "running",
            }
            | emoji
            | whole
        )
        assert completed == {"tool": "read", "toolCallId": "c1", "status": "completed"} | whole
        assert text_of(found) == "Let me look.\n\nIt says so."
        assert finish_of(found) == ["stop"]
        names = [event.name for event in found]
        first = names.index(PROGRESS)
        assert "Let me look." in text_of(found[:first])
        assert text_of(found[first:]) == "\n\nIt says so."


async def test_openai_library_reads_a_turn_with_a_tool(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (calls(("c1", "pay", '{"amount":3}')), ok("Paid."))
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        stream = await api.chat.create(model="scripted", messages=user("go"), stream=True)
        text = ""
        async for chunk in stream:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
        assert text == "Paid."
        assert shop.effects == ["pay 3"]


@pytest.mark.quick
@pytest.mark.parametrize("tool", ["slow", "stubborn", "broken"])
async def test_failed_tool_also_gets_a_completed_event(tmp_path: Path, tool: str) -> None:
    shop = Workshop()
    async with (
        ModelServer(calls(("c1", tool, "{}")), ok("done")) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        try:
            found = await api.wire.stream("go")
        finally:
            shop.release.set()
    assert [each["status"] for each in named(found, PROGRESS)] == ["running", "completed"]
    assert text_of(found) == "done"


async def test_stopped_tool_is_completed_before_the_end_of_the_stream(tmp_path: Path) -> None:
    shop = Workshop()
    async with (
        ModelServer(calls(("c1", "sleepy", "{}"))) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
        api.wire.opened("go", headers={"x-holdfast-session": "s"}) as response,
    ):
        async with asyncio.timeout(8):
            await shop.entered.wait()
            assert api.kit.runner._store
            (session,) = await api.kit.runner._store.sessions.list()
            await api.kit.runner.operations["stop"](session=session.id)
            found = [event async for event in events(response)]
        assert [each["status"] for each in named(found, PROGRESS)] == ["running", "completed"]
        assert finish_of(found) == ["error"]
        assert found[-2].data["error"]["code"] == "stopped"
        assert found[-1].data == "[DONE]"


async def test_call_that_needs_approval_does_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (calls(("c1", "shell", '{"command":"make tea"}')), ok("I may not."))
    async with (
        ModelServer(*scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("go")
        assert text_of(found) == "I may not."
        assert named(found, PROGRESS) == []
        (row,) = [each for each in await api.kit.asked(2) if each["role"] == "tool"]
        assert "NOT run" in row["content"]
        assert shop.effects == []


# --- keepalives and notices ------------------------------------------------------------------

QUICK = HttpSettings(port=0, api_key=Secret(KEY), ui=False, sse_keepalive=0.05)


async def test_keepalives_are_sent_during_a_silent_tool(tmp_path: Path) -> None:
    shop = Workshop()
    async with (
        ModelServer(calls(("c1", "sleepy", "{}")), ok("done")) as model,
        served(tmp_path, model, tools=shop.tools(), http=QUICK) as api,
        api.wire.opened("go") as response,
    ):
        signs, found = 0, []
        async with asyncio.timeout(8):
            async for event in events(response):
                found.append(event)
                signs += event.name == ": keepalive"
                if signs == 4:
                    shop.release.set()
    assert text_of(found) == "done"
    assert found[-1].data == "[DONE]"
    assert [each["status"] for each in named(found, PROGRESS)] == ["running", "completed"]


async def test_active_stream_has_no_keepalives(tmp_path: Path) -> None:
    script = 'H [T"word " W.02]*40 F stop U D'
    patient = HttpSettings(port=0, api_key=Secret(KEY), ui=False, sse_keepalive=0.6)
    async with (
        ModelServer(script) as model,
        served(tmp_path, model, http=patient) as api,
    ):
        found = await api.wire.stream("go")
    assert text_of(found) == "word " * 40
    assert not [event for event in found if event.name.startswith(":")]


async def test_keepalives_are_sent_while_the_model_reasons(tmp_path: Path) -> None:
    script = 'H [R"hm " W.02]*40 T"done" F stop U D'
    async with ModelServer(script) as model, served(tmp_path, model, http=QUICK) as api:
        found = await api.wire.stream("go")
    assert text_of(found) == "done"
    assert len([event for event in found if event.name == ": keepalive"]) >= 3


async def test_notices_are_events_of_their_own(tmp_path: Path) -> None:
    scripts = ('S429:{"retry-after":"0.01"}', ok("done"))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        found = await api.wire.stream("go")
        (notice,) = named(found, "holdfast.notice")
        assert notice["id"] == "N6"
        assert "rate limit" in notice["text"]
        assert text_of(found) == "done"


async def test_notice_of_a_cut_tool_call_is_not_part_of_the_answer(tmp_path: Path) -> None:
    """After text and half of a tool call, the notice of the cut is a separate event."""
    shop = Workshop()
    cut = """H T"Let me pay." C(0,c1,pay,'{"amount":') RST"""
    scripts = (cut, calls(("c2", "pay", '{"amount":3}')), ok("Paid."))
    async with (
        ModelServer(*scripts, *scripts) as model,
        served(tmp_path, model, tools=shop.tools()) as api,
    ):
        found = await api.wire.stream("go")
        assert "N4" in [each["id"] for each in named(found, "holdfast.notice")]
        (words_of_it,) = [each["text"] for each in named(found, "holdfast.notice")][:1]
        assert "has NOT run" in words_of_it
        assert "NOT run" not in text_of(found)
        assert text_of(found) == "Let me pay.\n\nPaid."
        _, _, answer = await api.wire.ask("go")
        assert answer["choices"][0]["message"]["content"] == text_of(found)
        assert shop.effects == ["pay 3", "pay 3"]


# --- failures and other endings --------------------------------------------------------------

CUT = 'H T"so far " RST'


async def test_failed_turn_without_text_is_an_error(tmp_path: Path) -> None:
    async with ModelServer('S400"too clever"') as model, served(tmp_path, model) as api:
        with pytest.raises(openai.BadRequestError) as error:
            await api.chat.create(model="scripted", messages=user("go"))
        assert "too clever" in str(error.value)
        assert error.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [True, False])
async def test_openai_library_does_not_retry_a_failed_turn(tmp_path: Path, stream: bool) -> None:
    async with (
        ModelServer('S400"no"') as model,
        served(tmp_path, model) as api,
        AsyncOpenAI(base_url=api.wire.base, api_key=KEY) as eager,
    ):
        with pytest.raises(openai.BadRequestError):
            await eager.chat.completions.create(
                model="scripted", messages=user("go"), stream=stream
            )
        assert len(model.requests) == 1


async def test_failure_after_text_ends_the_stream_with_its_cause(tmp_path: Path) -> None:
    async with (
        ModelServer(CUT, 'S400"not today"') as model,
        served(tmp_path, model) as api,
    ):
        found = await api.wire.stream("go")
        assert text_of(found) == "so far "
        assert finish_of(found) == ["error"]
        *_, failed, done = found
        assert failed.data["error"]["code"] == "turn_failed"
        assert failed.data["error"]["partial"] is True
        assert "not today" in failed.data["error"]["message"]
        assert done.data == "[DONE]"


async def test_openai_library_yields_the_text_and_then_raises(tmp_path: Path) -> None:
    async with (
        ModelServer(CUT, 'S400"not today"') as model,
        served(tmp_path, model) as api,
    ):
        stream = await api.chat.create(model="scripted", messages=user("go"), stream=True)
        found: list[Any] = []

        async def read() -> None:
            async for chunk in stream:
                found.append(chunk.choices[0])  # noqa: PERF401 - keeps the chunks before the error

        with pytest.raises(openai.APIError, match="not today"):
            await read()
        assert "".join(each.delta.content or "" for each in found) == "so far "
        assert found[-1].finish_reason == "error"


@pytest.mark.parametrize("before", ["a tool", "a notice", "a sign of life"])
async def test_stream_without_text_ends_with_an_error_event(tmp_path: Path, before: str) -> None:
    """The status 200 is already sent, so the error is in the last event."""
    scripts: dict[str, tuple[Script, ...]] = {
        "a tool": (calls(("c1", "noop", "{}")), 'S400"not today"'),
        "a notice": ('S429:{"retry-after":"0.01"}', 'S400"not today"'),
        "a sign of life": ('W.3 S400"not today"',),
    }
    http = QUICK if before == "a sign of life" else HTTP
    async with (
        ModelServer(*scripts[before]) as model,
        served(tmp_path, model, tools=Workshop().tools(), http=http) as api,
    ):
        found = await api.wire.stream("go", stream_options={"include_usage": True})
        assert found[0].name == {"a sign of life": ": keepalive"}.get(before, "")
        assert (text_of(found), finish_of(found)) == ("", ["error"])
        *_, spent, failed, done = found
        assert spent.data["choices"] == []
        assert failed.data["error"] | {"message": ""} == {
            "message": "",
            "type": "invalid_request_error",
            "param": None,
            "code": "turn_failed",
        }
        assert "not today" in failed.data["error"]["message"]
        assert done.data == "[DONE]"


async def test_openai_library_raises_for_a_turn_that_failed_after_a_tool(tmp_path: Path) -> None:
    scripts = (calls(("c1", "noop", "{}")), 'S400"not today"')
    async with (
        ModelServer(*scripts, *scripts) as model,
        served(tmp_path, model, tools=Workshop().tools()) as api,
    ):
        stream = await api.chat.create(model="scripted", messages=user("go"), stream=True)
        with pytest.raises(openai.APIError, match="not today"):
            async for _ in stream:
                pass
        with pytest.raises(openai.BadRequestError) as error:  # without streaming: an error status
            await api.chat.create(model="scripted", messages=user("go"))
        assert error.value.code == "turn_failed"


ANEW = "Once upon a time there was a king who had three daughters, and "


async def test_streamed_text_equals_stored_text_after_a_retry_of_the_model(
    tmp_path: Path,
) -> None:
    old = f"{ANEW}one of them was very old and very wise. " * 3
    scripts = (f'H T"{old}" RST', ok(f"{ANEW}they all lived happily."), ok("The end."))
    headers = {"idempotency-key": "k"}
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        live = text_of(await api.wire.stream("go", headers=headers))
        assert live == f"{old}The end."
        assert text_of(await api.wire.stream("go", headers=headers)) == live


async def test_endless_repetition_is_not_in_a_whole_answer(tmp_path: Path) -> None:
    block = "".join(chr(97 + at * 7 % 26) for at in range(120)) + " end. "
    scripts = (f'H [T"{block}"]*200 HANG', ok("Then it was over."))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        _, _, answer = await api.wire.ask("go")
        assert answer["choices"][0]["message"]["content"] == "Then it was over."


async def test_whole_answer_that_was_cut_has_an_error(tmp_path: Path) -> None:
    async with (
        ModelServer(CUT, 'S400"not today"') as model,
        served(tmp_path, model) as api,
    ):
        status, headers, answer = await api.wire.ask("go")
        assert (status, headers["x-should-retry"]) == (502, "false")
        assert "not today" in answer["error"]["message"]
        assert answer["error"]["partial"] == "so far "


async def test_answer_ends_at_the_requested_length(tmp_path: Path) -> None:
    async with (
        ModelServer('H T"one two" F length U(2) D') as model,
        served(tmp_path, model) as api,
    ):
        found = await api.wire.stream("go", max_completion_tokens=2)
        assert (text_of(found), finish_of(found)) == ("one two", ["length"])
        assert model.requests[0].max_tokens == 2
        assert len(model.requests) == 1


async def test_long_answer_continues_without_a_requested_length(tmp_path: Path) -> None:
    scripts = ('H T"one two " F length U D', ok("three"))
    async with ModelServer(*scripts) as model, served(tmp_path, model) as api:
        found = await api.wire.stream("go")
        assert (text_of(found), finish_of(found)) == ("one two three", ["stop"])


@pytest.mark.parametrize("stream", [True, False])
async def test_refusal_of_the_model_is_a_content_filter_ending(
    tmp_path: Path, stream: bool
) -> None:
    async with (
        ModelServer("H F content_filter U D") as model,
        served(tmp_path, model) as api,
    ):
        if stream:
            found = await api.wire.stream("go")
            assert finish_of(found) == ["content_filter"]
            assert text_of(found) == ""
        else:
            status, _, answer = await api.wire.ask("go")
            assert (status, answer["choices"][0]["finish_reason"]) == (200, "content_filter")
            assert answer["choices"][0]["message"]["content"] is None


async def test_a_refusal_in_the_text_is_not_repeated(tmp_path: Path) -> None:
    script = 'H T"I will not." F content_filter U D'
    async with ModelServer(script, script) as model, served(tmp_path, model) as api:
        _, _, answer = await api.wire.ask("go")
        message = answer["choices"][0]["message"]
        assert (message["content"], message["refusal"]) == ("I will not.", None)
        found = await api.wire.stream("go")
        refusals = [
            choice["delta"].get("refusal") for each in chunks(found) for choice in each["choices"]
        ]
        assert text_of(found) == "I will not."
        assert not any(refusals)


async def test_usage_of_the_request_is_estimated_if_the_service_reports_only_the_answer(
    tmp_path: Path,
) -> None:
    async with (
        ModelServer('H T"Well." F stop U(7,0) D') as model,
        served(tmp_path, model) as api,
    ):
        answer = await api.chat.create(model="scripted", messages=user("hi"))
        assert answer.usage
        assert answer.usage.prompt_tokens > 0
        assert answer.usage.completion_tokens == 7


async def test_usage_is_estimated_if_the_service_reports_none(tmp_path: Path) -> None:
    script = 'H T"one two three four" F stop D'
    async with ModelServer(script) as model, served(tmp_path, model) as api:
        answer = await api.chat.create(model="scripted", messages=user("go"))
        assert answer.usage
        assert answer.usage.prompt_tokens > 10
        assert answer.usage.completion_tokens == 4


# --- pictures --------------------------------------------------------------------------------


async def test_picture_reaches_the_model(tmp_path: Path) -> None:
    async with ModelServer(ok("A cat.")) as model, served(tmp_path, model) as api:
        answer = await api.chat.create(model="scripted", messages=looking(data_url()))
        assert answer.choices[0].message.content == "A cat."
        (message,) = await api.kit.asked(1)
        shown = [part for part in message["content"] if part["type"] == "image_url"]
        assert [part["image_url"]["url"] for part in shown] == [data_url()]


async def test_pictures_of_earlier_messages_reach_the_model(tmp_path: Path) -> None:
    other = PNG + b"other"
    said: Any = [
        *looking(data_url(), "first"),
        {"role": "assistant", "content": "a cat"},
        *looking(data_url(other), "second"),
    ]
    async with ModelServer(ok("Two.")) as model, served(tmp_path, model) as api:
        await api.chat.create(model="scripted", messages=said)
        rows = await api.kit.asked(1)
        shown = [
            [part["image_url"]["url"] for part in row["content"] if part["type"] == "image_url"]
            for row in rows
            if row["role"] == "user"
        ]
        assert shown == [[data_url()], [data_url(other)]]


# --- disconnects -----------------------------------------------------------------------------


async def test_disconnected_client_ends_its_turn_but_not_its_session(tmp_path: Path) -> None:
    session = {"x-holdfast-session": "s"}
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        async with api.wire.opened("hang", headers=session) as response:
            async for event in events(response):
                if text_of([event]):
                    break
            response.close()
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()
        status, headers, answer = await api.wire.ask("next", headers=session)
        assert (status, headers["x-session-state"]) == (200, "continued")
        assert answer["choices"][0]["message"]["content"] == "echo: next"
        assert await api.sessions() == [("active", None)]
        assert api.kit.runner._store
        (turn, _) = await api.kit.runner._store.turns.of_session(
            (await api.kit.runner._store.sessions.list())[0].id
        )
        assert (turn.state, turn.cause) == ("stopped", "left")
        said = [each["content"] for each in await api.kit.asked(2)]
        assert said[0] == "hang"
        assert said[1] == "so far "


async def test_stream_closed_by_the_openai_library_ends_its_turn(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        stream = await api.chat.create(model="scripted", messages=user("hang"), stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()


async def test_disconnect_before_any_output_ends_the_turn(
    tmp_path: Path,
) -> None:
    async with ModelServer("HANG") as model, served(tmp_path, model) as api:
        asking = asyncio.ensure_future(api.wire.ask("go"))  # noqa: TID251 - cancelled below
        async with asyncio.timeout(8):
            await model.request(1)
            asking.cancel()
            await model.requests[0].closed.wait()


# --- secrets ---------------------------------------------------------------------------------

SECRET = "sk-abcdefghij0123456789ABCDEFGHIJ"


async def test_key_in_the_text_is_masked_however_it_is_chunked(tmp_path: Path) -> None:
    script = f'H T"it is {SECRET[:2]}" T"{SECRET[2:20]}" T"{SECRET[20:]} ok" F stop U D'
    async with ModelServer(script) as model, served(tmp_path, model) as api:
        headers = {"idempotency-key": "k"}
        assert text_of(await api.wire.stream("go", headers=headers)) == "it is *** ok"
        assert text_of(await api.wire.stream("go", headers=headers)) == "it is *** ok"


async def test_key_in_an_error_of_the_model_service_is_masked(tmp_path: Path) -> None:
    script = f'S400"wrong key {SECRET}"'
    async with ModelServer(script) as model, served(tmp_path, model) as api:
        status, _, body = await api.wire.ask("go")
        assert status == 400
        assert SECRET not in str(body)
        assert "***" in body["error"]["message"]


async def test_stalled_reader_is_disconnected_and_its_turn_ends(tmp_path: Path) -> None:
    impatient = msgspec.structs.replace(HTTP, slow_after=Duration(0.3))
    script = f'H [T"{"many words " * 2000}"]*200 HANG'
    async with (
        ModelServer(script) as model,
        served(tmp_path, model, http=impatient) as api,
    ):
        port = int(api.wire.base.rpartition(":")[2].partition("/")[0])
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.setblocking(False)  # noqa: FBT003 - its only argument
        await asyncio.get_running_loop().sock_connect(lazy, ("127.0.0.1", port))
        body = json.dumps({"messages": user("go"), "stream": True})
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await asyncio.get_running_loop().sock_sendall(lazy, (head + body).encode())
        async with asyncio.timeout(15):
            await model.request(1)
            await model.requests[0].closed.wait()
        lazy.close()
        assert model.requests[0].left
