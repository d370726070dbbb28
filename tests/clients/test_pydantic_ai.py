"""Pydantic AI as a client of both APIs, with its kinds of structured output."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.kit import python_program
from tests.clients.library import Library, library
from tests.clients.scripted import plausible

MADRID = {"name": "Madrid", "people": 3400000}
CITY = "name='Madrid' people=3400000"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pydantic_ai(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    python = python_program("pydantic-ai", "pydantic-ai-slim[openai]==2.38.0") / "python"
    handler = plausible(tools={"double": {"number": 21}, "final_result": MADRID}, document=MADRID)
    folder = tmp_path_factory.mktemp("pydantic-ai")
    async with library(folder, python, "pydantic_ai_tasks.py", "Pydantic AI", handler) as opened:
        yield opened


@pytest.mark.parametrize("task", ["run", "responses"])
async def test_a_prompt_is_answered(pydantic_ai: Library, task: str) -> None:
    assert await pydantic_ai.answer(task) == "Hello from afar."


async def test_instructions_reach_the_model(pydantic_ai: Library) -> None:
    await pydantic_ai.answer("run")
    assert "Be brief." in pydantic_ai.asked[0].system


async def test_an_answer_is_streamed(pydantic_ai: Library) -> None:
    assert (await pydantic_ai.answer("stream")).replace("|", "") == "Hello from afar."


@pytest.mark.parametrize("task", ["tool", "responses_tool"])
async def test_a_tool_of_the_agent_is_called(pydantic_ai: Library, task: str) -> None:
    assert await pydantic_ai.answer(task) == "The result is 42."
    first, second = pydantic_ai.asked
    assert "double" in first.tools
    assert [each["content"] for each in second.messages if each["role"] == "tool"] == ["42"]


@pytest.mark.parametrize("task", ["output_type", "responses_output_type"])
async def test_an_output_type_is_the_only_tool(pydantic_ai: Library, task: str) -> None:
    assert await pydantic_ai.answer(task) == CITY
    (only,) = pydantic_ai.asked
    assert list(only.tools) == ["final_result"]
    assert only.body["tool_choice"]["function"]["name"] == "final_result"


async def test_a_tool_and_an_output_type_are_used_together(pydantic_ai: Library) -> None:
    assert await pydantic_ai.answer("tool_and_output_type") == CITY
    first, second = pydantic_ai.asked
    assert set(first.tools) == {"double", "final_result"}
    assert [each["content"] for each in second.messages if each["role"] == "tool"] == ["42"]


@pytest.mark.parametrize("task", ["native", "responses_native"])
async def test_native_output_is_a_format_of_the_model(pydantic_ai: Library, task: str) -> None:
    assert await pydantic_ai.answer(task) == CITY
    assert pydantic_ai.asked[0].body["response_format"]["type"] == "json_schema"


async def test_prompted_output_is_a_document(pydantic_ai: Library) -> None:
    assert await pydantic_ai.answer("prompted") == CITY
