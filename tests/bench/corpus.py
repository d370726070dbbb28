"""Answers as model services stream them, in three protocols, cut into what a socket gives."""

import json
import random
from collections.abc import Iterator

import msgspec

from tests.fakes.dialects.steps import ProtocolName, Step
from tests.fakes.model_script import Head, body_of, call_delta, reasoning, steps, text

PIECES = 2000
"""Pieces of content in each answer; every piece is an event of its own."""

_SEGMENT = 1448  # bytes that one packet carries over Ethernet
_TOGETHER = 0.3  # how often an event reaches the socket together with the one before it
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
    chance = random.Random(3)
    said = [chance.choice(_WORDS) for _ in range(PIECES)]
    answers: dict[str, Iterator[Step]] = {
        "text": (text(piece) for piece in said),
        "arguments": _writes_a_file(said),
        "reasoning": _thinks(said),
    }
    ending = {"arguments": "F tool_calls U(900,40) D EOF"}
    return tuple(
        Recording(
            name,
            protocol,
            body_of((Head(), *answer, *steps(ending.get(name, "F stop U(900,40) D EOF"))), protocol),
        )
        for name, answer in answers.items()
    )


def _writes_a_file(said: list[str]) -> Iterator[Step]:
    yield text("I write it down.")
    yield call_delta(0, "call_1", "read_file", '{"path": "notes.md"}')
    yield call_delta(1, "call_2", "write_file", "")
    yield call_delta(1, None, None, '{"path": "notes.md", "content": "')
    for piece in said:
        yield call_delta(1, None, None, json.dumps(piece)[1:-1])
    yield call_delta(1, None, None, '"}')


def _thinks(said: list[str]) -> Iterator[Step]:
    yield from (reasoning(piece) for piece in said)
    yield from (text(piece) for piece in said[:20])


def as_received(body: bytes, seed: int = 1) -> list[bytes]:
    """Cut a body into reads: mostly one event each, some in one go, none longer than a packet."""
    chance = random.Random(seed)
    reads: list[bytes] = []
    pending = b""
    for event in body.split(b"\n\n"):
        if pending and chance.random() >= _TOGETHER:
            reads.append(pending)
            pending = b""
        pending += event + b"\n\n"
        while len(pending) > _SEGMENT:
            reads.append(pending[:_SEGMENT])
            pending = pending[_SEGMENT:]
    whole = b"".join([*reads, pending])
    assert whole.startswith(body)
    return [*reads, pending[: len(pending) - (len(whole) - len(body))]]
