"""Sans-IO: what a program asks, in no form's words."""

import hashlib

import msgspec

from sessions.records import ToolCall


class Picture(msgspec.Struct, frozen=True):
    """A picture that came inside of a request, or that it says where to find."""

    name: str
    media_type: str = ""
    content: bytes = b""
    url: str = ""  # where it still is to be fetched from
    param: str = ""  # where that stands in the request


class Said(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: str  # "user", "assistant" or "tool"
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    message: Said  # what is to be answered
    before: tuple[Said, ...] = ()  # as the program remembers it
    system: str = ""
    model: str = ""  # as it is written in the request; empty: any
    max_output_tokens: int | None = None
    temperature: float | None = None
    effort: str | None = None
    stream: bool = False
    usage: bool = False  # a stream ends with what it cost
    previous: str = ""  # the id of the answer from which the conversation goes on
    keep: bool = False  # the answer may be asked for again by its id
    echo: bytes = b""  # see `gateway.inbound.request_options.Wishes.echo`
    digest: str = ""


def clean(text: str) -> str:
    """Words as they are stored: no end-of-text byte, which databases refuse."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def digest_of(form: str, body: bytes) -> str:
    """Tell requests apart."""
    return hashlib.sha256(form.encode() + b"\0" + body).hexdigest()
