"""Tasks for Pydantic AI; prints the result of the task that the command line names."""

import asyncio
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai_model import model

QUESTION = "The largest city of Spain?"


class City(BaseModel):
    name: str
    people: int


def double(number: int) -> int:
    """Double a number."""
    return number * 2


async def streamed() -> str:
    async with Agent(model).run_stream("Hello") as run:
        return "|".join([text async for text in run.stream_text(delta=True)])


def responses() -> OpenAIResponsesModel:
    return OpenAIResponsesModel(model.model_name, provider=model._provider)


TASKS = {
    "run": lambda: Agent(model, instructions="Be brief.").run_sync("Hello").output,
    "stream": lambda: asyncio.run(streamed()),
    "tool": lambda: Agent(model, tools=[double]).run_sync("Double 21.").output,
    "output_type": lambda: Agent(model, output_type=City).run_sync(QUESTION).output,
    "tool_and_output_type": lambda: (
        Agent(model, tools=[double], output_type=City).run_sync(QUESTION).output
    ),
    "native": lambda: Agent(model, output_type=NativeOutput(City)).run_sync(QUESTION).output,
    "prompted": lambda: Agent(model, output_type=PromptedOutput(City)).run_sync(QUESTION).output,
    "responses": lambda: Agent(responses()).run_sync("Hello").output,
    "responses_tool": lambda: Agent(responses(), tools=[double]).run_sync("Double 21.").output,
    "responses_output_type": lambda: Agent(responses(), output_type=City).run_sync(QUESTION).output,
    "responses_native": lambda: (
        Agent(responses(), output_type=NativeOutput(City)).run_sync(QUESTION).output
    ),
}

print(TASKS[sys.argv[1]]())
