"""What a scripted model server does, step by step, and the short language to write it down in.

    H            response headers of an event stream      T"x"    a piece of text
    R"x"         a piece of reasoning                     F stop  the reason it stopped
    C(0,c1,read,{"a":1})   a piece of a tool call: index, id, name, arguments; `-` leaves a field
                 out, arguments that are not a whole object stand in single quotes
    U, U(7)      a usage-only chunk, with that many output tokens
    D            [DONE]              P   a comment         B      a chunk with an empty delta
    EOF          the body ends       FIN the socket closes in the middle of the body
    RST          the connection is reset                  HANG    silence, the socket stays open
    S429, S429:{"retry-after":"1"}   an HTTP error, with more headers
    W.05         wait that many seconds                   J{...}  an event with this very JSON
    X"x"         these very characters, in no event       [P W.05]*   again and again, or *40 times

A script that ends without an ending of its own ends like EOF.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec


class Head(msgspec.Struct, frozen=True):
    """Status 200 and the headers of an event stream."""


class Body(msgspec.Struct, frozen=True):
    """These bytes of the body."""

    raw: bytes


class Wait(msgspec.Struct, frozen=True):
    seconds: float


class Status(msgspec.Struct, frozen=True):
    """A whole response that is not a stream."""

    code: int
    headers: dict[str, str] = {}
    body: bytes = b""


class End(msgspec.Struct, frozen=True):
    """The body is complete."""


class Close(msgspec.Struct, frozen=True):
    """The socket is closed although the body is not complete."""


class Reset(msgspec.Struct, frozen=True):
    """The client gets a TCP reset, after all that was written."""


class Hang(msgspec.Struct, frozen=True):
    """Nothing more, until the client goes away."""


class Repeat(msgspec.Struct, frozen=True):
    steps: "tuple[Step, ...]"
    times: int | None = None


Step = Head | Body | Wait | Status | End | Close | Reset | Hang | Repeat
Script = str | Sequence[Step]
ENDINGS: dict[str, Step] = {"EOF": End(), "FIN": Close(), "RST": Reset(), "HANG": Hang()}

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<json>[TRX])(?P<string>"(?:[^"\\]|\\.)*")
    | C\((?P<call>[^,]*,[^,]*,[^,]*),(?P<args>-|'[^']*'|\{.*?\})\)(?=\s|$|\]|\*)
    | F\s(?P<finish>\S+)
    | U(?:\((?P<usage>\d+)\))?(?=\s|$|\])(?P<u>)
    | S(?P<status>\d{3})(?::(?P<headers>\{[^}]*\}))?
    | W(?P<wait>[\d.]+)
    | J(?P<event>\{.*?\})(?=\s+\S|\s*$|\])
    | (?P<open>\[) | \]\*(?P<close>\d*)
    | (?P<word>EOF|FIN|RST|HANG|[HDPB])(?=\s|$|\])
    )""",
    re.VERBOSE | re.DOTALL,
)


def steps(script: Script) -> tuple[Step, ...]:
    """Read a script; steps may also be given as such."""
    if not isinstance(script, str):
        return tuple(script)
    stack: list[list[Step]] = [[]]
    position = 0
    while position < len(script.rstrip()):
        match = _TOKEN.match(script, position)
        if match is None:
            msg = f"not a step: {script[position : position + 40]!r}"
            raise ValueError(msg)
        position = match.end()
        if match["open"]:
            stack.append([])
        elif match["close"] is not None:
            inner = stack.pop()
            stack[-1].append(Repeat(tuple(inner), int(match["close"]) if match["close"] else None))
        else:
            stack[-1].append(_step(match))
    (whole,) = stack
    return tuple(whole)


