"""Tasks for LlamaIndex; prints the result of the task that the command line names."""

import os
import sys

from llama_index.core.llms import ChatMessage
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from llamaindex_model import model
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: str
    people: int


def double(number: int) -> int:
    """Double a number."""
    return number * 2


def legacy() -> OpenAILike:
    """Return the model with LlamaIndex's defaults, which use plain completions."""
    return OpenAILike(
        api_base=os.environ["GATEWAY_URL"],
        api_key=os.environ["GATEWAY_KEY"],
        model=os.environ["GATEWAY_MODEL"],
    )


def tools() -> str:
    return str(model.predict_and_call([FunctionTool.from_defaults(double)], user_msg="Double 21."))


def structured() -> City:
    program = FunctionCallingProgram.from_defaults(
        output_cls=City, prompt_template_str="The largest city of {country}?", llm=model
    )
    return program(country="Spain")


TASKS = {
    "chat": lambda: model.chat([ChatMessage(role="user", content="Hello")]).message.content,
    "stream": lambda: "|".join(
        piece.delta for piece in model.stream_chat([ChatMessage(role="user", content="Hello")])
    ),
    "tools": tools,
    "structured": structured,
    "legacy": lambda: legacy().complete("Hello").text,
    "legacy_stream": lambda: "|".join(each.delta for each in legacy().stream_complete("Hello")),
    "legacy_chat": lambda: (
        legacy().chat([ChatMessage(role="user", content="Hello")]).message.content
    ),
}

print(TASKS[sys.argv[1]]())
