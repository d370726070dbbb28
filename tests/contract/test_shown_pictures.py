"""How each protocol shows pictures, and what happens where a model takes none."""

import asyncio
import base64
import json
from typing import Any

import pytest

from agent.errors import BadRequest
from agent.model.contract import ModelRequest, Picture
from agent.providers.registry import build_provider
from agent.request.pictures import PICTURE_OMITTED
from sessions.records import Attachment, Message
from tests.fakes.agent_kit import settings_for
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.fakes.model_script import Script, ok, status
from tests.fakes.model_server import Handler, ModelServer, always

pytestmark = pytest.mark.quick

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)

DATA = base64.b64encode(b"picture").decode()
FILE = Attachment(
    name="cat.png", media_type="image/png", path="received/1/cat.png", size=7, fetched=True
)
OTHER = Attachment(
    name="notes.txt", media_type="text/plain", path="received/1/notes.txt", size=7, fetched=True
)
PICTURES = {FILE.path: Picture("image/png", DATA)}


def request(text: str = "What is this?") -> ModelRequest:
    row = Message("user", text, files=(OTHER, FILE))
    return ModelRequest("scripted", "Be kind.", (row,), pictures=PICTURES)


async def answered(protocol: ProtocolName, server: ModelServer, *requests: ModelRequest) -> None:
    provider = build_provider(settings_for(protocol, server.url))
    try:
        for each in requests:
            async with asyncio.timeout(5), provider.stream(each) as chunks:
                async for _ in chunks:
                    pass
    finally:
        await provider.aclose()


def shown(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the last thing said, whatever the protocol calls them."""
    rows: list[dict[str, Any]] = body["messages"] if "messages" in body else body["input"]
    content: str | list[dict[str, Any]] = rows[-1]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


EXPECTED: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    ],
    "responses": [
        {"type": "input_text", "text": "What is this?"},
        {
            "type": "input_image",
            "detail": "auto",
            "image_url": f"data:image/png;base64,{DATA}",
        },
    ],
    "anthropic": [
        {"type": "text", "text": "What is this?"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": DATA},
        },
    ],
}


@each_protocol
async def test_a_picture_stands_behind_the_words_of_its_row(protocol: ProtocolName) -> None:
    async with ModelServer(always(ok("A cat."))) as server:
        await answered(protocol, server, request())
    assert shown(server.requests[0].body) == EXPECTED[protocol]


@each_protocol
async def test_a_picture_without_words_stands_alone(protocol: ProtocolName) -> None:
    async with ModelServer(always(ok("A cat."))) as server:
        await answered(protocol, server, request(""))
    assert shown(server.requests[0].body) == EXPECTED[protocol][1:]


REFUSALS = {
    "openai": "Invalid content type. image_url is only supported by certain models.",
    "a small server": "this model does not support image input",
    "llama.cpp": "image input is not supported - hint: you may need to provide the mmproj",
    "vllm": "scripted is not a multimodal model",
    "a strict schema": "messages.0.content: unknown variant `image_url`, expected `text`",
    "openrouter": "No endpoints found that support image input",
}


def blind(said: str) -> Handler:
    def handle(body: dict[str, Any]) -> Script:
        if DATA in json.dumps(body):
            return (status(400, message=said),)
        return ok("I cannot see it.")

    return handle


@each_protocol
@pytest.mark.parametrize("said", REFUSALS.values(), ids=REFUSALS)
async def test_a_model_that_takes_no_pictures_is_told_so_and_asked_without_from_then_on(
    protocol: ProtocolName, said: str
) -> None:
    if protocol == "anthropic" and said in {REFUSALS["a strict schema"], REFUSALS["openai"]}:
        said = "This model does not support image content."
    async with ModelServer(blind(said), blind(said), blind(said), blind(said)) as server:
        await answered(protocol, server, request(), request())
    bodies = [received.body for received in server.requests]
    assert [DATA in json.dumps(body) for body in bodies] == [True, False, False]
    words = " ".join(part.get("text", "") for part in shown(bodies[1]))
    assert "What is this?" in words
    assert PICTURE_OMITTED in words


@each_protocol
async def test_a_picture_that_is_refused_itself_is_left_out_of_that_request_only(
    protocol: ProtocolName,
) -> None:
    said = "Could not process image: it is damaged"
    async with ModelServer(blind(said), blind(said), blind(said), blind(said)) as server:
        await answered(protocol, server, request(), request())
    sent = [DATA in json.dumps(received.body) for received in server.requests]
    assert sent == [True, False, True, False]


@each_protocol
async def test_a_refusal_of_something_else_is_not_blamed_on_pictures(
    protocol: ProtocolName,
) -> None:
    refuse = always((status(400, message="tools: bad schema"),))
    async with ModelServer(refuse) as server:
        with pytest.raises(BadRequest):
            await answered(protocol, server, request())
    assert len(server.requests) == 1
