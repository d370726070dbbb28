"""Sans-IO: `/v1/chat/completions`: reads its requests, writes its answers."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from agent.spend import Usage
from gateway.api.asked import Asked, Picture, Said, clean, digest_of
from gateway.api.bodies import OWN_TOOLS, read_body
from gateway.api.failures import unfit
from gateway.api.outcome import Outcome
from gateway.api.pictures import picture
from gateway.api.story import More, Piece, named
from sessions.records import ToolCall

# --- what comes in -----------------------------------------------------------------------------


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: _ImageUrl | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Message(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


_Tokens = Annotated[int, msgspec.Meta(ge=1)]


class _Body(msgspec.Struct, frozen=True):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None


_read = msgspec.json.Decoder(_Body).decode


def read_request(content: bytes) -> Asked:
    """Read a request; raises `Refused`. What is not known here is let pass, as others do."""
    body = read_body(_read, content)
    if (body.tools and body.tool_choice != "none") or body.functions:
        raise unfit(OWN_TOOLS, "tools" if body.tools else "functions", "unsupported_parameter")
    if body.n not in {None, 1}:
        msg = "There is one answer to a request; `n` can only be 1."
        raise unfit(msg, "n", "unsupported_parameter")
    *before, message = _said(body.messages)
    options = body.stream_options
    return Asked(
        message=message,
        before=tuple(before),
        system="\n\n".join(_prompts(body.messages)),
        model=(body.model or "").strip(),
        max_output_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        effort=body.reasoning_effort,
        stream=bool(body.stream),
        usage=bool(options and options.include_usage),
        digest=digest_of("chat", content),
    )


def _prompts(messages: list[_Message]) -> Iterator[str]:
    for number, message in enumerate(messages):
        if message.role in {"system", "developer"}:
            text, _ = _content(message, number, [])
            if text.strip():
                yield text


def _said(messages: list[_Message]) -> list[Said]:
    pictures: list[Picture] = []
    said = []
    for number, message in enumerate(messages):
        if message.role in {"system", "developer"}:
            continue
        text, own = _content(message, number, pictures)
        calls = tuple(
            ToolCall(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
        )
        said.append(Said(message.role, text, own, calls, message.tool_call_id))
    if not said or said[-1].role != "user":
        msg = "The last message must be one of role `user`: that is the one that is answered."
        raise unfit(msg, "messages")
    if not said[-1].text.strip() and not said[-1].pictures:
        msg = "There is nothing in the last message."
        raise unfit(msg, f"messages[{len(messages) - 1}].content")
    return said


def _content(
    message: _Message, number: int, pictures: list[Picture]
) -> tuple[str, tuple[Picture, ...]]:
    """Give words and pictures; `pictures` are all those of the request so far."""
    if not isinstance(message.content, list):
        return clean(message.content or ""), ()
    texts, first = [], len(pictures)
    for place, part in enumerate(message.content):
        where = f"messages[{number}].content[{place}]"
        if part.type in {"text", "refusal"}:
            texts.append(clean(part.text or part.refusal))
        elif part.type == "image_url" and part.image_url and message.role == "user":
            url = part.image_url.url
            pictures.append(picture(url, f"{where}.image_url.url", len(pictures) + 1))
        else:
            msg = f"Parts of type “{part.type}” are not taken here, only text and pictures."
            raise unfit(msg, where)
    return "\n".join(texts), tuple(pictures[first:])


# --- what goes out -----------------------------------------------------------------------------


class ChatForm:
    """Writes one answer, as events or whole."""

    def __init__(
        self, answer_id: str, model: str, created: int, *, usage: bool = False, sdk: bool = False
    ) -> None:
        self._head = {"id": f"chatcmpl-{answer_id}", "created": created, "model": model}
        self._usage = usage
        # OpenAI's own libraries take every event for a chunk, whatever it is called.
        self._chunk_like: dict[str, object] = {"choices": []} if sdk else {}

    def begin(self) -> bytes:
        """Write the first event of an answer."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> bytes:
        """Write what is told of a turn."""
        match piece:
            case More():
                return self._chunk({"content": piece.text})
            case _:
                return self._named(*named(piece))

    def end(self, outcome: Outcome) -> bytes:
        """Write how it ended."""
        delta = {"refusal": outcome.declined} if outcome.declined else {}
        events = [self._chunk(delta, outcome.finish)]
        if self._usage:
            counted = {"choices": [], "usage": _usage(outcome.usage)}
            events.append(_data(self._chunk_head | counted))
        if outcome.failure:
            events.append(_data({"error": outcome.failure.error()}))
        events.append(b"data: [DONE]\n\n")
        return b"".join(events)

    def whole(self, text: str, outcome: Outcome) -> bytes:
        """Write the answer in one piece."""
        message: dict[str, object] = {
            "role": "assistant",
            "content": text if text or not outcome.declined else None,
            "refusal": outcome.declined or None,
        }
        body = {
            **self._head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": outcome.finish}],
            "usage": _usage(outcome.usage),
        }
        if outcome.failure:
            body["error"] = outcome.failure.error()
        return msgspec.json.encode(body)

    @property
    def _chunk_head(self) -> dict[str, object]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(self, delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        later: dict[str, object] = {"usage": None} if self._usage else {}
        return _data({**self._chunk_head, "choices": [choice], **later})

    def _named(self, name: str, data: dict[str, str]) -> bytes:
        return b"event: " + name.encode() + b"\n" + _data({**data, **self._chunk_like})


def _data(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
