"""`/v1/chat/completions` and `/v1/models`, described."""

import msgspec

from gateway.http.api.chat_form import ChatForm
from gateway.http.api.chat_shapes import ChatAnswer, ChatChunk, ChatRequest
from gateway.http.api.endings import Outcome
from gateway.http.api.failures import no_model
from gateway.http.api.listing import Model, ModelList
from gateway.http.api.pieces import More, ToolOver, ToolRuns
from gateway.http.api.requests import LONGEST_KEY, SESSION
from gateway.http.api.tool_events import EVENTS as BESIDE
from gateway.http.errors import ErrorBody
from gateway.http.openapi import refused
from gateway.http.openapi.terms import EVENTS, JSON, Content, Field, Operation, Reply
from gateway.turns.news import Told

SESSION_ID = Field(
    "X-Session-Id",
    "A conversation that is kept. The last message of the request is added to it; what the request "
    "says of earlier ones counts only where there is no conversation of that name yet.",
    {"type": "string", "pattern": f"^({SESSION})?$"},
    "team-notes",
)
IDEMPOTENCY_KEY = Field(
    "Idempotency-Key",
    "Sent again with the same body, it joins the turn that runs, or gets the answer that there is.",
    {"type": "string", "maxLength": LONGEST_KEY},
    "9d3c3a54-6d0f-4c0e-8a73-1f6f0e6a2b11",
)
_CREATED = 1_795_000_000
_MODEL = "gpt-5"
_FORM = ChatForm("0f3a", _MODEL, _CREATED)
_TOOL = "call_1"
_STREAM = b"".join(
    [
        _FORM.begin(),
        _FORM.piece(ToolRuns(_TOOL, "read", "notes.txt", "📄")),
        _FORM.piece(ToolOver(_TOOL, "read")),
        _FORM.piece(More("Two things are left.")),
        _FORM.piece(Told("N17", "The gateway is about to restart.")),
        _FORM.end(Outcome("stop")),
    ]
).decode()

_BODY = Content(
    JSON,
    ChatRequest,
    {
        "a question": {"model": _MODEL, "messages": [{"role": "user", "content": "Hello."}]},
        "with a picture": {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
                        },
                    ],
                },
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    },
)


def _whole(content: bytes) -> object:
    return msgspec.json.decode(content)


OPERATIONS = (
    Operation(
        path="/v1/chat/completions",
        method="post",
        id="createChatCompletion",
        tag="chat",
        summary="Ask the agent",
        description="The agent answers as it does in a chat, with its own tools. Without "
        "`X-Session-Id` the messages of the request are the conversation.\n\n"
        "A stream sends comments (`: keepalive`) while nothing else is to be said. Events without "
        "a name are `ChatChunk`, or an `ErrorBody` where the answer broke off after its beginning; "
        "the last one is `[DONE]`. A client that leaves ends its turn, unless another with the same "
        "`Idempotency-Key` still reads.",
        parameters=[("header", SESSION_ID), ("header", IDEMPOTENCY_KEY)],
        body=_BODY,
        replies=[
            Reply(
                200,
                "The answer, whole or as events.",
                [
                    Content(
                        JSON,
                        ChatAnswer,
                        {"an answer": _whole(_FORM.whole("Hello.", Outcome("stop")))},
                    ),
                    Content(
                        EVENTS,
                        None,
                        {"an answer with a tool": _STREAM},
                        {"": (ChatChunk, ErrorBody), **BESIDE},
                    ),
                ],
                [refused.SESSION_STATE],
            ),
            *refused.answering(),
        ],
    ),
    Operation(
        path="/v1/models",
        method="get",
        id="listModels",
        tag="models",
        summary="The configured model, and those of the routes",
        replies=[Reply(200, "The models.", [Content(JSON, ModelList)]), *refused.keyed()],
    ),
    Operation(
        path="/v1/models/{name}",
        method="get",
        id="getModel",
        tag="models",
        summary="One of them",
        parameters=[
            (
                "path",
                Field("name", "As it is listed.", {"type": "string"}, _MODEL, always=True),
            )
        ],
        replies=[
            Reply(200, "The model.", [Content(JSON, Model)]),
            refused.missing(no_model("gpt-unknown")),
            *refused.keyed(),
        ],
    ),
)