def _step(match: re.Match[str]) -> Step:
    if match["word"]:
        return _word(match["word"])
    if match["json"]:
        return _said(match["json"], json.loads(match["string"], strict=False))
    if match["call"] is not None:
        return call_delta(*_call_fields(match["call"], match["args"]))
    if match["finish"]:
        return Body(event(_choice({}, match["finish"])))
    if match["status"]:
        return status(int(match["status"]), json.loads(match["headers"] or "{}"))
    if match["wait"]:
        return Wait(float(match["wait"]))
    if match["event"]:
        return Body(b"data: " + match["event"].encode() + b"\n\n")
    return usage(int(match["usage"] or 5))


def _word(word: str) -> Step:
    match word:
        case "H":
            return Head()
        case "D":
            return Body(b"data: [DONE]\n\n")
        case "P":
            return Body(b": ping\n\n")
        case "B":
            return Body(event(_choice({})))
        case _:
            return ENDINGS[word]


def _said(kind: str, said: str) -> Step:
    if kind == "X":
        return Body(said.encode())
    return text(said) if kind == "T" else reasoning(said)


def _call_fields(
    fields: str, arguments: str
) -> tuple[int | None, str | None, str | None, str | None]:
    index, call_id, name = (
        None if part.strip() == "-" else part.strip() for part in fields.split(",")
    )
    return (
        None if index is None else int(index),
        call_id,
        name,
        None if arguments == "-" else arguments.strip("'"),
    )


def text(said: str) -> Body:
    return Body(event(_choice({"content": said})))


def reasoning(said: str) -> Body:
    return Body(event(_choice({"reasoning_content": said})))


def call_delta(
    index: int | None, call_id: str | None, name: str | None, arguments: str | None
) -> Body:
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    fields: tuple[tuple[str, Any], ...] = (("index", index), ("id", call_id))
    call: dict[str, Any] = {k: v for k, v in fields if v is not None}
    return Body(
        event(_choice({"tool_calls": [{**call, "type": "function", "function": function}]}))
    )


def usage(completion: int, prompt: int = 10) -> Body:
    counted = {"prompt_tokens": prompt, "completion_tokens": completion}
    return Body(event({"choices": [], "usage": {**counted, "total_tokens": prompt + completion}}))


def status(
    code: int, headers: dict[str, str] | None = None, message: str = "scripted error"
) -> Status:
    error = {"error": {"message": message, "type": "scripted", "code": None}}
    return Status(code, headers or {}, json.dumps(error).encode())


def ok(said: str) -> tuple[Step, ...]:
    """A whole answer in one piece of text."""
    return (Head(), text(said), *steps("F stop U D EOF"))


def calls(*made: tuple[str, str, str]) -> tuple[Step, ...]:
    """A whole answer that calls tools: (id, name, arguments) each."""
    deltas = (call_delta(index, *call) for index, call in enumerate(made))
    return (Head(), *deltas, *steps("F tool_calls U D EOF"))


def words(said: str, delay: float = 0.0) -> tuple[Step, ...]:
    """A whole answer, word by word."""
    pieces = (step for word in re.findall(r"\S+\s*", said) for step in (text(word), Wait(delay)))
    return (Head(), *pieces, *steps("F stop U D EOF"))


def body_of(script: Script) -> bytes:
    """All that a script writes into the body."""
    return b"".join(_bodies(steps(script)))


def cut(script: Script, after: int, ending: str) -> tuple[Step, ...]:
    """The same script, cut after that many bytes of the body: EOF, FIN, RST or HANG."""
    return (Head(), Body(body_of(script)[:after]), ENDINGS[ending])


def _bodies(whole: Sequence[Step]) -> Iterator[bytes]:
    for step in whole:
        if isinstance(step, Body):
            yield step.raw
        elif isinstance(step, Repeat):
            yield from _bodies(step.steps * (step.times or 0))


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def event(fields: dict[str, Any]) -> bytes:
    """One chunk of the Chat Completions protocol."""
    common = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
    }
    return b"data: " + json.dumps({**common, **fields}).encode() + b"\n\n"
