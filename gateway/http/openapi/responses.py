"""`/v1/responses`, described."""

import msgspec

from gateway.http.api.answers import unknown
from gateway.http.api.endings import Outcome
from gateway.http.api.pieces import More, Piece, ToolOver, ToolRuns
from gateway.http.api.responses_form import ResponsesForm
from gateway.http.api.responses_shapes import (
    Echo,
    ItemList,
    ListedItem,
    Response,
    ResponseDeleted,
    ResponseEvent,
    ResponseRequest,
)
from gateway.http.api.tool_events import EVENTS as BESIDE
from gateway.http.openapi import refused
from gateway.http.openapi.chat import IDEMPOTENCY_KEY, SESSION_ID
from gateway.http.openapi.terms import EVENTS, JSON, Content, Field, Operation, Reply

_ID = "resp_01m7rdma3n33jvrs8x"
_MODEL, _CREATED, _TOOL = "gpt-5", 1_795_000_000, "call_1"
_ECHO = msgspec.json.encode(Echo(store=True))


def _form() -> ResponsesForm:
    return ResponsesForm(_ID, _MODEL, _CREATED, _ECHO)


def _streamed() -> str:
    form = _form()
    pieces: list[Piece] = [
        ToolRuns(_TOOL, "read", "notes.txt", "📄"),
        ToolOver(_TOOL, "read"),
        More("Two."),
    ]
    events = [form.begin(), *map(form.piece, pieces), form.end(Outcome("stop"))]
    return b"".join(events).decode()


_WHOLE = msgspec.json.decode(_form().whole("Hello.", Outcome("stop")))
_PATH = "/v1/responses/{id}"
_NAME = Field("id", "As the answer is called.", {"type": "string"}, _ID, always=True)
_ANSWER = Content(JSON, Response, {"an answer": _WHOLE})
_NONE = unknown("resp_unknown").failure

OPERATIONS = (
    Operation(
        path="/v1/responses",
        method="post",
        id="createResponse",
        tag="responses",
        summary="Ask the agent, in OpenAI's newer form",
        description="As `/v1/chat/completions`; `previous_response_id` goes on from an answer. A "
        "stream ends with `data: [DONE]`, and sends comments while nothing else is to be said.",
        parameters=[("header", SESSION_ID), ("header", IDEMPOTENCY_KEY)],
        body=Content(
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
        replies=[
            Reply(
                200,
                "The answer, whole or as events.",
                [
                    _ANSWER,
                    Content(
                        EVENTS,
                        None,
                        {"an answer with a tool": _streamed()},
                        {"response.*": (ResponseEvent,), **BESIDE},
                    ),
                ],
                [refused.SESSION_STATE],
            ),
            *refused.answering(),
        ],
    ),
    Operation(
        path=_PATH,
        method="get",
        id="getResponse",
        tag="responses",
        summary="An answer that was kept",
        parameters=[
            ("path", _NAME),
            (
                "query",
                Field(
                    "stream",
                    "An answer is not streamed again: `true` is refused.",
                    {"type": "string", "not": {"pattern": "^[Tt][Rr][Uu][Ee]$"}},
                ),
            ),
        ],
        replies=[
            Reply(200, "The answer, as far as it is written.", [_ANSWER]),
            *refused.asking(_NONE),
        ],
    ),
    Operation(
        path=_PATH,
        method="delete",
        id="deleteResponse",
        tag="responses",
        summary="Forget an answer",
        parameters=[("path", _NAME)],
        replies=[
            Reply(200, "It is given to nobody any more.", [Content(JSON, ResponseDeleted)]),
            *refused.asking(_NONE),
        ],
    ),
    Operation(
        path=f"{_PATH}/cancel",
        method="post",
        id="cancelResponse",
        tag="responses",
        summary="Stop an answer that is being written",
        parameters=[("path", _NAME)],
        replies=[Reply(200, "The answer, as it is now.", [_ANSWER]), *refused.asking(_NONE)],
    ),
    Operation(
        path=f"{_PATH}/input_items",
        method="get",
        id="listInputItems",
        tag="responses",
        summary="What was sent with the request",
        parameters=[
            ("path", _NAME),
            (
                "query",
                Field("limit", "How many.", {"type": "integer", "minimum": 1, "maximum": 100}, 20),
            ),
            (
                "query",
                Field("order", "`asc`: the oldest first.", {"type": "string"}, "desc"),
            ),
            ("query", Field("after", "The item before the first one.", {"type": "string"})),
        ],
        replies=[
            Reply(
                200,
                "The items.",
                [
                    Content(
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
            *refused.asking(_NONE),
        ],
    ),
)
