"""Sans-IO: the named events of a stream that are not answer text: tool progress and notices."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.http.api.pieces import ToolEndPiece, ToolStartPiece
from gateway.turns.feed_events import FeedNotice

_TOOL_PROGRESS_EVENT, _NOTICE_EVENT = "hermes.tool.progress", "holdfast.notice"


class ToolRunning(msgspec.Struct, frozen=True, kw_only=True, tag_field="status", tag="running"):
    """The start of a tool of the agent. Exactly one `completed` with the same id follows."""

    tool: str
    emoji: str
    label: str
    call_id: str = msgspec.field(name="toolCallId")


class ToolCompleted(msgspec.Struct, frozen=True, kw_only=True, tag_field="status", tag="completed"):
    """The end of a tool, successful or not."""

    tool: str
    call_id: str = msgspec.field(name="toolCallId")


class NoticePayload(msgspec.Struct, frozen=True, kw_only=True):
    """A notice of the gateway, which is not part of the answer."""

    id: Annotated[str, Meta(description="Stable id of the notice, independent of its text.")]
    text: str


_NoChoices = Annotated[list[Any], Meta(extra_json_schema={"maxItems": 0})]
# The types for chat completions have the fields of a chunk, so that strict clients accept them.


class ToolRunningChunk(ToolRunning, frozen=True, kw_only=True, tag="running"):
    """The start of a tool of the agent. Exactly one `completed` with the same id follows."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: _NoChoices = []


class ToolCompletedChunk(ToolCompleted, frozen=True, kw_only=True, tag="completed"):
    """The end of a tool, successful or not."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: _NoChoices = []


class NoticeChunk(NoticePayload, frozen=True, kw_only=True):
    """A notice of the gateway, which is not part of the answer; `id` is the id of the notice."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: _NoChoices = []


EVENT_TYPES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    _TOOL_PROGRESS_EVENT: (ToolRunning, ToolCompleted),
    _NOTICE_EVENT: (NoticePayload,),
}
"""Payload types by event name."""
EVENT_CHUNK_TYPES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    _TOOL_PROGRESS_EVENT: (ToolRunningChunk, ToolCompletedChunk),
    _NOTICE_EVENT: (NoticeChunk,),
}
"""Types of the events of chat completions, by name."""
_CHUNK_TYPES = {
    ToolRunning: ToolRunningChunk,
    ToolCompleted: ToolCompletedChunk,
    NoticePayload: NoticeChunk,
}


def stream_event(
    piece: ToolStartPiece | ToolEndPiece | FeedNotice,
) -> tuple[str, ToolRunning | ToolCompleted | NoticePayload]:
    """Return name and payload of an event."""
    match piece:
        case ToolStartPiece(call, tool, label, emoji):
            running = ToolRunning(tool=tool, emoji=emoji, label=label, call_id=call)
            return _TOOL_PROGRESS_EVENT, running
        case ToolEndPiece(call, tool):
            return _TOOL_PROGRESS_EVENT, ToolCompleted(tool=tool, call_id=call)
        case FeedNotice(id_, text):
            return _NOTICE_EVENT, NoticePayload(id=id_, text=text)


def as_chunk(
    payload: ToolRunning | ToolCompleted | NoticePayload, *, id_: str, created: int, model: str
) -> msgspec.Struct:
    """Return the payload of an event as a whole chunk; the id of a notice stays."""
    fields = {"id": id_, "created": created, "model": model}
    chunk: msgspec.Struct = _CHUNK_TYPES[type(payload)](**fields | msgspec.structs.asdict(payload))
    return chunk
