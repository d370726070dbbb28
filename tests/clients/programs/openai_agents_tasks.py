"""Tasks for the OpenAI Agents SDK; prints the result of the task that the command line names."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from agents_client import client, model
from pydantic import BaseModel

TASK, API = sys.argv[1:3]
KINDS = {
    "responses": model,
    "chat": OpenAIChatCompletionsModel(model=model.model, openai_client=client),
}


class City(BaseModel):
    name: str
    people: int


@function_tool
def double(number: int) -> int:
    """Double a number."""
    return number * 2


async def run(question: str, **more) -> object:
    agent = Agent(name="Helper", instructions="Be brief.", model=KINDS[API], **more)
    return (await Runner.run(agent, question)).final_output


async def streamed() -> str:
    agent = Agent(name="Helper", model=KINDS[API])
    result = Runner.run_streamed(agent, "Hello")
    found = []
    async for event in result.stream_events():
        data = getattr(event, "data", None)
        if event.type == "raw_response_event" and data.type == "response.output_text.delta":
            found.append(data.delta)
    return "|".join(found)


TASKS = {
    "run": lambda: run("Hello"),
    "stream": streamed,
    "tool": lambda: run("Double 21.", tools=[double]),
    "output_type": lambda: run("The largest city of Spain?", output_type=City),
    "tool_and_output_type": lambda: run("Double 21.", tools=[double], output_type=City),
}

print(asyncio.run(TASKS[TASK]()))
