"""Sans-IO: what a program asks, in no form's words."""

import hashlib

import msgspec

from sessions.records import ToolCall


class RequestPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that came inside of a request, or that it says where to find."""

    name: str
    media_type: str = ""
    content: bytes = b""
    url: str = ""  # where it still is to be fetched from
    param: str = ""  # where that stands in the request


class RequestMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: str  # "user", "assistant" or "tool"
    text: str = ""
    pictures: tuple[RequestPicture, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    message: RequestMessage  # what is to be answered
    history: tuple[RequestMessage, ...] = ()  # as the program remembers it
    system_prompt: str = ""
    model: str = ""  # as it is written in the request; empty: any
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    stream: bool = False
    include_usage: bool = False  # a stream ends with what it cost
    previous_id: str = ""  # the id of the answer from which the conversation goes on
    retrievable: bool = False  # the answer may be asked for again by its id
    echo: bytes = b""  # see `gateway.inbound.request_options.RequestOptions.echo`
    digest: str = ""


def replace_nul(text: str) -> str:
    """Words as they are stored: no end-of-text byte, which databases refuse."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def body_digest(api_name: str, body: bytes) -> str:
    """Tell requests apart."""
    return hashlib.sha256(api_name.encode() + b"\0" + body).hexdigest()
