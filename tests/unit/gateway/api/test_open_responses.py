"""Events and objects of `/v1/responses`, validated against the types of Open Responses."""

import json
from typing import Any

import openresponses_types
import pytest
from pydantic import BaseModel

from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.failures import HttpFailure
from gateway.http.api.pieces import AnswerTextPiece
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
@pytest.mark.parametrize(("outcome", "status"), OUTCOMES.values(), ids=OUTCOMES)
def test_events_and_objects_are_valid(outcome: AnswerOutcome, status: str, text: str) -> None:
    form = ResponsesEncoder("resp_1", "m", 7, b"{}", completed=lambda: 9)
    pieces = [form.encode_piece(AnswerTextPiece(text))] if text else []
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
    assert json.loads(whole.encode_answer(text, outcome)) == final
