"""Instructor as a client: structured output by tools, formats and responses."""

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
async def instructor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    python = python_program("instructor", "instructor==1.17.0") / "python"
    handler = plausible(tools={"City": MADRID, "PartialCity": MADRID}, document=MADRID)
    folder = tmp_path_factory.mktemp("instructor")
    async with library(folder, python, "instructor_tasks.py", "instructor", handler) as opened:
        yield opened


@pytest.mark.parametrize("task", ["default", "TOOLS", "RESPONSES_TOOLS"])
async def test_a_model_of_pydantic_is_the_only_tool(instructor: Library, task: str) -> None:
    assert await instructor.answer(task) == CITY
    (only,) = instructor.asked
    assert list(only.tools) == ["City"]


@pytest.mark.parametrize("task", ["JSON_SCHEMA", "JSON"])
async def test_a_document_is_a_format_of_the_model(instructor: Library, task: str) -> None:
    assert await instructor.answer(task) == CITY
    assert instructor.asked[0].body["response_format"]["type"].startswith("json_")


async def test_a_document_is_built_while_it_is_streamed(instructor: Library) -> None:
    assert await instructor.answer("partial") == CITY
