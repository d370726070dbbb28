"""OpenAPI description of `/v1/responses`."""

import msgspec

from gateway.http.api.answers import response_not_found
from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece, ToolEndPiece, ToolStartPiece
from gateway.http.api.responses.form import ResponsesEncoder
from gateway.http.api.responses.shapes import (
    ItemList,
    ListedItem,
    RequestEcho,
    Response,
    ResponseDeleted,
    ResponseEvent,
    ResponseRequest,
)
from gateway.http.api.tool_events import EVENT_TYPES
from gateway.http.openapi import refused
from gateway.http.openapi.chat import IDEMPOTENCY_KEY, SESSION_ID
from gateway.http.openapi.terms import (
    EVENTS,
    JSON,
    ContentSpec,
    OperationSpec,
    ParameterSpec,
    ResponseSpec,
)

_ID = "resp_01m7rdma3n33jvrs8x"
_MODEL, _CREATED, _TOOL = "gpt-5", 1_795_000_000, "call_1"
_ECHO = msgspec.json.encode(RequestEcho(store=True))


def _encoder() -> ResponsesEncoder:
    return ResponsesEncoder(_ID, _MODEL, _CREATED, _ECHO)


def _stream_example() -> str:
    form = _encoder()
    pieces: list[AnswerPiece] = [
        ToolStartPiece(_TOOL, "read", "notes.txt", "📄"),
        ToolEndPiece(_TOOL, "read"),
        AnswerTextPiece("Two."),
    ]
    events = [
        form.encode_start(),
        *map(form.encode_piece, pieces),
        form.encode_end(AnswerOutcome("stop")),
    ]
    return b"".join(events).decode()


_ANSWER_EXAMPLE = msgspec.json.decode(_encoder().encode_answer("Hello.", AnswerOutcome("stop")))
_PATH = "/v1/responses/{id}"
_ID_PARAMETER = ParameterSpec(
    name="id",
    description="The id of the answer.",
    schema={"type": "string"},
    example=_ID,
    required=True,
)
_ANSWER_CONTENT = ContentSpec(JSON, Response, {"an answer": _ANSWER_EXAMPLE})
_EVENTS_CONTENT = ContentSpec(
    EVENTS,
    None,
    {"an answer with a tool": _stream_example()},
    {"response.*": (ResponseEvent,), **EVENT_TYPES},
)
_NOT_FOUND = response_not_found("resp_unknown").failure

OPERATIONS = (
    OperationSpec(
        path="/v1/responses",
        method="post",
        id="createResponse",
        tag="responses",
        summary="Ask the agent through OpenAI's newer API",
        description="Like `/v1/chat/completions`; `previous_response_id` continues an answer. A "
        "stream sends comments while it is idle, and ends with `data: [DONE]`.",
        parameters=[("header", SESSION_ID), ("header", IDEMPOTENCY_KEY)],
        body=ContentSpec(
            JSON,
            ResponseRequest,
            {
                "a question": {"input": "Hello."},
                "items": {
                    "instructions": "Be brief.",
                    "input": [{"role": "user", "content": "Hello."}],
                    "stream": True,
                },
            },
        ),
        responses=[
            ResponseSpec(
                200,
                "The answer, whole or as events.",
                [
                    _ANSWER_CONTENT,
                    _EVENTS_CONTENT,
                ],
                [refused.SESSION_STATE],
            ),
            *refused.answer_responses(),
        ],
    ),
    OperationSpec(
        path=_PATH,
        method="get",
        id="getResponse",
        tag="responses",
        summary="Get a stored answer",
        parameters=[
            ("path", _ID_PARAMETER),
            (
                "query",
                ParameterSpec(
                    name="stream",
                    description="`true` sends an answer in the background as events.",
                    schema={"type": "string"},
                    example="false",
                ),
            ),
            (
                "query",
                ParameterSpec(
                    name="starting_after",
                    description="Send only the events after the one with this sequence number.",
                    schema={"type": "integer", "minimum": 0, "maximum": 999_999_999},
                ),
            ),
        ],
        responses=[
            ResponseSpec(
                200,
                "The answer, finished or in progress.",
                [_ANSWER_CONTENT, _EVENTS_CONTENT],
            ),
            *refused.lookup_responses(_NOT_FOUND),
        ],
    ),
    OperationSpec(
        path=_PATH,
        method="delete",
        id="deleteResponse",
        tag="responses",
        summary="Delete an answer",
        parameters=[("path", _ID_PARAMETER)],
        responses=[
            ResponseSpec(200, "The answer was deleted.", [ContentSpec(JSON, ResponseDeleted)]),
            *refused.lookup_responses(_NOT_FOUND),
        ],
    ),
    OperationSpec(
        path=f"{_PATH}/cancel",
        method="post",
        id="cancelResponse",
        tag="responses",
        summary="Stop an answer in progress",
        parameters=[("path", _ID_PARAMETER)],
        responses=[
            ResponseSpec(200, "The answer after the stop.", [_ANSWER_CONTENT]),
            *refused.lookup_responses(_NOT_FOUND),
        ],
    ),
    OperationSpec(
        path=f"{_PATH}/input_items",
        method="get",
        id="listInputItems",
        tag="responses",
        summary="List the input items of a response",
        parameters=[
            ("path", _ID_PARAMETER),
            (
                "query",
                ParameterSpec(
                    name="limit",
                    description="Maximum number of items.",
                    schema={"type": "integer", "minimum": 1, "maximum": 100},
                    example=20,
                ),
            ),
            (
                "query",
                ParameterSpec(
                    name="order",
                    description="`asc` for oldest first.",
                    schema={"type": "string"},
                    example="desc",
                ),
            ),
            (
                "query",
                ParameterSpec(
                    name="after",
                    description="Id of the item before the page.",
                    schema={"type": "string"},
                ),
            ),
        ],
        responses=[
            ResponseSpec(
                200,
                "The items.",
                [
                    ContentSpec(
                        JSON,
                        ItemList,
                        {
                            "one": ItemList(
                                data=[
                                    ListedItem(
                                        id="item_1_0",
                                        type="message",
                                        role="user",
                                        content=[{"type": "input_text", "text": "Hello."}],
                                    )
                                ],
                                first_id="item_1_0",
                                last_id="item_1_0",
                                has_more=False,
                            )
                        },
                    )
                ],
            ),
            *refused.lookup_responses(_NOT_FOUND),
        ],
    ),
)
