"""llama.cpp's server with random weights as the model, by each of its three protocols."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import SCRIPTS, Started, free_port, python_program
from tests.clients.model_services import (
    DIALECTS,
    Api,
    documented,
    gateway_for,
)

SCHEMA = {
    "type": "object",
    "properties": {"open": {"type": "boolean"}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["open", "kind"],
    "additionalProperties": False,
}
TOO_LONG = "word " * 6000


@contextlib.asynccontextmanager
async def llama_server(folder: Path) -> AsyncIterator[str]:
    """Start the server, and return its address."""
    bin_ = python_program("xllamacpp", "xllamacpp==2026.10.11549", "gguf==0.19.0")
    script = SCRIPTS / "llama_server.py"
    async with Started(bin_ / "python", script, folder, str(free_port())) as program:
        line = await program.says("ready at")
        yield line.split("ready at ")[1]


@contextlib.asynccontextmanager
async def gateway(home: Path, provider: str) -> AsyncIterator[Api]:
    async with llama_server(home / "llama") as address:
        settings = documented("llama.cpp", provider, address)
        async with gateway_for(home / "home", *settings) as api:
            yield api


@pytest.mark.parametrize("provider", DIALECTS)
async def test_the_model_is_found_and_answers(provider: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, provider) as api:
        assert api.model == "tiny"
        answers = [
            await api.ask(f"Say something, {number}.", stream=number % 2 == 0)
            for number in range(10)
        ]
        assert await api.daemon.stop() == 0
    assert not [line for line in api.daemon.said if "Traceback" in line]
    assert all(answer.is_honest for answer in answers), answers
    whole = [answer for answer in answers if answer.is_whole]
    # A model of random weights also gives empty answers, which are errors.
    assert len(whole) > len(answers) // 2, answers
    for answer in whole:
        assert answer.usage["prompt_tokens"] > 0
        assert answer.usage["completion_tokens"] > 0


async def ask_for_json(api: Api) -> list[tuple[int, str]]:
    """Return status and text of answers with a schema, from both APIs of OpenAI."""
    named: dict[str, Any] = {"name": "animal", "strict": True, "schema": SCHEMA}
    wanted = {"type": "json_schema", "json_schema": named}
    found = [
        await api.ask("Describe it.", stream=stream, response_format=wanted)
        for stream in (False, True)
    ]
    body = {
        "model": api.model,
        "input": "Describe it.",
        "text": {"format": {"type": "json_schema", **named}},
    }
    status, _, answer = await api.send("POST", "/responses", json=body)
    message = answer["output"][-1]["content"][0]["text"] if answer.get("output") else ""
    said = [(each.status if each.is_whole else 502, each.text) for each in found]
    return [*said, (status if answer.get("status") == "completed" else 502, message)]


async def test_the_schema_of_an_answer_is_enforced_by_the_grammar(tmp_path: Path) -> None:
    async with gateway(tmp_path, "openai") as api:
        for status, text in await ask_for_json(api):
            assert status == 200, text
            found = json.loads(text)
            assert set(found) == {"open", "kind"}
            assert isinstance(found["open"], bool)
            assert found["kind"] in ("cat", "dog")


@pytest.mark.parametrize("provider", ["openai-responses", "anthropic"])
async def test_an_answer_without_the_form_is_an_error(provider: str, tmp_path: Path) -> None:
    """Its other two protocols have no schemas, and a random text is not one of them."""
    async with gateway(tmp_path, provider) as api:
        assert {status for status, _ in await ask_for_json(api)} == {502}


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_text_beyond_the_window_is_refused_by_its_class(
    provider: str, tmp_path: Path
) -> None:
    async with gateway(tmp_path, provider) as api:
        for stream in (False, True):
            answer = await api.ask(TOO_LONG, stream=stream)
            assert answer.status == 400, answer
            assert answer.error["code"] == "context_length_exceeded", answer
        assert (await api.ask("And a short one?")).is_whole
