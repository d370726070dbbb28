"""A stand-in for a model service: answers fast, slowly, never, or breaks off midway.

The question selects the behaviour, see `gateway.operate.selftest.trials`. The protocol is OpenAI's
streamed Chat Completions.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.operate.selftest.plain_http import Connection

FILE_CONTENT = "one\n" * 400
"""Text the model writes to a file."""

_QUESTION = re.compile(r"\[([a-z]+)-(\d+)\]")
_RESPONSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_WORD_SECONDS = 0.05


class FakeModel:
    """The model; `handle_request` serves requests."""

    def __init__(self) -> None:
        self.request_counts: Counter[str] = Counter()  # number of requests, by question
        self.hanging_connections: dict[str, Connection] = {}  # unanswered, by question
        self.changed = asyncio.Event()

    def handle_request(self, connection: Connection, path: str, body: bytes) -> None:
        """Serve a request."""
        if not path.endswith("/chat/completions"):
            connection.answer(b'{"object":"list","data":[{"id":"selftest","object":"model"}]}')
            return
        messages: list[dict[str, Any]] = msgspec.json.decode(body)["messages"]
        kind, number = _last_question(messages)
        name = f"{kind}-{number}"
        self.request_counts[name] += 1
        connection.write(_RESPONSE_HEAD)
        loop, delay = asyncio.get_running_loop(), 0.0
        for piece in self._script(kind, name, messages):
            match piece:
                case float():
                    delay += piece
                case bytes():
                    loop.call_later(delay, connection.write, b"%x\r\n%b\r\n" % (len(piece), piece))
                case "cut":
                    loop.call_later(delay, connection.abort)
                    return
                case _:
                    self.hanging_connections[name] = connection
                    self.changed.set()
                    return
        loop.call_later(delay, connection.write, b"0\r\n\r\n")

    def _script(
        self, kind: str, name: str, messages: list[dict[str, Any]]
    ) -> Iterator[bytes | float | str]:
        """Yield the response: events, pauses in seconds, and "cut" or "hang"."""
        words = ["Well,", " here", " is", " all", " that", " there", " is", " to", " say:"]
        end, first = f" end-of-{name}.", self.request_counts[name] == 1
        match kind:
            case "cut" | "limit" if first:
                for word in words[:5]:
                    yield _text_event(word)
                if kind == "cut":
                    yield "cut"
                yield _finish_event("length")
            case "cut" | "limit":
                yield _text_event("".join(words[5:]) + end)
                yield _finish_event("stop")
            case "silent" if first:
                yield "hang"
            case "hang":
                yield _text_event("So far")
                yield "hang"
            case "file" if messages[-1]["role"] == "tool":
                yield _text_event(f"It is written.{end}")
                yield _finish_event("stop")
            case "file":
                arguments = msgspec.json.encode(
                    {"path": f"{name}.txt", "content": FILE_CONTENT}
                ).decode()
                yield _call_event(
                    f"call-{self.request_counts[name]}", arguments[: len(arguments) // 2]
                )
                if first:
                    yield "cut"
                yield _call_event("", arguments[len(arguments) // 2 :])
                yield _finish_event("tool_calls")
            case _:
                pause = _WORD_SECONDS if kind == "slow" else 0.0
                for word in words * (4 if kind == "slow" else 1):
                    yield _text_event(word)
                    yield pause
                yield _text_event(end)
                yield _finish_event("stop")


def _last_question(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """Return kind and number of the last question of a person; recovery prompts contain none."""
    for message in reversed(messages):
        if message["role"] == "user":
            found = _QUESTION.findall(str(message["content"]))
            if found:
                last: tuple[str, str] = found[-1]
                return last
    return ("plain", "0")


def _encode_event(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {
        "id": "selftest",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "selftest",
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _text_event(words: str) -> bytes:
    return _encode_event({"content": words})


def _call_event(id_: str, arguments: str) -> bytes:
    function = {"arguments": arguments} | ({"name": "write_file"} if id_ else {})
    call: dict[str, object] = {"index": 0, "function": function}
    if id_:
        call |= {"id": id_, "type": "function"}
    return _encode_event({"tool_calls": [call]})


def _finish_event(reason: str) -> bytes:
    return _encode_event({}, reason) + b"data: [DONE]\n\n"
