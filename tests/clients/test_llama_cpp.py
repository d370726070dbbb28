"""llama.cpp's server with random weights as the model, by each of its three protocols."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.kit import SCRIPTS, Started, python_program
from tests.clients.model_services import (
    DIALECTS,
    Api,
    free_port,
    gateway_for,
    model_settings,
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
    folder.mkdir()
    script = SCRIPTS / "llama_server.py"
    async with Started(bin_ / "python", script, folder, str(free_port())) as program:
        line = await program.says("ready at")
        yield line.split("ready at ")[1]


@contextlib.asynccontextmanager
async def gateway(home: Path, provider: str) -> AsyncIterator[Api]:
    async with llama_server(home / "llama") as address:
        base = address if provider == "anthropic" else f"{address}/v1"
        async with gateway_for(home / "home", *model_settings(provider, base)) as api:
            yield api


@pytest.mark.parametrize("provider", DIALECTS)
async def test_the_model_is_found_and_answers(provider: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, provider) as api:
        assert api.model == "tiny"
        for number in range(8):
            answer = await api.ask(f"Say something, {number}.", stream=number % 2 == 0)
            assert answer.is_honest, answer
            assert answer.is_whole, answer
            assert answer.usage["prompt_tokens"] > 0, (number, answer)
            assert answer.usage["completion_tokens"] > 0
        assert await api.daemon.stop() == 0
    assert not [line for line in api.daemon.said if "Traceback" in line]


def valid(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"open", "kind"} and found["kind"] in SCHEMA["properties"]["kind"]["enum"]


@pytest.mark.parametrize("provider", DIALECTS)
async def test_the_schema_of_an_answer_is_enforced(provider: str, tmp_path: Path) -> None:
    named: dict[str, Any] = {"name": "animal", "strict": True, "schema": SCHEMA}
    async with gateway(tmp_path, provider) as api:
        wanted = {"type": "json_schema", "json_schema": named}
        for stream in (False, True):
            answer = await api.ask("Describe it.", stream=stream, response_format=wanted)
            assert answer.is_whole, answer
            assert valid(answer.text), answer
        body = {
            "model": api.model,
            "input": "Describe it.",
            "text": {"format": {"type": "json_schema", **named}},
        }
        status, _, found = await api.send("POST", "/responses", json=body)
        assert (status, found["status"]) == (200, "completed"), found
        assert valid(found["output"][-1]["content"][0]["text"]), found


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
