"""LiteLLM's library as a client of both APIs."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.kit import python_program
from tests.clients.library import Library, library
from tests.clients.scripted import Request, plausible, text_of
from tests.fakes.model_script import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")


_PLAUSIBLE = plausible(tools={"double": {"number": 21}})


def answer(request: Request) -> Script:
    """Answer as a model would; the words of the person choose an error."""
    match text_of(request["messages"][-1]):
        case "too many":
            return 'S429:{"retry-after":"3000"}"Rate limit reached."'
        case "too long":
            return 'S400"This model\'s maximum context length is 8192 tokens."'
        case _:
            return _PLAUSIBLE(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def litellm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    python = python_program("litellm", "litellm[proxy]==1.106.2") / "python"
    folder = tmp_path_factory.mktemp("litellm")
    async with library(folder, python, "litellm_tasks.py", "LiteLLM", answer) as opened:
        yield opened


@pytest.mark.parametrize("task", ["completion", "responses"])
async def test_a_prompt_is_answered(litellm: Library, task: str) -> None:
    assert await litellm.answer(task) == "Hello from afar."


@pytest.mark.parametrize("task", ["stream", "responses_stream"])
async def test_an_answer_is_streamed(litellm: Library, task: str) -> None:
    assert (await litellm.answer(task)).replace("|", "") == "Hello from afar."


async def test_a_tool_is_called(litellm: Library) -> None:
    assert await litellm.answer("tool") == "The result is 42."
    first, second = litellm.asked
    assert "double" in first.tools
    assert [each["content"] for each in second.messages if each["role"] == "tool"] == ["42"]


@pytest.mark.parametrize(
    ("said", "kind"), [("too many", "RateLimitError"), ("too long", "ContextWindowExceededError")]
)
async def test_an_error_keeps_its_class(litellm: Library, said: str, kind: str) -> None:
    assert (await litellm.answer("error", said)).startswith(f"{kind}: ")
