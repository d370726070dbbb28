"""Events and objects of `/v1/responses`, validated against the types of Open Responses."""

import json
from typing import Any

import openresponses_types
import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.failures import HttpFailure
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ReasoningPiece
from gateway.http.api.responses.form import ResponsesEncoder
from sessions.records import ToolCall

CALL = ToolCall("call_01abc_0123456789ab", "weather", '{"city": "Berlin"}')
OUTCOMES: dict[str, tuple[AnswerOutcome, str]] = {
    "complete": (AnswerOutcome("stop"), "completed"),
    "calls": (AnswerOutcome("tool_calls", client_calls=(CALL, CALL)), "completed"),
    "cut": (AnswerOutcome("length"), "incomplete"),
    "declined": (AnswerOutcome("content_filter", refusal="No."), "incomplete"),
    "failed": (AnswerOutcome("error", HttpFailure(status=502, message="Oh.")), "failed"),
}


def event_types() -> dict[str, type[BaseModel]]:
    """Types of the events by the value of `type`."""
    found: dict[str, type[BaseModel]] = {}
    for name in dir(openresponses_types):
        kind = getattr(openresponses_types, name)
        if name.endswith("StreamingEvent"):
            (value,) = list(kind.model_fields["type"].annotation)
            found[value.value] = kind
    return found


EVENT_TYPES = event_types()


@pytest.mark.parametrize("text", ["", "Let me look."])
@pytest.mark.parametrize("thought", ["", "Hm, weather."])
@pytest.mark.parametrize(("outcome", "status"), OUTCOMES.values(), ids=OUTCOMES)
def test_events_and_objects_are_valid(
    outcome: AnswerOutcome, status: str, thought: str, text: str
) -> None:
    form = ResponsesEncoder("resp_1", "m", 7, b"{}", completed=lambda: 9)
    pieces = [
        form.encode_piece(ReasoningPiece(each)) for each in (thought[:3], thought[3:]) if each
    ]
    pieces += [form.encode_piece(AnswerTextPiece(text))] if text else []
    wire = b"".join([form.encode_start(), *pieces, form.encode_end(outcome)]).decode()
    lines = [line[6:] for line in wire.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for event in events:
        EVENT_TYPES[event["type"]].model_validate_json(json.dumps(event))
    final = events[-1]["response"]
    assert (final["status"], len(final["output"])) == (
        status,
        len([each for each in events if each["type"] == "response.output_item.done"]),
    )
    assert final["completed_at"] == (9 if status == "completed" else None)
    whole = ResponsesEncoder("resp_1", "m", 7, b"{}", completed=lambda: 9)
    outcome = replace(outcome, reasoning=thought)
    assert json.loads(whole.encode_answer(text, outcome)) == final
    thoughts = [each for each in final["output"] if each["type"] == "reasoning"]
    assert [part["text"] for each in thoughts for part in each["summary"]] == [thought] * bool(
        thought
    )


def test_reasoning_between_texts_is_an_item_of_its_own() -> None:
    form = ResponsesEncoder("resp_1", "m", 7, b"{}")
    pieces: tuple[AnswerPiece, ...] = (
        ReasoningPiece("First."),
        AnswerTextPiece("So"),
        ReasoningPiece("\n\nSecond."),
        AnswerTextPiece(" far."),
        ReasoningPiece("\n\nThird."),
    )
    wire = b"".join(
        [
            form.encode_start(),
            *map(form.encode_piece, pieces),
            form.encode_end(OUTCOMES["calls"][0]),
        ]
    ).decode()
    lines = [line[6:] for line in wire.splitlines() if line.startswith("data: ")][:-1]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for event in events:
        EVENT_TYPES[event["type"]].model_validate_json(json.dumps(event))
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    opened = [each for each in events if each["type"] == "response.output_item.added"]
    closed = [each for each in events if each["type"] == "response.output_item.done"]
    output = events[-1]["response"]["output"]
    for order in (opened, sorted(closed, key=lambda each: each["output_index"])):
        assert [each["output_index"] for each in order] == list(range(6))
        assert [each["item"]["id"] for each in order] == [each["id"] for each in output]
    assert [each["type"] for each in output] == [
        *("reasoning", "message", "reasoning", "reasoning"),
        *("function_call", "function_call"),
    ]
    assert output[1]["content"][0]["text"] == "So far."
    assert [each["summary"][0]["text"] for each in output if each["type"] == "reasoning"] == [
        "First.",
        "Second.",
        "Third.",
    ]
    assert len({each["id"] for each in output[:4]}) == 4
