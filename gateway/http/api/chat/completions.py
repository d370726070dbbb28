"""Sans-IO: codec of the older `/v1/completions`, for clients that send one prompt as text."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agent.model.answer_options import AnswerOptions
from agent.model.contract import SamplingOptions
from agent.model.usage import Usage
from gateway.http.api.answer_options import (
    Bias,
    Penalty,
    Seed,
    Stop,
    TopP,
    read_stop,
    refuse_unsupported,
)
from gateway.http.api.asked import ApiRequest, RequestMessage, body_digest, replace_nul
from gateway.http.api.bodies import decode_body
from gateway.http.api.chat.shapes import (
    CachedTokens,
    ChatUsage,
    StreamOptions,
    Temperature,
    TokenLimit,
)
from gateway.http.api.endings import AnswerOutcome, FinishReason
from gateway.http.api.failures import invalid_request
from gateway.http.api.pieces import AnswerPiece, AnswerTextPiece
from gateway.http.errors import ErrorBody
from sessions.records import MessageRole

Prompt = Annotated[str, Meta(pattern=r"\S")]
_ONE = Meta(description="A request gets one answer.", extra_json_schema={"enum": [1, None]})
_ABSENT = Meta(description="Not supported: refused.", extra_json_schema={"type": "null"})
_NO_ECHO = Meta(
    description="Not supported: `true` is refused.", extra_json_schema={"enum": [False, None]}
)


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, which the agent answers like a message."""

    prompt: Prompt | Annotated[list[Prompt], Meta(min_length=1, max_length=1)]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenLimit | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    stop: Stop = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    user: str | None = None
    n: Annotated[float | None, _ONE] = None
    best_of: Annotated[float | None, _ONE] = None
    echo: Annotated[bool | None, _NO_ECHO] = None
    logprobs: Annotated[Any, _ABSENT] = None
    suffix: Annotated[Any, _ABSENT] = None


class CompletionChoice(msgspec.Struct, frozen=True):
    """The text of an answer, or an addition to the text."""

    text: str
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: None = None


class CompletionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or a chunk of an answer."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: Annotated[int, Meta(description="Unix time in seconds.")]
    model: str
    choices: list[CompletionChoice]
    usage: ChatUsage | None = None


_decoder = msgspec.json.Decoder(CompletionRequest)


def read_request(content: bytes) -> ApiRequest:
    """Decode a request; raises `RequestRefused`. Unknown fields are ignored."""
    body = decode_body(_decoder, content)
    refuse_unsupported(
        n=body.n not in {None, 1},
        best_of=body.best_of not in {None, 1},
        echo=bool(body.echo),
        logprobs=body.logprobs is not None,
        suffix=body.suffix is not None,
    )
    prompt = body.prompt if isinstance(body.prompt, str) else body.prompt[0]
    if not prompt.strip():
        msg = "The prompt is empty."
        raise invalid_request(msg, "prompt")
    return ApiRequest(
        messages=(RequestMessage(role=MessageRole.USER, text=replace_nul(prompt)),),
        model=(body.model or "").strip(),
        max_output_tokens=int(body.max_tokens) if body.max_tokens else None,
        temperature=body.temperature,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        options=AnswerOptions(sampling=_sampling(body)),
        digest=body_digest("completions", content),
    )


def _sampling(body: CompletionRequest) -> SamplingOptions:
    return SamplingOptions(
        top_p=body.top_p,
        stop=read_stop(body.stop),
        seed=None if body.seed is None else int(body.seed),
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=body.logit_bias or {},
        user=body.user,
    )


class CompletionEncoder:
    """Encoder of one answer. Events of the agent have no place in this protocol."""

    failures_are_errors = True

    def __init__(
        self, answer_id: str, model: str, created: int, *, include_usage: bool = False
    ) -> None:
        self._id = f"cmpl-{answer_id}"
        self._model = model
        self._created = created
        self._include_usage = include_usage
        self._text_sent = False

    def encode_start(self) -> bytes:
        """Encode nothing: the protocol has no first event."""
        return b""

    def encode_piece(self, piece: AnswerPiece) -> bytes:
        """Encode text of the answer."""
        if not isinstance(piece, AnswerTextPiece):
            return b""
        self._text_sent = True
        return self._encode_chunk([CompletionChoice(piece.text)])

    def encode_end(self, outcome: AnswerOutcome) -> bytes:
        """Encode the last events: finish reason, usage, error, `[DONE]`."""
        declined = "" if self._text_sent else outcome.refusal
        events = [self._encode_chunk([CompletionChoice(declined, outcome.finish_reason)])]
        if self._include_usage:
            events.append(self._encode_chunk([], _usage(outcome.usage)))
        if outcome.failure:
            error = ErrorBody(outcome.failure.to_error(partial=self._text_sent))
            events.append(_encode_data(error))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def encode_answer(self, text: str, outcome: AnswerOutcome) -> bytes:
        """Encode the whole answer."""
        choice = CompletionChoice(text or outcome.refusal, outcome.finish_reason)
        return msgspec.json.encode(self._answer([choice], _usage(outcome.usage)))

    def _encode_chunk(
        self, choices: list[CompletionChoice], usage: ChatUsage | None = None
    ) -> bytes:
        return _encode_data(self._answer(choices, usage))

    def _answer(self, choices: list[CompletionChoice], usage: ChatUsage | None) -> CompletionAnswer:
        return CompletionAnswer(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )


def _encode_data(data: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        CachedTokens(usage.cached_tokens),
    )
