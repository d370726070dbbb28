"""Sans-IO: results of calls as text for the model."""

from collections.abc import Iterator

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agent.errors import ToolError
from sessions.values.frames import neutralize_output, to_single_line
from sessions.values.size import format_size


def result_text(result: CallToolResult) -> str:
    """Return the text of a result, with a descriptive line for each part that is not text.

    No line of the server's text looks like a frame, a remark or a message of another role.

    Raises:
        ToolError: The server reported a failure.
    """
    parts = [line for part in result.content for line in _content_lines(part)]
    if result.structured_content is not None and not _has_text(result):
        parts.append(neutralize_output(msgspec.json.encode(result.structured_content).decode()))
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "The call failed without a reason from the server.")
    return text or "[The call succeeded without a result.]"


def _has_text(result: CallToolResult) -> bool:
    return any(isinstance(part, TextContent) and part.text for part in result.content)


def _content_lines(part: ContentBlock) -> Iterator[str]:
    match part:
        case TextContent():
            yield neutralize_output(part.text)
        case ImageContent():
            yield f"[image {to_single_line(part.mime_type)}, {format_size(_decoded_size(part.data))}]"
        case AudioContent():
            yield f"[audio {to_single_line(part.mime_type)}, {format_size(_decoded_size(part.data))}]"
        case ResourceLink():
            yield f"[resource {to_single_line(str(part.uri))}{_type_suffix(part.mime_type)}]"
        case EmbeddedResource():
            yield from _resource_lines(part.resource)


def _resource_lines(resource: TextResourceContents | BlobResourceContents) -> Iterator[str]:
    label = f"resource {to_single_line(str(resource.uri))}{_type_suffix(resource.mime_type)}"
    if isinstance(resource, BlobResourceContents):
        yield f"[{label}, {format_size(_decoded_size(resource.blob))}]"
    else:  # many servers return the files they read in this form
        yield f"[{label}]"
        yield neutralize_output(resource.text)


def _type_suffix(mime_type: str | None) -> str:
    return f" {to_single_line(mime_type)}" if mime_type else ""


def _decoded_size(base64: str) -> int:
    """Return the number of encoded bytes."""
    return len(base64.rstrip("=")) * 3 // 4
