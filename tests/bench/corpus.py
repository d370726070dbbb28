"""Answers as model services stream them, in three protocols, cut into what a socket gives."""

import json
import random
import re
from collections.abc import Iterator

import msgspec

from tests.fakes.dialects.steps import ProtocolName, Step
from tests.fakes.model_script import Head, body_of, call_delta, reasoning, steps, text

PIECES = 2000
"""Pieces of content in each answer; every piece is an event of its own."""

_SEGMENT = 1448  # bytes that one packet carries over Ethernet
_TOGETHER = 0.3  # how often an event reaches the socket together with the one before it
_TORN = 0.05  # how often it comes in two reads
_WORDS = (
    "the", "stream", " of", " a", "n answer", " “quoted”", " naïve", " 日本", " 🙂", " end.\n",
    " def", " f(x):\n", "    return", " x", " | cell", " 12.5", " —", " and", " so", " on",
)  # fmt: skip


class Recording(msgspec.Struct, frozen=True):
    """One answer: what it is about, and the whole body."""

    name: str
    protocol: ProtocolName
    body: bytes


def recordings(protocol: ProtocolName) -> tuple[Recording, ...]:
    """An answer of text, one of tool arguments, one of reasoning."""
    chance = random.Random(3)  # noqa: S311 - the same answer each time
    said = [chance.choice(_WORDS) for _ in range(PIECES)]
    answers: dict[str, Iterator[Step]] = {
        "text": _says(said),
        "arguments": _writes_a_file(said),
        "reasoning": _thinks(said),
    }
    return tuple(
        Recording(name, protocol, _compact(body_of((Head(), *answer), protocol)))
        for name, answer in answers.items()
    )


def _compact(body: bytes) -> bytes:
    """Write every event as services do: without spaces, and characters as UTF-8."""
    return re.sub(rb"data: (\{.*)", lambda found: b"data: " + _rewritten(found[1]), body)


def _rewritten(fields: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(fields))


def _says(said: list[str]) -> Iterator[Step]:
    yield from (text(piece) for piece in said)
    yield from steps("F stop U(900,40) D EOF")


def _writes_a_file(said: list[str]) -> Iterator[Step]:
    yield text("I write it down.")
    yield call_delta(0, "call_1", "read_file", '{"path": "notes.md"}')
    yield call_delta(1, "call_2", "write_file", "")
    yield call_delta(1, None, None, '{"path": "notes.md", "content": "')
    for piece in said:
        yield call_delta(1, None, None, json.dumps(piece)[1:-1])
    yield call_delta(1, None, None, '"}')
    yield from steps("F tool_calls U(900,40) D EOF")


def _thinks(said: list[str]) -> Iterator[Step]:
    yield from (reasoning(piece) for piece in said)
    yield from _says(said[:20])


def as_received(body: bytes, seed: int = 1) -> list[bytes]:
    """Cut a body into reads: mostly one event each, some together, some torn apart."""
    chance = random.Random(seed)  # noqa: S311 - the same cuts each time
    reads: list[bytes] = []
    pending = b""
    for event in body.split(b"\n\n")[:-1]:
        if pending and chance.random() >= _TOGETHER:
            reads.append(pending)
            pending = b""
        pending += event + b"\n\n"
        if chance.random() < _TORN:
            at = chance.randrange(1, len(pending))
            reads.append(pending[:at])
            pending = pending[at:]
        while len(pending) > _SEGMENT:
            reads.append(pending[:_SEGMENT])
            pending = pending[_SEGMENT:]
    return [*reads, pending]
