"""A model that answers as asked: at once, slowly, never, or breaking off in the middle.

What becomes of a request is in the question, see `gateway.operate.selftest.trials`. It speaks the protocol of
OpenAI's Chat Completions, streamed.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.operate.selftest.plain_http import Connection

FILE = "one\n" * 400
"""What the model writes into a file."""

_ASKED = re.compile(r"\[([a-z]+)-(\d+)\]")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_WORD_SECONDS = 0.05


class ModelService:
    """Answers questions; `heard` takes the requests."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()  # requests, by question
        self.hanging: dict[str, Connection] = {}  # that are never answered, by question
        self.changed = asyncio.Event()

    def heard(self, connection: Connection, path: str, body: bytes) -> None:
        """Take a request."""
        if not path.endswith("/chat/completions"):
            connection.answer(b'{"object":"list","data":[{"id":"selftest","object":"model"}]}')
            return
        messages: list[dict[str, Any]] = msgspec.json.decode(body)["messages"]
        kind, number = _asked(messages)
        name = f"{kind}-{number}"
        self.tries[name] += 1
        connection.write(_HEAD)
        loop, at = asyncio.get_running_loop(), 0.0
        for piece in self._pieces(kind, name, messages):
            match piece:
                case float():
                    at += piece
                case bytes():
                    loop.call_later(at, connection.write, b"%x\r\n%b\r\n" % (len(piece), piece))
                case "cut":
                    loop.call_later(at, connection.break_off)
                    return
                case _:
                    self.hanging[name] = connection
                    self.changed.set()
                    return
        loop.call_later(at, connection.write, b"0\r\n\r\n")

    def _pieces(
        self, kind: str, name: str, messages: list[dict[str, Any]]
    ) -> Iterator[bytes | float | str]:
        """What is sent: events, pauses in seconds, and how it breaks off."""
        words = ["Well,", " here", " is", " all", " that", " there", " is", " to", " say:"]
        end, first = f" end-of-{name}.", self.tries[name] == 1
        match kind:
            case "cut" | "limit" if first:
                for word in words[:5]:
                    yield _text(word)
                if kind == "cut":
                    yield "cut"
                yield _finish("length")
            case "cut" | "limit":
                yield _text("".join(words[5:]) + end)
                yield _finish("stop")
            case "silent" if first:
                yield "hang"
            case "hang":
                yield _text("So far")
                yield "hang"
            case "file" if messages[-1]["role"] == "tool":
                yield _text(f"It is written.{end}")
                yield _finish("stop")
            case "file":
                arguments = msgspec.json.encode({"path": f"{name}.txt", "content": FILE}).decode()
                yield _call(f"call-{self.tries[name]}", arguments[: len(arguments) // 2])
                if first:
                    yield "cut"
                yield _call("", arguments[len(arguments) // 2 :])
                yield _finish("tool_calls")
            case _:
                pause = _WORD_SECONDS if kind == "slow" else 0.0
                for word in words * (4 if kind == "slow" else 1):
                    yield _text(word)
                    yield pause
                yield _text(end)
                yield _finish("stop")


def _asked(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The last question that a person asked; what recovery adds asks none."""
    for message in reversed(messages):
        if message["role"] == "user":
            found = _ASKED.findall(str(message["content"]))
            if found:
                last: tuple[str, str] = found[-1]
                return last
    return ("plain", "0")


def _event(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {
        "id": "selftest",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "selftest",
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _text(words: str) -> bytes:
    return _event({"content": words})


def _call(id_: str, arguments: str) -> bytes:
    function = {"arguments": arguments} | ({"name": "write_file"} if id_ else {})
    call: dict[str, object] = {"index": 0, "function": function}
    if id_:
        call |= {"id": id_, "type": "function"}
    return _event({"tool_calls": [call]})


def _finish(reason: str) -> bytes:
    return _event({}, reason) + b"data: [DONE]\n\n"
