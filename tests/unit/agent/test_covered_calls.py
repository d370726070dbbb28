"""Call ids of rows that a summary has replaced."""

from agent.answer.accumulate import StepResult
from agent.attempt import AttemptResult
from agent.model.contract import ModelRequest
from agent.providers.demo import DemoProvider
from agent.providers.registry import Target
from agent.settings import TargetSettings
from agent.transcript import Transcript
from agent.verdict import Complete
from sessions.records import Message, ToolCall

_LONG = "a long result, " * 400


async def _summarised(_request: ModelRequest) -> AttemptResult:
    return AttemptResult(verdict=Complete(), step=StepResult(text="It was read."))


def _read(number: int) -> tuple[Message, Message]:
    call = ToolCall(f"call_{number}", "read", "{}")
    return (
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", _LONG, tool_call_id=call.id),
    )


async def test_ids_of_summarized_calls_stay_reserved() -> None:
    rows = [Message("user", "go"), *_read(0), *_read(1), *_read(2)]
    transcript = Transcript(rows, "")
    target = Target(DemoProvider(), "demo", TargetSettings())
    before = transcript.call_ids
    assert await transcript.compact(3000, target, _summarised)
    assert {call.id for row in transcript.rows for call in row.tool_calls} < before
    assert transcript.call_ids == before
    transcript.rows += _read(3)
    assert transcript.call_ids == before | {"call_3"}
