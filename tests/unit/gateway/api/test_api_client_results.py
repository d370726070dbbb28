"""Results of client tools in the messages of a request."""

import pytest

from gateway.http.api.asked import RequestMessage
from gateway.http.api.conversation.client_results import (
    complete_messages,
    new_messages,
    reopen_calls,
)
from gateway.http.api.failures import RequestRefused
from sessions.records import AWAITING_CLIENT, Message, MessageRole, ToolCall

USER, ASSISTANT, TOOL = MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL
OURS = "call_01abc_0123456789ab"


def said(role: MessageRole, text: str = "", *calls: str, of: str | None = None) -> RequestMessage:
    made = tuple(ToolCall(name, "weather", "{}") for name in calls)
    return RequestMessage(role=role, text=text, tool_calls=made, tool_call_id=of)


def short(messages: tuple[RequestMessage, ...]) -> list[str]:
    """Each message as its calls, the call of its result, or its text."""
    return [
        " ".join(["calls", *(call.id for call in each.tool_calls)])
        if each.tool_calls
        else f"{each.tool_call_id}={each.text}"
        if each.role is TOOL
        else each.text
        for each in messages
    ]


HI, MORE = said(USER, "hi"), said(USER, "more")
BOTH = said(ASSISTANT, "", "c1", "c2")
ONE, TWO = said(TOOL, "1", of="c1"), said(TOOL, "2", of="c2")
MISSING = "No result: the client did not send one."


@pytest.mark.parametrize(
    ("messages", "open_calls", "found"),
    [
        ([HI], (), ["hi"]),
        ([HI, BOTH, TWO, ONE], (), ["hi", "calls c1 c2", "c1=1", "c2=2"]),
        ([HI, BOTH, ONE, MORE], (), ["hi", "calls c1 c2", "c1=1", f"c2={MISSING}", "more"]),
        ([ONE, HI], (), ["hi"]),
        ([BOTH, ONE, ONE, TWO], (), ["calls c1 c2", "c1=1", "c2=2"]),
        ([ONE, TWO], ("c1", "c2"), ["c1=1", "c2=2"]),
        ([ONE, ONE, MORE], ("c1",), ["c1=1", "more"]),
        ([BOTH, ONE, TWO], ("c1", "c2"), ["c1=1", "c2=2"]),
        ([BOTH, ONE, TWO], ("c1",), ["c1=1", "calls c2", "c2=2"]),
        ([ONE, TWO, MORE], ("c2",), ["c2=2", "more"]),
        ([MORE, ONE], ("c1",), ["c1=1", "more"]),
    ],
)
def test_every_call_gets_one_result(
    messages: list[RequestMessage], open_calls: tuple[str, ...], found: list[str]
) -> None:
    assert short(complete_messages(messages, open_calls)) == found


@pytest.mark.parametrize("messages", [[ONE], [HI, ONE]])
def test_a_result_without_a_call_is_refused(messages: list[RequestMessage]) -> None:
    with pytest.raises(RequestRefused, match="No tool call waits for the result of “c1”"):
        complete_messages(messages, ("c9",))


def test_new_messages_follow_the_last_answer() -> None:
    assert new_messages([HI, BOTH, ONE, MORE]) == [ONE, MORE]
    assert new_messages([HI]) == [HI]


def test_a_branch_forgets_the_results_of_the_other_branch() -> None:
    calls = (ToolCall(OURS, "weather", "{}"), ToolCall("own", "pay", "{}"))
    rows = (
        Message("user", "hi"),
        Message("assistant", tool_calls=calls),
        Message("tool", "paid", tool_call_id="own"),
        Message("tool", "sunny", tool_call_id=OURS),
    )
    *_, paid, waiting = reopen_calls(rows, ())
    assert (paid.content, waiting.interrupted) == ("paid", AWAITING_CLIENT)
    assert reopen_calls(rows, (OURS,)) == rows[:3]
