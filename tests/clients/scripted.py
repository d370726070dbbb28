"""A scripted model that behaves like a real one: it calls an offered tool, then answers from the result."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.fakes.model_script import Script, calls, ok

Request = dict[str, Any]


def offered(request: Request) -> set[str]:
    """Return the names of the tools that a request in the chat protocol offers."""
    return {each["function"]["name"] for each in request.get("tools") or ()}


def results(request: Request) -> dict[str, str]:
    """Return the results since the user's last message, by the name of their tool."""
    found: dict[str, str] = {}
    names: dict[str, str] = {}
    for each in request["messages"]:
        if each["role"] == "user":
            found, names = {}, {}
        for call in each.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if each["role"] == "tool":
            found[names.get(each["tool_call_id"], "")] = text_of(each)
    return found


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, also if it consists of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def plausible(
    *, tools: Mapping[str, Any] | None = None, document: Any = None, text: str = "Hello from afar."
) -> Callable[[Request], Script]:
    """Return a model that calls each of these tools once if it is offered, and then answers.

    The answer is the document where a JSON format is asked for, else a sentence with the last
    result, else the text.
    """

    def answer(request: Request) -> Script:
        found = results(request)
        for number, (name, arguments) in enumerate((tools or {}).items()):
            if name in offered(request) and name not in found:
                return calls((f"call_{name}_{number}", name, json.dumps(arguments)))
        if document is not None and "response_format" in request:
            return ok(json.dumps(document))
        if found:
            return ok(f"The result is {list(found.values())[-1]}.")
        return ok(text)

    return answer
