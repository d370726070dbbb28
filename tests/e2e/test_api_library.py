"""OpenAI's Python library with streams that end early, and with refusals."""

import asyncio
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from gateway.settings import HttpSettings
from sessions.values.secret import Secret
from tests.e2e.api_kit import KEY, served, user
from tests.e2e.gateway_kit import talkative
from tests.fakes.agent_kit import Workshop
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.quick

NARROW = HttpSettings(port=0, api_key=Secret(KEY), ui=False, max_requests=1)


async def test_stream_closed_by_the_openai_library_ends_its_turn(tmp_path: Path) -> None:
    async with ModelServer(talkative) as model, served(tmp_path, model) as api:
        stream = await api.chat.create(model="scripted", messages=user("hang"), stream=True)
        async with stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
        async with asyncio.timeout(8):
            await model.requests[0].closed.wait()
        answer = await api.chat.create(model="scripted", messages=user("hi"))
        assert answer.choices[0].message.content == "echo: hi"


async def test_stream_helper_reads_a_turn_with_a_tool(tmp_path: Path) -> None:
    shop = Workshop()
    scripts = (
        'H T"Let me look." C(0,c1,read,{"path":"a"}) F tool_calls U D',
        ok("It says so."),
    )
    async with ModelServer(*scripts) as model, served(tmp_path, model, tools=shop.tools()) as api:
        async with api.chat.stream(model="scripted", messages=user("go")) as stream:
            said = [event.delta async for event in stream if event.type == "content.delta"]
            whole = await stream.get_final_completion()
        (choice,) = whole.choices
        assert "".join(said) == choice.message.content == "Let me look.\n\nIt says so."
        assert choice.finish_reason == "stop"
        assert shop.effects == ["read a"]


async def test_openai_library_raises_rate_limit_error_for_a_full_server(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, http=NARROW) as api,
        api.wire.opened("hang"),
    ):
        with pytest.raises(openai.RateLimitError) as error:
            await api.chat.create(model="scripted", messages=user("hi"))
        assert (error.value.type, error.value.code) == ("rate_limit_error", "too_many_requests")
        assert error.value.response.headers["retry-after"] == "1"


async def test_openai_library_retries_after_429(tmp_path: Path) -> None:
    async with (
        ModelServer(talkative) as model,
        served(tmp_path, model, http=NARROW) as api,
        AsyncOpenAI(base_url=api.wire.base, api_key=KEY, max_retries=2) as patient,
    ):
        turned_away = asyncio.Event()
        api.kit.runner._concurrency_limit.on_rejected = turned_away.set
        async with asyncio.TaskGroup() as group, api.wire.opened("hang"):
            asking = patient.chat.completions.create(model="scripted", messages=user("hi"))
            again = group.create_task(asking)
            await turned_away.wait()
        assert again.result().choices[0].message.content == "echo: hi"
