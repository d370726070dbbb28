"""OpenAPI description of `/v1/messages`."""

import msgspec
from msgspec.structs import replace

from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.messages.form import MessagesEncoder
from gateway.http.api.messages.shapes import (
    BlockDelta,
    BlockStart,
    BlockStop,
    MessageDelta,
    MessagesAnswer,
    MessagesPing,
    MessagesRequest,
    MessageStart,
    MessageStop,
    TokenCount,
)
from gateway.http.api.pieces import AnswerTextPiece, ToolEndPiece, ToolStartPiece
from gateway.http.errors import ErrorBody, HttpFailure
from gateway.http.messages_errors import MESSAGES_PATH, MessagesErrorBody, as_messages_failure
from gateway.http.openapi import refused
from gateway.http.openapi.chat import IDEMPOTENCY_KEY, SESSION_ID
from gateway.http.openapi.terms import (
    EVENTS,
    JSON,
    ContentSpec,
    OperationSpec,
    ResponseSpec,
)

_MODEL, _TOOL = "gpt-5", "call_1"
_ENCODER = MessagesEncoder("0f3a", _MODEL)
_STREAM_EXAMPLE = b"".join(
    [
        _ENCODER.encode_start(),
        _ENCODER.encode_piece(ToolStartPiece(_TOOL, "read", "notes.txt", "📄")),
        _ENCODER.encode_piece(ToolEndPiece(_TOOL, "read")),
        _ENCODER.encode_piece(AnswerTextPiece("Two things are left.")),
        _ENCODER.encode_end(AnswerOutcome("stop")),
    ]
).decode()
_ANSWER_EXAMPLE = msgspec.json.decode(_ENCODER.encode_answer("Hello.", AnswerOutcome("stop")))
_EVENT_TYPES = (
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    MessagesPing,
)
_EVENTS = {
    **{str(each.__struct_config__.tag): (each,) for each in _EVENT_TYPES},
    "error": (MessagesErrorBody,),
}
_UNCONVERTED = {408, 431}  # answered before the path is known
_QUESTION = {"model": _MODEL, "messages": [{"role": "user", "content": "Hello."}]}
_CALL = {"type": "tool_use", "id": _TOOL, "name": "weather", "input": {"city": "Berlin"}}
_WITH_RESULT = {
    "max_tokens": 1000,
    "messages": [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": [_CALL]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": _TOOL, "content": "Sunny."}],
        },
    ],
    "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
    "stream": True,
}


def _as_messages(reply: ResponseSpec) -> list[ResponseSpec]:
    """Return the descriptions of an error in the statuses and the shape of this API."""
    if reply.status in _UNCONVERTED:
        return [reply]
    (content,) = reply.content
    by_status: dict[int, dict[str, MessagesErrorBody]] = {}
    for name, body in content.examples.items():
        assert isinstance(body, ErrorBody)  # noqa: S101 - as `refused` builds them
        error = body.error
        failure = as_messages_failure(
            HttpFailure(
                status=reply.status, message=error.message, code=error.code, param=error.param
            )
        )
        by_status.setdefault(failure.status, {})[name] = failure.to_body()
    return [
        replace(reply, status=status, content=[ContentSpec(JSON, MessagesErrorBody, examples)])
        for status, examples in by_status.items()
    ]


def _errors(replies: list[ResponseSpec]) -> list[ResponseSpec]:
    return [each for reply in replies for each in _as_messages(reply)]


OPERATIONS = (
    OperationSpec(
        path=MESSAGES_PATH,
        method="post",
        id="createMessage",
        tag="messages",
        summary="Ask the agent",
        description="The same as `/v1/chat/completions` for clients of Anthropic's API. The key can "
        "be in the header `x-api-key`. The data of each event has its name as `type`; events of the "
        "agent are the `holdfast` field of a `ping`.",
        parameters=[("header", SESSION_ID), ("header", IDEMPOTENCY_KEY)],
        body=ContentSpec(
            JSON, MessagesRequest, {"a question": _QUESTION, "the result of a tool": _WITH_RESULT}
        ),
        responses=[
            ResponseSpec(
                200,
                "The answer, whole or as events.",
                [
                    ContentSpec(JSON, MessagesAnswer, {"an answer": _ANSWER_EXAMPLE}),
                    ContentSpec(EVENTS, None, {"an answer with a tool": _STREAM_EXAMPLE}, _EVENTS),
                ],
                [refused.SESSION_STATE],
            ),
            *_errors(refused.answer_responses()),
        ],
    ),
    OperationSpec(
        path=f"{MESSAGES_PATH}/count_tokens",
        method="post",
        id="countTokens",
        tag="messages",
        summary="Estimate the tokens of a request",
        body=ContentSpec(JSON, MessagesRequest, {"a question": _QUESTION}),
        responses=[
            ResponseSpec(200, "The estimate.", [ContentSpec(JSON, TokenCount)]),
            *_errors(refused.counting_responses()),
        ],
    ),
)
