"""Tasks for LiteLLM's library; prints the result of the task that the command line names."""

import json
import sys

import litellm
import openai
from litellm_settings import SETTINGS

HELLO = [{"role": "user", "content": "Hello"}]
DOUBLE = {
    "name": "double",
    "description": "Double a number.",
    "parameters": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
}


def streamed() -> str:
    pieces = litellm.completion(messages=HELLO, stream=True, **SETTINGS)
    return "|".join(each.choices[0].delta.content or "" for each in pieces).strip("|")


def tool() -> str:
    messages = [{"role": "user", "content": "Double 21."}]
    tools = [{"type": "function", "function": DOUBLE}]
    while True:
        message = litellm.completion(messages=messages, tools=tools, **SETTINGS).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = str(json.loads(call.function.arguments)["number"] * 2)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def responses() -> str:
    return litellm.responses(input="Hello", **SETTINGS).output[0].content[0].text


def responses_streamed() -> str:
    pieces = litellm.responses(input="Hello", stream=True, **SETTINGS)
    return "|".join(each.delta for each in pieces if each.type == "response.output_text.delta")


def rejected() -> str:
    try:
        litellm.completion(
            messages=[{"role": "user", "content": sys.argv[2]}], max_retries=0, **SETTINGS
        )
    except openai.APIError as error:  # LiteLLM's errors are subclasses
        return f"{type(error).__name__}: {error}"
    return "no error"


TASKS = {
    "completion": lambda: litellm.completion(messages=HELLO, **SETTINGS).choices[0].message.content,
    "stream": streamed,
    "tool": tool,
    "responses": responses,
    "responses_stream": responses_streamed,
    "error": rejected,
}

print(TASKS[sys.argv[1]]())
