"""Tasks for LangChain; prints the result of the task that the command line names."""

import sys

import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_model import model
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: str
    people: int


@tool
def double(number: int) -> int:
    """Double a number."""
    return number * 2


def tools(chat) -> str:
    bound = chat.bind_tools([double])
    messages = [HumanMessage("Double 21.")]
    while True:
        answer = bound.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return answer.text
        messages += [double.invoke(call) for call in answer.tool_calls]


def structured(method: str):
    return model.with_structured_output(City, method=method).invoke("The largest city of Spain?")


def error(chat) -> str:
    try:
        return chat.invoke("Too long").text
    except openai.APIError as failed:
        return type(failed).__name__


def responses():
    return model.model_copy(update={"use_responses_api": True})


TASKS = {
    "invoke": lambda: model.invoke("Hello").text,
    "stream": lambda: "|".join(chunk.text for chunk in model.stream("Hello") if chunk.text),
    "usage": lambda: model.invoke("Hello").usage_metadata["total_tokens"],
    "tools": lambda: tools(model),
    "error": lambda: error(model),
    "responses_error": lambda: error(responses()),
    "json_schema": lambda: structured("json_schema"),
    "function_calling": lambda: structured("function_calling"),
    "json_mode": lambda: structured("json_mode"),
    "responses": lambda: responses().invoke("Hello").text,
    "responses_stream": lambda: "|".join(
        chunk.text for chunk in responses().stream("Hello") if chunk.text
    ),
    "responses_tools": lambda: tools(responses()),
    "responses_json_schema": lambda: (
        responses().with_structured_output(City).invoke("The largest city of Spain?")
    ),
}

print(TASKS[sys.argv[1]]())
