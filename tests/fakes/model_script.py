"""What a scripted model server does, step by step, and the short language to write it down in.

    H            the response begins: headers, and what the protocol says first
    T"x"         a piece of text                          R"x"    a piece of reasoning
    C(0,c1,read,{"a":1})   a piece of a tool call: index, id, name, arguments; `-` leaves a field
                 out, arguments that are not a whole object stand in single quotes
    F stop       the reason it stopped: stop, tool_calls, length, content_filter, ...
    U, U(7), U(7,100,60)   what it cost: output tokens, input tokens, how many of these were cached
    D            the end mark        P   a sign of life    B      an event without content
    EOF          the body ends       FIN the socket closes in the middle of the body
    RST          the connection is reset                  HANG    silence, the socket stays open;
                 before H: the request was taken, and there is no response at all
    S429, S429:{"retry-after":"1"}, S400"too long"   an HTTP error, with more headers, a message
    E"x", E529"x"   an error inside the stream, of the kind that this status would have been
    W.05         wait that many seconds                   J{...}  an event with this very JSON
    X"x"         these very characters, in no event       [P W.05]*   again and again, or *40 times

A script that ends without an ending of its own ends like EOF.

The same script is said in three protocols; `tests.fakes.dialects` has what each makes of a step:

    step    chat                    anthropic                        responses
    H       (headers only)          message_start                    response.created, .in_progress
    T R C   a chunk each            blocks, opened and closed        items, opened and closed
    F       finish_reason           block ends, message_delta        item ends, response.completed
    U       a chunk of its own      in the message_delta             in response.completed
    D       [DONE]                  message_stop                     nothing
    P       a comment               event: ping                      a comment
    B       an empty delta          an empty delta                   response.in_progress

Where F and U stand beside each other they are one event in the latter two; U alone is a
message_delta without a reason, or nothing. What a protocol cannot say is a ValueError.

A request that asks for no stream gets one JSON body, written at D or at the script's ending; if
the script tells no end (no F, U or D), only the part before it. P is an empty line in front of
it, B is nothing, J and X are what they are.
"""

import json
import re
from collections.abc import Iterator, Sequence

from tests.fakes.dialects.chat import event
from tests.fakes.dialects.choose import dialect_for
from tests.fakes.dialects.steps import (
    Blank,
    CallDelta,
    Close,
    Dialect,
    Done,
    End,
    Event,
    Fault,
    Finish,
    Hang,
    Head,
    Ping,
    ProtocolName,
    Raw,
    Reasoning,
    Repeat,
    Reset,
    Script,
    Status,
    Step,
    Text,
    Usage,
    Wait,
    first_usage,
)

__all__ = [
    "Blank",
    "CallDelta",
    "Close",
    "Done",
    "End",
    "Event",
    "Fault",
    "Finish",
    "Hang",
    "Head",
    "Ping",
    "Raw",
    "Reasoning",
    "Repeat",
    "Reset",
    "Script",
    "Status",
    "Step",
    "Text",
    "Usage",
    "Wait",
    "body_of",
    "call_delta",
    "calls",
    "cut",
    "event",
    "ok",
    "reasoning",
    "status",
    "steps",
    "text",
    "usage",
    "words",
]

_WORDS: dict[str, Step] = {"H": Head(), "D": Done(), "P": Ping(), "B": Blank()}
ENDINGS: dict[str, Step] = {"EOF": End(), "FIN": Close(), "RST": Reset(), "HANG": Hang()}

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<json>[TRX])(?P<string>"(?:[^"\\]|\\.)*")
    | C\((?P<call>[^,]*,[^,]*,[^,]*),(?P<args>-|'[^']*'|\{.*?\})\)(?=\s|$|\]|\*)
    | F\s(?P<finish>\S+)
    | U(?:\((?P<usage>\d+(?:,\d+){0,2})\))?(?=\s|$|\])(?P<u>)
    | S(?P<status>\d{3})(?::(?P<headers>\{[^}]*\}))?(?P<complaint>"(?:[^"\\]|\\.)*")?
    | E(?P<code>\d{3})?(?P<fault>"(?:[^"\\]|\\.)*")
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
        return _WORDS.get(match["word"]) or ENDINGS[match["word"]]
    if match["json"]:
        return _said(match["json"], _string(match["string"]))
    if match["call"] is not None:
        return call_delta(*_call_fields(match["call"], match["args"]))
    if match["finish"]:
        return Finish(match["finish"])
    if match["status"]:
        message = _string(match["complaint"] or '"scripted error"')
        return status(int(match["status"]), json.loads(match["headers"] or "{}"), message)
    if match["fault"]:
        return Fault(_string(match["fault"]), int(match["code"] or 500))
    if match["wait"]:
        return Wait(float(match["wait"]))
    if match["event"]:
        return Event(match["event"].encode())
    return Usage(*(int(count) for count in (match["usage"] or "5").split(",")))


def _string(quoted: str) -> str:
    said: str = json.loads(quoted, strict=False)
    return said


def _said(kind: str, said: str) -> Step:
    if kind == "X":
        return Raw(said.encode())
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


def text(said: str) -> Text:
    return Text(said)


def reasoning(said: str) -> Reasoning:
    return Reasoning(said)


def call_delta(
    index: int | None, call_id: str | None, name: str | None, arguments: str | None
) -> CallDelta:
    return CallDelta(index, call_id, name, arguments)


def usage(completion: int, prompt: int = 10, cached: int | None = None) -> Usage:
    return Usage(completion, prompt, cached)


def status(
    code: int, headers: dict[str, str] | None = None, message: str = "scripted error"
) -> Status:
    return Status(code, headers or {}, message=message)


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


def body_of(script: Script, protocol: ProtocolName = "chat", *, stream: bool = True) -> bytes:
    """All that a script writes into the body."""
    whole = steps(script)
    dialect = dialect_for(protocol, first_usage(whole), stream=stream)
    return b"".join(_bodies(whole, dialect)) + dialect.close()


def cut(
    script: Script,
    after: int,
    ending: str,
    protocol: ProtocolName = "chat",
    *,
    stream: bool = True,
) -> tuple[Step, ...]:
    """The same script, cut after that many bytes of the body: EOF, FIN, RST or HANG."""
    return (Head(bare=True), Raw(body_of(script, protocol, stream=stream)[:after]), ENDINGS[ending])


def _bodies(whole: Sequence[Step], dialect: Dialect) -> Iterator[bytes]:
    for step in whole:
        match step:
            case Repeat(inner, times):
                yield from _bodies(inner * (times or 0), dialect)
            case Status() | End() | Close() | Reset() | Hang():
                pass
            case _:
                yield dialect.feed(step)
