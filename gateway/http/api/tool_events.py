"""Sans-IO: the named events of a stream that are not answer text: tool progress and notices."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.http.api.pieces import ToolEndPiece, ToolStartPiece
from gateway.turns.feed_events import FeedNotice

_TOOL_PROGRESS_EVENT, _NOTICE_EVENT = "hermes.tool.progress", "holdfast.notice"

EmptyChoices = Annotated[
    list[Any],
    Meta(
        description="Only for OpenAI's libraries, which parse every event as a chunk.",
        extra_json_schema={"maxItems": 0},
    ),
]


class ToolRunning(msgspec.Struct, frozen=True, kw_only=True, tag_field="status", tag="running"):
    """The start of a tool of the agent. Exactly one `completed` with the same id follows."""

    tool: str
    emoji: str
    label: str
    call_id: str = msgspec.field(name="toolCallId")
    choices: EmptyChoices | UnsetType = UNSET


class ToolCompleted(msgspec.Struct, frozen=True, kw_only=True, tag_field="status", tag="completed"):
    """The end of a tool, successful or not."""

    tool: str
    call_id: str = msgspec.field(name="toolCallId")
    choices: EmptyChoices | UnsetType = UNSET


class NoticePayload(msgspec.Struct, frozen=True, kw_only=True):
    """A notice of the gateway, which is not part of the answer."""

    id: Annotated[str, Meta(description="Stable id of the notice, independent of its text.")]
    text: str
    choices: EmptyChoices | UnsetType = UNSET


EVENT_TYPES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    _TOOL_PROGRESS_EVENT: (ToolRunning, ToolCompleted),
    _NOTICE_EVENT: (NoticePayload,),
}
"""Payload types by event name."""


def stream_event(
    piece: ToolStartPiece | ToolEndPiece | FeedNotice, *, chunk_like: bool = False
) -> tuple[str, ToolRunning | ToolCompleted | NoticePayload]:
    """Return name and payload of an event; `chunk_like` adds empty `choices`."""
    none: list[Any] | UnsetType = [] if chunk_like else UNSET
    match piece:
        case ToolStartPiece(call, tool, label, emoji):
            running = ToolRunning(tool=tool, emoji=emoji, label=label, call_id=call, choices=none)
            return _TOOL_PROGRESS_EVENT, running
        case ToolEndPiece(call, tool):
            return _TOOL_PROGRESS_EVENT, ToolCompleted(tool=tool, call_id=call, choices=none)
        case FeedNotice(id_, text):
            return _NOTICE_EVENT, NoticePayload(id=id_, text=text, choices=none)
