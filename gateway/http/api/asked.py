"""Sans-IO: a request of an API client, independent of the endpoint it came through."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from agent.model.answer_options import AnswerOptions
from gateway.access.api_keys import Requester
from sessions.records import MessageRole, ToolCall


class RequestPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture or another file of a request: its content, or the address to fetch it from."""

    name: str
    media_type: str = ""
    content: bytes = b""
    url: str = ""  # empty once the content is there
    param: str = ""  # position of `url` in the request, for error messages
    voice: bool = False  # speech, to be transcribed


class RequestMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: MessageRole
    text: str = ""
    pictures: tuple[RequestPicture, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    interrupted: str = ""  # as in `sessions.records.Message`


def move_pictures_of_results(messages: Iterable[RequestMessage]) -> Iterator[RequestMessage]:
    """Yield the messages, with pictures of results in a user message after the results.

    The result of a tool holds only text.
    """
    pictures: tuple[RequestPicture, ...] = ()
    for message in messages:
        if message.role is MessageRole.TOOL:
            pictures += message.pictures
            yield msgspec.structs.replace(message, pictures=())
            continue
        if pictures:
            yield RequestMessage(role=MessageRole.USER, pictures=pictures)
            pictures = ()
        yield message
    if pictures:
        yield RequestMessage(role=MessageRole.USER, pictures=pictures)


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    messages: tuple[RequestMessage, ...]  # as sent by the client; the last one is to be answered
    system_prompt: str = ""
    model: str = ""  # as written in the request; empty: the default model
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    stream: bool = False
    include_usage: bool = False  # a stream ends with its token usage
    previous_id: str = ""  # id of the answer that this request continues
    task: str = ""  # task of a front end; see `gateway.http.api.plain.tasks`
    plain: bool = False  # as in `gateway.inbound.request_options.RequestOptions`
    wants_reasoning: bool = False  # the client reads reasoning, if it may be shown
    retrievable: bool = False  # the answer can be fetched later by its id
    background: bool = False  # goes on without its client
    options: AnswerOptions = AnswerOptions()
    warnings: tuple[str, ...] = ()  # about parts of the request that have no effect
    echo: bytes = b""  # see `gateway.inbound.request_options.RequestOptions.echo`
    digest: str = ""
    user: str = ""  # as the client names the person behind the request
    requester: Requester | None = None  # set after the authentication


def replace_nul(text: str) -> str:
    """Replace NUL characters, which PostgreSQL refuses in text."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def body_digest(api_name: str, body: bytes) -> str:
    """Return a digest that tells requests apart, for the check of a reused Idempotency-Key."""
    return hashlib.sha256(api_name.encode() + b"\0" + body).hexdigest()
