"""A program that is a bad server of tools, written by hand.

    python mcp_hostile_server.py (burst | crash | malformed | slow | grandchild) [NOTE]

`burst` sends 20,000 notifications, answers nobody asked for and requests with each call. `crash` dies
in the middle of its answer. `malformed` gives answers of the wrong shape: the tool's name says which.
`slow` lists its tools at once and answers a call in small pieces. `grandchild` starts a program that
keeps its pipes and ignores signals, writes its id to NOTE, and dies with the first call.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

HOW = sys.argv[1]
SHAPES: dict[str, Any] = {
    "a_text": "text",
    "a_list": [],
    "nothing": None,
    "no_content": {"isError": False},
    "unknown_content": {"content": [{"type": "hologram", "data": 1}]},
    "wrong_content": {"content": [{"type": "text", "text": 7}]},
    "bad_picture": {"content": [{"type": "image", "data": "%%%", "mimeType": "image/png"}]},
    "odd_picture": {"content": [{"type": "image", "data": "QUJD", "mimeType": "../../x"}]},
    "odd_name": {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "file:///..%2F..%2Fetc%2Fpasswd", "blob": "QUJD"},
            }
        ]
    },
}
TOOLS = {
    "burst": ["go"],
    "crash": ["half"],
    "malformed": list(SHAPES),
    "slow": ["drip"],
    "grandchild": ["go"],
}
GRANDCHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def say(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def burst() -> None:
    for number in range(5_000):
        say(method="notifications/tools/list_changed")
        say(method="notifications/message", params={"level": "error", "data": f"noise {number}"})
        say(id=f"nobody asked {number}", result={})
        say(id=f"r{number}", method="roots/list")


def call(number: object, name: str) -> None:
    answer = {"jsonrpc": "2.0", "id": number, "result": {"content": []}}
    match HOW:
        case "burst":
            burst()
            say(id=number, result={"content": [{"type": "text", "text": "done"}]})
        case "crash":
            write(json.dumps(answer)[:20])
            os._exit(1)
        case "malformed":
            say(id=number, result=SHAPES[name])
        case "slow":
            for letter in json.dumps(answer):
                write(letter)
                time.sleep(0.002)
            write("\n")
        case "grandchild":
            with subprocess.Popen(
                [sys.executable, "-c", GRANDCHILD], start_new_session=True
            ) as child:
                with open(sys.argv[2], "w") as note:  # noqa: PTH123 - a program of its own
                    note.write(str(child.pid))
                os._exit(1)
        case _:
            pass


def answer(number: object, method: str, params: dict[str, Any]) -> None:
    match method:
        case "initialize":
            who = {"name": "hostile", "version": "1"}
            result = {"capabilities": {"tools": {}}, "serverInfo": who}
            say(id=number, result={"protocolVersion": params["protocolVersion"], **result})
        case "tools/list":
            tools = [{"name": each, "inputSchema": {"type": "object"}} for each in TOOLS[HOW]]
            say(id=number, result={"tools": tools})
        case "tools/call":
            call(number, params["name"])
        case _:
            say(id=number, error={"code": -32601, "message": "what?"})


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        answer(asked["id"], asked["method"], asked.get("params") or {})
