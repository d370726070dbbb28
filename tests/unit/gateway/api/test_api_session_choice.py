"""The session that a request names, and whether its history agrees with the stored one."""

import pytest
from starlette.datastructures import Headers

from gateway.http.api.asked import RequestMessage
from gateway.http.api.conversation.named_session import NamedSession, agrees, read_named_session
from sessions.records import Message, MessageRole, ToolCall

USER, ASSISTANT, TOOL = MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL
CALL = ToolCall("c1", "search", "{}")


def brought(*rows: tuple[MessageRole, str]) -> list[RequestMessage]:
    return [RequestMessage(role=role, text=text) for role, text in rows]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, NamedSession(), id="none"),
        pytest.param({"x-holdfast-session": "a"}, NamedSession("a"), id="our header"),
        pytest.param(
            {"x-session-id": "b"}, NamedSession("b", is_hint=True), id="header of other programs"
        ),
        pytest.param(
            {"x-holdfast-session": "a", "x-session-id": "b"},
            NamedSession("a"),
            id="our header wins",
        ),
        pytest.param(
            {"x-holdfast-session": "", "x-session-id": "b"},
            NamedSession("b", is_hint=True),
            id="an empty header counts as absent",
        ),
    ],
)
def test_our_header_names_a_session_and_the_other_one_is_a_hint(
    headers: dict[str, str], expected: NamedSession
) -> None:
    assert read_named_session(Headers(headers)) == expected


STORED = (
    Message(USER, "one"),
    Message(ASSISTANT, "let me see", tool_calls=(CALL,)),
    Message(TOOL, "found", tool_call_id="c1"),
    Message(ASSISTANT, "\n\nit is one"),
    Message(USER, "two"),
    Message(ASSISTANT, "it is two"),
)


@pytest.mark.parametrize(
    ("rows", "stored"),
    [
        pytest.param([], STORED, id="no history"),
        pytest.param([], (), id="no history, new session"),
        pytest.param(
            [
                (USER, "one"),
                (ASSISTANT, "let me see\n\nit is one"),
                (USER, "two"),
                (ASSISTANT, "it is two"),
            ],
            STORED,
            id="the texts of an answer joined",
        ),
        pytest.param(
            [
                (USER, "one"),
                (ASSISTANT, "let me see"),
                (TOOL, "other result"),
                (ASSISTANT, "it is one"),
                (USER, "two"),
                (ASSISTANT, ""),
                (ASSISTANT, "it is two "),
            ],
            STORED,
            id="tool rows and empty messages",
        ),
    ],
)
def test_history_with_the_same_texts_agrees(
    rows: list[tuple[MessageRole, str]], stored: tuple[Message, ...]
) -> None:
    assert agrees(brought(*rows), stored)


@pytest.mark.parametrize(
    ("rows", "stored"),
    [
        pytest.param([(USER, "one")], (), id="new session"),
        pytest.param([(TOOL, "result")], (), id="only a tool row, new session"),
        pytest.param([(USER, "one"), (ASSISTANT, "changed")], STORED[:1], id="longer"),
        pytest.param([(USER, "one"), (ASSISTANT, "let me see")], STORED[:4], id="shortened text"),
        pytest.param([(USER, "one"), (ASSISTANT, "let me see it is one")], STORED, id="undone"),
        pytest.param(
            [(USER, "edited"), (ASSISTANT, "let me see it is one")], STORED[:4], id="edited"
        ),
        pytest.param(
            [(ASSISTANT, "one"), (USER, "let me see it is one")], STORED[:4], id="other authors"
        ),
    ],
)
def test_other_history_does_not_agree(
    rows: list[tuple[MessageRole, str]], stored: tuple[Message, ...]
) -> None:
    assert not agrees(brought(*rows), stored)
