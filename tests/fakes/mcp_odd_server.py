"""A program that is a server of tools by the letter only, written by hand: it starts at once.

    python mcp_odd_server.py (old | new | bare | endless | late)

`old` lists its tools in pages, one of them twice, and gives answers that are none. `new` speaks
the protocol of 2026: it wants to ask its user, and ends each subscription as soon as it has begun;
with each it has one more tool. `bare` has no tools at all. `endless` answers a call with a line
without an end. `late` has one more tool once it has been asked for changes, and announces none.
"""

import json
import sys
from typing import Any

HOW = sys.argv[1]
MODERN = HOW in {"new", "late"}
subscriptions = 0


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)  # noqa: T201 - its wire


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "title": f"Title of {name}", "inputSchema": {"type": "object"}}


def listed(cursor: str | None) -> dict[str, Any]:
    cache = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"} if MODERN else {}
    if HOW == "new":
        asking = (tool("ask"), tool("form"))
        return {"tools": [*asking, *(tool(f"t{n}") for n in range(subscriptions))], **cache}
    if HOW == "late":
        return {"tools": [tool("ask"), *(tool(f"t{n}") for n in range(subscriptions))], **cache}
    if HOW == "endless":
        return {"tools": [tool("shout")]}
    if cursor is None:
        return {"tools": [tool("a"), tool("odd")], "nextCursor": "2"}
    return {"tools": [tool("a"), tool("refuse")]}


def called(number: object, name: str, params: dict[str, Any]) -> None:
    if name == "refuse":
        for _ in range(200):
            say(method="notifications/progress", params={"progress": "none"})
    if name == "shout":
        while True:
            sys.stdout.write("x" * 65_536)
    elif name == "odd":
        say(id=number, result={"content": 5})
    elif name == "refuse":
        say(id=number, error={"code": -32602, "message": "I will not"})
    elif name == "form" and (given := params.get("inputResponses")):
        text = f"{json.dumps(given['q']['content'])} {params['requestState']}"
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        say(id=number, result=result)
    elif name == "form":
        schema = {
            "type": "object",
            "properties": {"color": {"type": "string"}},
            "required": ["color"],
        }
        asked = {"mode": "form", "message": "Which?", "requestedSchema": schema}
        question = {"method": "elicitation/create", "params": asked}
        requests = {"inputRequests": {"q": question}, "requestState": "s"}
        say(id=number, result={"resultType": "input_required", **requests})
    elif name == "ask":
        question = {"method": "roots/list", "params": {}}
        requests = {"inputRequests": {"q": question}, "requestState": "s"}
        say(id=number, result={"resultType": "input_required", **requests})
    else:
        sys.stdout.buffer.write(b"this is no message: \xff\n")
        sys.stdout.buffer.flush()
        say(id=number, result={"content": []})


def listen(number: object) -> None:
    global subscriptions  # noqa: PLW0603
    subscriptions += 1
    meta = {"io.modelcontextprotocol/subscriptionId": number}
    accepted = {"_meta": meta, "notifications": {"toolsListChanged": True}}
    say(method="notifications/subscriptions/acknowledged", params=accepted)
    if HOW == "new":
        say(id=number, result={"_meta": meta, "resultType": "complete"})


def answer(number: object, method: str, params: dict[str, Any]) -> None:
    who = {"name": "odd", "version": "1"}
    tools = {} if HOW == "bare" else {"tools": {"listChanged": True}}
    match method:
        case "server/discover" if MODERN:
            cache = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
            say(
                id=number,
                result={"supportedVersions": ["2026-07-28"], "capabilities": tools, **cache},
            )
        case "initialize":
            version = params["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": tools, "serverInfo": who}
            say(id=number, result=result)
        case "tools/list":
            say(id=number, result=listed(params.get("cursor")))
        case "tools/call":
            called(number, params["name"], params)
        case "subscriptions/listen":
            listen(number)
        case _:
            say(id=number, error={"code": -32601, "message": "what?"})


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        answer(asked["id"], asked["method"], asked.get("params") or {})
