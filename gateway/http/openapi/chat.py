"""OpenAPI description of `/v1/chat/completions`, `/v1/completions` and `/v1/models`."""

import msgspec

from gateway.http.api.chat.completions import (
    CompletionAnswer,
    CompletionEncoder,
    CompletionRequest,
)
from gateway.http.api.chat.form import ChatEncoder
from gateway.http.api.chat.shapes import ChatAnswer, ChatChunk, ChatRequest
from gateway.http.api.conversation.named_session import HINT_HEADER, SESSION_HEADER
from gateway.http.api.endings import AnswerOutcome
from gateway.http.api.failures import model_not_found
from gateway.http.api.models import Model, ModelList
from gateway.http.api.pieces import AnswerTextPiece, ToolEndPiece, ToolStartPiece
from gateway.http.api.requests import MAX_IDEMPOTENCY_KEY_LENGTH, SESSION_ID_PATTERN
from gateway.http.api.tool_events import EVENT_CHUNK_TYPES
from gateway.http.errors import COMPLETIONS_NOT_STORED, ErrorBody
from gateway.http.openapi import refused
from gateway.http.openapi.terms import (
    EVENTS,
    JSON,
    ContentSpec,
    OperationSpec,
    ParameterSpec,
    ResponseSpec,
)
from gateway.turns.feed_events import FeedNotice
from sessions.values.notices import NoticeId

SESSION_ID = ParameterSpec(
    name=SESSION_HEADER,
    description="Name of a stored conversation of this API key. Only the last message of the "
    "request is used; earlier messages come from the stored history. "
    f"`{HINT_HEADER}` does the same, but only if the earlier messages of the request agree with "
    "the stored history or are left out.",
    schema={"type": "string", "pattern": f"^({SESSION_ID_PATTERN})?$"},
    example="team-notes",
)
IDEMPOTENCY_KEY = ParameterSpec(
    name="Idempotency-Key",
    description="Makes a repeat safe: the same key with the same body joins the running turn or "
    "returns its answer.",
    schema={"type": "string", "maxLength": MAX_IDEMPOTENCY_KEY_LENGTH},
    example="9d3c3a54-6d0f-4c0e-8a73-1f6f0e6a2b11",
)
_CREATED = 1_795_000_000
_MODEL = "gpt-5"
_ENCODER = ChatEncoder("0f3a", _MODEL, _CREATED)
_TOOL = "call_1"
_STREAM_EXAMPLE = b"".join(
    [
        _ENCODER.encode_start(),
        _ENCODER.encode_piece(ToolStartPiece(_TOOL, "read", "notes.txt", "📄")),
        _ENCODER.encode_piece(ToolEndPiece(_TOOL, "read")),
        _ENCODER.encode_piece(AnswerTextPiece("Two things are left.")),
        _ENCODER.encode_piece(
            FeedNotice(NoticeId.RESTARTING_SOON, "The gateway is about to restart.")
        ),
        _ENCODER.encode_end(AnswerOutcome("stop")),
    ]
).decode()

_COMPLETION = CompletionEncoder("0f3a", _MODEL, _CREATED)
_COMPLETION_STREAM = (
    _COMPLETION.encode_piece(AnswerTextPiece("Hello."))
    + _COMPLETION.encode_end(AnswerOutcome("stop"))
).decode()
_BODY = ContentSpec(
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


def _decode_json(content: bytes) -> object:
    return msgspec.json.decode(content)


OPERATIONS = (
    OperationSpec(
        path="/v1/chat/completions",
        method="post",
        id="createChatCompletion",
        tag="chat",
        summary="Ask the agent",
        description="The agent answers as it does in a chat, with its own tools. Without "
        "`X-Holdfast-Session` the messages of the request are the conversation.\n\n"
        "A stream sends comments (`: keepalive`) while it is idle. Events without a name are a "
        "`ChatChunk`, or an `ErrorBody` if the answer breaks off; the last one is `[DONE]`. A turn "
        "ends when its client disconnects, unless another client with the same `Idempotency-Key` "
        "still reads.",
        parameters=[("header", SESSION_ID), ("header", IDEMPOTENCY_KEY)],
        body=_BODY,
        responses=[
            ResponseSpec(
                200,
                "The answer, whole or as events.",
                [
                    ContentSpec(
                        JSON,
                        ChatAnswer,
                        {
                            "an answer": _decode_json(
                                _ENCODER.encode_answer("Hello.", AnswerOutcome("stop"))
                            )
                        },
                    ),
                    ContentSpec(
                        EVENTS,
                        None,
                        {"an answer with a tool": _STREAM_EXAMPLE},
                        {"": (ChatChunk, ErrorBody), **EVENT_CHUNK_TYPES},
                    ),
                ],
                [refused.SESSION_STATE],
            ),
            *refused.answer_responses(),
        ],
    ),
    OperationSpec(
        path="/v1/chat/completions",
        method="get",
        id="listChatCompletions",
        tag="chat",
        summary="Not supported: answered with 404",
        responses=[
            *refused.authorized_responses(),
            refused.not_found_response(COMPLETIONS_NOT_STORED),
        ],
    ),
    OperationSpec(
        path="/v1/completions",
        method="post",
        id="createCompletion",
        tag="chat",
        summary="Answer one prompt",
        description="For older clients. The agent answers the prompt like a message; events of the "
        "agent are not part of the stream.",
        parameters=[("header", SESSION_ID), ("header", IDEMPOTENCY_KEY)],
        body=ContentSpec(JSON, CompletionRequest, {"a prompt": {"prompt": "Hello."}}),
        responses=[
            ResponseSpec(
                200,
                "The answer, whole or as events.",
                [
                    ContentSpec(
                        JSON,
                        CompletionAnswer,
                        {
                            "an answer": _decode_json(
                                _COMPLETION.encode_answer("Hello.", AnswerOutcome("stop"))
                            )
                        },
                    ),
                    ContentSpec(
                        EVENTS,
                        None,
                        {"an answer": _COMPLETION_STREAM},
                        {"": (CompletionAnswer, ErrorBody)},
                    ),
                ],
                [refused.SESSION_STATE],
            ),
            *refused.answer_responses(),
        ],
    ),
    OperationSpec(
        path="/v1/models",
        method="get",
        id="listModels",
        tag="models",
        summary="List the configured model and the models of the routes",
        responses=[
            ResponseSpec(200, "The models.", [ContentSpec(JSON, ModelList)]),
            *refused.authorized_responses(),
        ],
    ),
    OperationSpec(
        path="/v1/models/{name}",
        method="get",
        id="getModel",
        tag="models",
        summary="Get a model",
        parameters=[
            (
                "path",
                ParameterSpec(
                    name="name",
                    description="A name from the list.",
                    schema={"type": "string"},
                    example=_MODEL,
                    required=True,
                ),
            )
        ],
        responses=[
            ResponseSpec(200, "The model.", [ContentSpec(JSON, Model)]),
            refused.not_found_response(model_not_found("gpt-unknown")),
            *refused.authorized_responses(),
        ],
    ),
)
