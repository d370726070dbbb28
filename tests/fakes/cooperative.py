"""A model that means to say certain things, and goes on wherever a request shows that it was cut off.

It knows nothing but the request: which calls have results, which text is quoted at its end, which
draft it is told of. So what it says is right only if what it was told is.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tests.fakes.dialects.requests import Asked
from tests.fakes.model_script import Head, Step, call_delta, reasoning, steps, text

Pieces = Callable[[str], Sequence[str]]

_QUOTED = re.compile(
    r"The part that arrived ends with:\n«(.*?)»\nContinue exactly there: ", re.DOTALL
)
_BEGIN = re.compile(r"start by repeating these last words verbatim, «(.*?)», and then", re.DOTALL)
_DRAFT = re.compile(
    r"was kept as draft (d[0-9a-f]{6}) .*?The draft ends with:\n«(.*?)»\nContinue with ", re.DOTALL
)
_SHOWN = "The text above was already shown; do not repeat it"


class Call(msgspec.Struct, frozen=True):
    """A tool call that the model wants to make."""

    id: str
    name: str
    arguments: str


class Answer(msgspec.Struct, frozen=True):
    """One answer that it wants to give; the next one follows when all calls have results."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def pieces_of(size: int) -> Pieces:
    """Say things in pieces of that many characters."""
    return lambda said: [said[at : at + size] for at in range(0, len(said), size)]


def cooperative(plan: Sequence[Answer], asked: Asked, pieces: Pieces) -> tuple[Step, ...]:
    """Give what the model says to a request."""
    return script_of(rest_of(plan, asked), pieces)


def script_of(answer: Answer, pieces: Pieces) -> tuple[Step, ...]:
    """Write an answer as a script."""
    return (Head(), *_said(answer, pieces), *steps(_END[bool(answer.calls)]))


_END = {True: "F tool_calls U D", False: "F stop U D"}


def _said(answer: Answer, pieces: Pieces) -> Iterator[Step]:
    yield from map(reasoning, pieces(answer.reasoning))
    yield from map(text, pieces(answer.text))
    for index, call in enumerate(answer.calls):
        yield call_delta(index, call.id, call.name, "")
        yield from (call_delta(index, None, None, piece) for piece in pieces(call.arguments))


def rest_of(plan: Sequence[Answer], asked: Asked) -> Answer:
    """Tell what is left to be said of the first answer that is not finished."""
    made = _made(asked.messages)
    told = asked.last_user_text if asked.messages[-1]["role"] == "user" else ""
    for answer in plan:
        missing = tuple(call for call in answer.calls if not any(_is(call, m) for m in made))
        if missing or answer is plan[-1]:
            begun = len(missing) < len(answer.calls)
            return _rest(answer, missing, told, begun=begun)
    msg = "the plan is empty"
    raise ValueError(msg)


def _rest(answer: Answer, missing: tuple[Call, ...], told: str, *, begun: bool) -> Answer:
    calls = tuple(_drafted(call, told) for call in missing)
    if begun or _SHOWN in told:
        return Answer(calls=calls)
    quoted = _QUOTED.search(told)
    if quoted is None:
        return Answer(answer.text, answer.reasoning, calls)
    at = place_behind(answer.text, quoted[1])
    first = _BEGIN.search(told)
    assert first is not None, told
    assert answer.text[:at].endswith(first[1]), (first[1], answer.text[:at])
    return Answer(first[1] + answer.text[at:], calls=calls)


def place_behind(said: str, quoted: str) -> int:
    """Find where to go on; the quotation must stand there exactly, and only once."""
    assert quoted, "nothing was quoted"
    assert said.count(quoted) == 1, f"{quoted!r} stands {said.count(quoted)} times in the text"
    return said.index(quoted) + len(quoted)


def _drafted(call: Call, told: str) -> Call:
    """Of a file whose beginning was kept, give only the rest."""
    drafts = _DRAFT.findall(told)
    if call.name != "write_file" or not drafts:
        return call
    draft, tail = drafts[-1]
    content: str = json.loads(call.arguments)["content"]
    rest = content[place_behind(content, tail) :]
    fields = {"draft_id": draft, "content": rest, "final": True}
    return Call(f"{call.id}_{len(rest)}", "write_file_continue", json.dumps(fields))


def _made(messages: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Calls of the present turn that have a result."""
    begins = max(
        at
        for at, each in enumerate(messages)
        if each["role"] == "user" and not each["content"].startswith("[")
    )
    turn = messages[begins:]
    answered = {each["tool_call_id"] for each in turn if each["role"] == "tool"}
    return [call for each in turn for call in each["tool_calls"] if call["id"] in answered]


def _is(wanted: Call, made: dict[str, str]) -> bool:
    given = json.loads(made["arguments"])
    if wanted.name == "write_file" and made["name"] == "write_file_continue":
        return bool(given["final"])
    return wanted.name == made["name"] and json.loads(wanted.arguments) == given
