"""LangChain's `ChatOpenAI` as a client of both APIs, with tools and structured output."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.kit import python_program
from tests.clients.library import Library, library
from tests.clients.scripted import Request, plausible, text_of
from tests.fakes.model_script import Script

MADRID = {"name": "Madrid", "people": 3400000}
CITY = "name='Madrid' people=3400000"

pytestmark = pytest.mark.asyncio(loop_scope="module")


_PLAUSIBLE = plausible(tools={"double": {"number": 21}, "City": MADRID}, document=MADRID)


def answer(request: Request) -> Script:
    """Answer as a model would, or refuse a conversation as too long."""
    if text_of(request["messages"][-1]) == "Too long":
        return 'S400"This model\'s maximum context length is 8192 tokens."'
    return _PLAUSIBLE(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def langchain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    python = python_program("langchain", "langchain-openai==1.7.3") / "python"
    folder = tmp_path_factory.mktemp("langchain")
    async with library(folder, python, "langchain_tasks.py", "LangChain", answer) as opened:
        yield opened


@pytest.mark.parametrize("task", ["invoke", "responses"])
async def test_a_prompt_is_answered(langchain: Library, task: str) -> None:
    assert await langchain.answer(task) == "Hello from afar."


@pytest.mark.parametrize("task", ["stream", "responses_stream"])
async def test_an_answer_is_streamed(langchain: Library, task: str) -> None:
    assert (await langchain.answer(task)).replace("|", "") == "Hello from afar."


async def test_usage_is_reported(langchain: Library) -> None:
    assert int(await langchain.answer("usage")) > 0


@pytest.mark.parametrize("task", ["tools", "responses_tools"])
async def test_a_bound_tool_is_called(langchain: Library, task: str) -> None:
    assert await langchain.answer(task) == "The result is 42."
    first, second = langchain.asked
    assert "double" in first.tools
    assert "current_time" in first.tools
    assert [each["content"] for each in second.messages if each["role"] == "tool"] == ["42"]


@pytest.mark.parametrize("task", ["json_schema", "json_mode", "responses_json_schema"])
async def test_structured_output_is_asked_of_the_model(langchain: Library, task: str) -> None:
    assert await langchain.answer(task) == CITY
    assert langchain.asked[-1].body["response_format"]["type"].startswith("json_")


async def test_structured_output_is_a_call_with_function_calling(langchain: Library) -> None:
    assert await langchain.answer("function_calling") == CITY
    (only,) = langchain.asked
    assert list(only.tools) == ["City"]


@pytest.mark.parametrize("task", ["error", "responses_error"])
async def test_a_conversation_that_is_too_long_is_recognized(langchain: Library, task: str) -> None:
    assert "ContextOverflowError" in await langchain.answer(task)
