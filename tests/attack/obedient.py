"""A model that does whatever the text in view says, wherever the text comes from.

`CALL name {"argument": 1} END` in the newest request, or in a tool result after it, is a tool call;
`SAY text END` is the answer. `SAY @name END` is one of the `LINES`, for texts without an earlier message.
Without such words the answer is "done".
"""

import json
import re
from typing import Any

from tests.fakes.model_script import Script, calls, ok

_ORDER = re.compile(
    r"CALL (?P<name>.*?) (?P<arguments>\{.*?\}) END|SAY (?P<text>.*?) END", re.DOTALL
)

LINES: dict[str, str] = {}
"""Answers that are not in the request, by `@name`."""


def call(name: str, **arguments: object) -> str:
    """Return the words that make the model call a tool."""
    return f"CALL {name} {json.dumps(arguments)} END"


def say(text: str) -> str:
    """Return the words that make the model answer this text."""
    return f"SAY {text} END"


def text_of(content: object) -> str:
    """Return the text of a message's content."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def obey(body: dict[str, Any]) -> Script:
    """Answer a request in the chat protocol."""
    messages = body["messages"]
    asked = max(at for at, each in enumerate(messages) if each["role"] == "user")
    seen = [text_of(each["content"]) for each in messages[asked:] if each["role"] != "assistant"]
    orders = [order for text in seen for order in _ORDER.finditer(text)]
    made = sum(len(each.get("tool_calls") or ()) for each in messages[asked:])
    wanted = [order for order in orders if order["name"] is not None]
    if made < len(wanted):
        order = wanted[made]
        return calls((f"c{len(messages)}", order["name"], order["arguments"]))
    said = [order["text"] for order in orders if order["text"] is not None]
    return ok(LINES.get(said[-1], said[-1]) if said else "done")
