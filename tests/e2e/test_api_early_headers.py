"""Long answers that are not streamed: OpenAI's libraries and plain HTTP read them after white space."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.api_kit import HTTP, ApiKit, served, user
from tests.e2e.node_kit import node, why_not
from tests.e2e.test_api_sessions import gated
from tests.fakes.model_script import ok
from tests.fakes.model_server import ModelServer

EARLY = msgspec.structs.replace(HTTP, early_headers_after=0.02, sse_keepalive=0.02)


async def begun(api: ApiKit, path: str, body: dict[str, Any], go: asyncio.Event) -> Any:
    """Send a request, let the turn end once white space has arrived, and return the body."""
    wire = api.wire
    async with wire._http.post(f"{wire.base}{path}", json=body, headers=wire._headers) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        first = await response.content.readany()
        assert first.isspace()
        go.set()
        return json.loads(first + await response.content.read())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": user("hi")}),
        ("/responses", {"input": "hi"}),
        ("/messages", {"messages": user("hi"), "max_tokens": 99}),
        ("/completions", {"prompt": "hi"}),
    ],
)
async def test_white_space_comes_before_a_long_answer(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    go = asyncio.Event()
    shop, script = gated(go)
    async with (
        ModelServer(script) as model,
        served(tmp_path, model, http=EARLY, tools=shop.tools()) as api,
    ):
        assert "echo: hi" in json.dumps(await begun(api, path, body, go))


async def test_a_late_failure_is_the_body(tmp_path: Path) -> None:
    go = asyncio.Event()
    shop, script = gated(go)

    def fails(body: dict[str, Any]) -> Any:
        return "S400" if body["messages"][-1]["role"] == "tool" else script(body)

    async with (
        ModelServer(fails) as model,
        served(tmp_path, model, http=EARLY, tools=shop.tools()) as api,
    ):
        found = await begun(api, "/chat/completions", {"messages": user("hi")}, go)
        assert found["error"]["code"] == "turn_failed"
        assert "choices" not in found


async def test_openai_library_reads_a_long_answer(tmp_path: Path) -> None:
    slow = 'H W.2 T"Hello." F stop U D'
    async with ModelServer(slow, slow, slow) as model, served(tmp_path, model, http=EARLY) as api:
        raw = await api.chat.with_raw_response.create(model="scripted", messages=user("hi"))
        assert "content-length" not in raw.headers
        assert raw.parse().choices[0].message.content == "Hello."
        response = await api.client.responses.create(model="scripted", input="hi")
        assert response.output_text == "Hello."


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "installed")
async def test_node_library_reads_a_long_answer(tmp_path: Path) -> None:
    slow = 'H W.2 T"Hello." F stop U D'
    async with (
        ModelServer(slow, slow, ok("x")) as model,
        served(tmp_path, model, http=EARLY) as api,
        node(api) as sdk,
    ):
        body = {"model": "scripted", "messages": user("hi")}
        assert (await sdk.run("chat", body=body))["content"] == "Hello."
        body = {"model": "scripted", "input": "hi"}
        assert (await sdk.run("respond", body=body))["text"] == "Hello."
