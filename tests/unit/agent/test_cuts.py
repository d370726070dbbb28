"""Answers cut at any point, with simulated time; see `tests.faults.cuts`."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.answer.accumulate import Accumulator, StepResult
from agent.events import ReasoningDelta, TextDelta
from agent.providers.anthropic.wire import MessageReader
from agent.providers.openai.chat_wire import ChatReader
from agent.providers.openai.responses_wire import ResponsesReader
from agent.providers.transport.connections import ChunkReader
from agent.tools.registry import ToolRegistry
from tests.fakes.cooperative import Answer, Call, cooperative, pieces_of, place_behind, rest_of
from tests.fakes.dialects.requests import Asked
from tests.fakes.dialects.steps import PROTOCOLS, ProtocolName
from tests.faults.cuts import (
    HOW,
    SUBJECTS,
    Cut,
    Subject,
    every_cut,
    plan,
    play_all,
    recorded,
    tools_of,
)

SOME = 220  # cuts per answer; `make every-byte` runs all of them, three at each byte
TWICE = 50

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
each_subject = pytest.mark.parametrize("subject", SUBJECTS)


@pytest.mark.process
@pytest.mark.timeout(120)
@each_protocol
@each_subject
def test_an_answer_cut_at_any_point_is_completed(protocol: ProtocolName, subject: Subject) -> None:
    cuts = list(every_cut(protocol, subject))
    step = len(cuts) // SOME
    step += step % len(HOW) == 0  # alternate between the kinds of cut
    some = cuts[PROTOCOLS.index(protocol) * 5 + SUBJECTS.index(subject) * 2 :: step]
    assert {cut.how for cut in some} == {*HOW}
    assert play_all(protocol, subject, ((cut,) for cut in some)) > SOME * 0.9


@pytest.mark.timeout(120)
@each_protocol
@each_subject
def test_two_consecutive_cut_answers_are_completed(
    protocol: ProtocolName, subject: Subject
) -> None:
    chance = random.Random(f"{protocol} {subject}")  # noqa: S311 - deterministic
    size = len(recorded(protocol, subject))

    def pairs() -> Iterator[tuple[Cut, ...]]:
        for _ in range(TWICE):
            first = Cut(chance.randrange(size), chance.choice(HOW))
            # Two that end without a word, the second behind what it repeats, mean that there is
            # no more to say; so one of them breaks.
            ways = ("RST", "HANG") if first.how == "EOF" else HOW
            yield first, Cut(chance.randrange(size), chance.choice(ways))

    assert play_all(protocol, subject, pairs()) == TWICE


# --- splits ----------------------------------------------------------------------------------

READERS: dict[ProtocolName, Callable[[], ChunkReader]] = {
    "chat": ChatReader,
    "anthropic": MessageReader,
    "responses": ResponsesReader,
}


TOOLS = ToolRegistry(tools_of(lambda _: None))


def collected(protocol: ProtocolName, pieces: Sequence[bytes]) -> tuple[StepResult, str, str]:
    """Return the result of an answer and the text shown of it."""
    reader, accumulator = READERS[protocol](), Accumulator(TOOLS.schemas, "call")
    shown: list[TextDelta | ReasoningDelta] = []
    for piece in pieces:
        for chunk in reader.feed(piece):
            shown += accumulator.feed(chunk)
    for chunk in reader.close():
        shown += accumulator.feed(chunk)
    shown += accumulator.close()
    text = "".join(each.text for each in shown if isinstance(each, TextDelta))
    thoughts = "".join(each.text for each in shown if isinstance(each, ReasoningDelta))
    return accumulator.result(), text, thoughts


RECORDED = {
    (protocol, subject): recorded(protocol, subject)
    for protocol in PROTOCOLS
    for subject in SUBJECTS
}


@given(
    st.sampled_from(sorted(RECORDED)),
    st.lists(st.integers(0, 20_000), max_size=30),
    st.none() | st.integers(0, 20_000),
)
@example(("chat", "calls"), list(range(20_000)), None)
@example(("anthropic", "calls"), list(range(20_000)), None)
@example(("responses", "calls"), list(range(20_000)), None)
def test_the_result_does_not_depend_on_how_the_answer_is_split(
    which: tuple[ProtocolName, Subject], places: list[int], end: int | None
) -> None:
    protocol, _ = which
    body = RECORDED[which][:end]
    edges = [0, *sorted(min(place, len(body)) for place in places), len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    assert collected(protocol, pieces) == collected(protocol, [body])


@each_protocol
@each_subject
def test_the_recorded_answers_match_the_plan(protocol: ProtocolName, subject: Subject) -> None:
    step, text, thoughts = collected(protocol, [RECORDED[protocol, subject]])
    meant = plan(subject)[0]
    assert (text, thoughts) == (meant.text, meant.reasoning)
    made = [(call.name, call.arguments, call.sealed) for call in step.calls]
    assert made == [(call.name, call.arguments, True) for call in meant.calls]


# --- the model of these tests ----------------------------------------------------------------

FILE = Answer(calls=(Call("w", "write_file", '{"path": "a", "content": "one two three"}'),))
LETTER = Answer("Dear reader, this is a letter.", "hm", (Call("c", "read", '{"path": "a"}'),))
GO: dict[str, Any] = {"role": "user", "content": "go", "tool_calls": [], "tool_call_id": None}


def asked(*messages: tuple[str, str]) -> Asked:
    return Asked(
        "", [GO, *({**GO, "role": role, "content": said} for role, said in messages)], {}, None
    )


def test_the_cooperative_model_continues_after_a_quoted_text() -> None:
    told = (
        "[Your answer above was cut. The part that arrived ends with:\n«Dear rea»\nContinue "
        "exactly there: start by repeating these last words verbatim, «rea», and then go on.]"
    )
    rest = rest_of([LETTER], asked(("assistant", "Dear rea"), ("user", told)))
    assert rest == Answer("reader, this is a letter.", calls=LETTER.calls)


def test_the_cooperative_model_continues_after_a_draft() -> None:
    told = (
        "[The beginning of a was kept as draft d0a1b2c (4 characters, 1 line). The file "
        "itself has not been written yet. The draft ends with:\n«one»\nContinue with `write_file_continue`]"
    )
    (call,) = rest_of([FILE], asked(("user", told))).calls
    assert call.name == "write_file_continue"
    assert '"content": " two three"' in call.arguments
    assert '"d0a1b2c"' in call.arguments


def test_the_cooperative_model_sends_everything_when_nothing_arrived() -> None:
    assert rest_of([LETTER], asked()) == LETTER
    assert rest_of([FILE], asked()) == FILE
    assert len(cooperative([LETTER], asked(), pieces_of(10))) > 6


def test_a_wrong_quotation_is_detected() -> None:
    for wrong in ("dear", "e", ""):
        with pytest.raises(AssertionError):
            place_behind(LETTER.text, wrong)
