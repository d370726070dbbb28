"""Conversation of a turn and its compaction."""

from agent.answer.accumulate import StepResult
from agent.attempt import AttemptResult
from agent.model.contract import ModelRequest
from agent.providers.demo import DemoProvider
from agent.providers.registry import Target
from agent.settings import TargetSettings
from agent.transcript import Transcript
from agent.verdict import Complete
from sessions.records import Message, ToolCall

TARGET = Target(DemoProvider(), "demo", TargetSettings())
CALLED = Message("assistant", "", tool_calls=(ToolCall("c1", "read", '{"path":"a"}'),))


async def summarised(_: ModelRequest) -> AttemptResult:
    return AttemptResult(verdict=Complete(), step=StepResult(text="They spoke of ships."))


def test_the_summary_comes_first() -> None:
    rows = (Message("user", "go on"),)
    assert Transcript(rows, "").messages == list(rows)
    first, second = Transcript(rows, "They spoke of ships.").messages
    assert first.role == "user"
    assert "They spoke of ships." in first.content
    assert second == rows[0]


def test_call_ids_of_all_rows_are_known() -> None:
    said = Transcript((Message("user", "one"), Message("assistant", "1"), Message("user", "2")), "")
    said.rows += [CALLED, Message("tool", "text", tool_call_id="c1")]
    assert said.ends_with_tool_result
    assert said.call_ids == {"c1"}
    assert not Transcript((), "").ends_with_tool_result


def test_a_short_conversation_certainly_fits() -> None:
    said = Transcript((Message("user", "x" * 400),), "")
    assert said.certainly_fits(None)
    assert said.certainly_fits(8192)
    assert not said.certainly_fits(700)


async def test_compaction_replaces_the_oldest_rows() -> None:
    rows = [
        Message(role, f"{role} {number} " + "many words about ships " * 40)
        for number in range(10)
        for role in ("user", "assistant")
    ]
    said = Transcript((*rows, Message("user", "and now?")), "")
    before = sum(len(row.content) for row in said.messages)
    done = await said.compact(2000, TARGET, summarised)
    assert done is not None
    keep, summary = done
    assert summary == "They spoke of ships."
    assert said.rows == [*rows, Message("user", "and now?")][-keep:]
    assert sum(len(row.content) for row in said.messages) < before / 2
    assert said.messages[-1].content == "and now?"


async def test_a_single_request_is_not_compacted() -> None:
    said = Transcript((Message("user", "go"),), "")
    assert await said.compact(10, TARGET, summarised) is None
    assert said.rows == [Message("user", "go")]


def test_the_estimate_equals_that_of_the_whole_request() -> None:
    request = ModelRequest("m", "Be kind.", ())
    said = Transcript((Message("user", "hi"),), "")
    small = said.estimate_with(request, ())
    assert small > 0
    assert said.estimate_with(request, (Message("user", "there " * 50),)) > small + 40
    said.add([Message("assistant", "many words " * 50)])
    longer = said.estimate_with(request, ())
    assert longer > small + 80
    assert Transcript(said.rows, "a summary").estimate_with(request, ()) > longer
